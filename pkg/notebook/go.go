package notebook

// Go runs f in a goroutine of its own, like the statement go f().
//
// In a notebook a panic of f does not end the kernel: it ends the cell that
// called Go with an error that says what happened, and if that cell has ended
// already, it is written on standard error. In a terminal, where no session can
// be lost, a panic ends the program as usual.
func Go(f func()) {
	if h := hook.Load(); h != nil && h.Go != nil {
		h.Go(f)
		return
	}
	go f()
}
