package notebook

// Go runs f in a new goroutine, like the statement go f().
//
// In a notebook a panic in f does not end the kernel. It ends the cell that called Go with
// an error that describes the panic; if that cell has already ended, the error is written
// to standard error. In a terminal a panic ends the program as usual.
func Go(f func()) {
	if h := currentHook.Load(); h != nil && h.Go != nil {
		h.Go(f)
		return
	}
	go f()
}
