// Package train is the trainer: one Config, one loop, checkpoints, and the
// checks that the loop is right.
//
// A Trainer is one worker. It knows its collective.Group and nothing of how
// the other workers came to be: launch starts them as processes, the tests and
// VerifyDP as goroutines.
//
//	cfg, err := train.Named("unet2d-cells")
//	t, err := train.New(ctx, cfg, collective.InProcess(1)[0], train.Place{})
//	result, err := t.Run(ctx)
package train
