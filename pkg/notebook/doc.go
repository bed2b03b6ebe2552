// Package notebook shows values and progress, and provides the context that an interrupt
// cancels, both in a notebook's cell and in a terminal.
//
// Code that uses it need not know where it runs. In a notebook the kernel sets one Hook
// when it starts. Without a kernel the package writes to the terminal and handles Ctrl-C.
// The hook is the package's only state.
//
//	ctx := notebook.Context()               // canceled by the notebook's interrupt
//	bar := notebook.NewProgress("epoch", 20)
//	for i := 1; i <= 20; i++ {
//		if err := step(ctx); err != nil {
//			return err
//		}
//		bar.Set(i, "loss 0.31")
//	}
//	bar.Done("IoU 0.82")
//	notebook.Display(figure)
package notebook
