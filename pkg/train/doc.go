// Package train trains networks: a Config describes a run, and a Trainer runs the training
// loop, evaluates the network and saves checkpoints.
//
// A Trainer is one worker of a run. It communicates with the other workers through a
// collective.Group only, so they may be processes (package launch) or goroutines of one
// process (Replicas, Mirror and package verify).
//
// A network's model.Task is segmentation, classification or regression. It determines the
// scores and what is logged. To train a network that your own program builds, use Replicas
// or Mirror in one process, or Main, which turns the program into a worker.
//
//	cfg, err := train.Named("unet2d-cells")
//	t, err := train.New(ctx, cfg, collective.InProcess(1)[0], train.WorkerOptions{})
//	result, err := t.Run(ctx)
package train
