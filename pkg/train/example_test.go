package train_test

import (
	"context"
	"fmt"
	"strings"

	"lockstep/pkg/collective"
	"lockstep/pkg/train"
)

// A small U-Net on generated cells, trained by one worker in this process.
// The overrides have the form of --set.
func Example() {
	cfg, err := train.Named("unet2d-cells", "epochs=2", "data.count=12", "data.test_images=4",
		"data.height=32", "data.width=32", "model.base=4", "model.depth=2")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background() // in a notebook: notebook.Context()
	t, err := train.New(ctx, cfg, collective.InProcess(1)[0], train.WorkerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = t.Close() }()
	result, err := t.Run(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range result.Epochs {
		fmt.Println("epoch", e.Epoch, "samples", e.Samples)
	}
	fmt.Println("better after training:", result.Epochs[1].TrainLoss < result.Epochs[0].TrainLoss, "on", result.Test.Samples, "images")
	// Output:
	// epoch 1 samples 8
	// epoch 2 samples 8
	// better after training: true on 4 images
}

// The error for an unknown key suggests a known one.
func ExampleParse() {
	_, err := train.Parse("mine.yaml", []byte("batch: 4\nepoch: 3\n"))
	before, _, _ := strings.Cut(err.Error(), ": use one of")
	fmt.Println(before)
	// Output: parse config mine.yaml: line 2: unknown key "epoch" (did you mean epochs?)
}
