package notebook_test

import (
	"context"
	"fmt"

	"lockstep/pkg/notebook"
)

// A long call takes the context of the cell, and an interrupt ends it.
func ExampleContext() {
	ctx, cancel := context.WithCancel(notebook.Context())
	defer cancel()
	fmt.Println(ctx.Err())
	// Output: <nil>
}

func ExampleDisplay() {
	// In a notebook, a value with a method SVG() string would be drawn.
	if err := notebook.Display("2 workers: speed-up 1.9"); err != nil {
		fmt.Println(err)
	}
	// Output: 2 workers: speed-up 1.9
}

func ExampleProgress() {
	bar := notebook.NewProgress("epoch", 3)
	for epoch := 1; epoch <= 3; epoch++ {
		bar.Set(epoch, fmt.Sprintf("loss %.2f", 1/float64(epoch)))
	}
	bar.Done("IoU 0.82")
	// Output:
}
