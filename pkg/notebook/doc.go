// Package notebook is what a cell and a terminal share: showing a value,
// showing progress, and the context that an interrupt cancels.
//
// Code that uses it does not ask where it runs. In a notebook the kernel sets
// one Hook when it starts; without a kernel the package writes to the terminal
// and listens to Ctrl-C. That hook is the package's only state.
//
//	ctx := notebook.Context()               // cancelled by the notebook's interrupt
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
