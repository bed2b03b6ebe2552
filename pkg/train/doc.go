// Package train is the trainer: one Config, one loop, checkpoints, and the
// checks that the loop is right.
//
// A Trainer is one worker. It knows its collective.Group and nothing of how
// the other workers came to be: launch starts them as processes, the tests and
// VerifyDP as goroutines.
//
// What a network learns, segmentation, classification or regression, is its
// model.Task: it decides what is scored and what the log says. A network of one's
// own is trained by Replicas or Mirror in this process, or by Main, which makes a
// program a worker.
//
//	cfg, err := train.Named("unet2d-cells")
//	t, err := train.New(ctx, cfg, collective.InProcess(1)[0], train.WorkerOptions{})
//	result, err := t.Run(ctx)
package train
