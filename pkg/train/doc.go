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
//
// The package is larger than others because the methods of Trainer share its state: the
// executables, the group and the progress of the run. Each file covers one topic:
//   - configs: config.go, named.go
//   - starting a worker: main.go, worker.go, check.go, replicas.go, mirror.go, procs.go
//   - training: trainer.go, loop.go, steps.go, feeder.go, ema.go
//   - scores: evaluate.go, scores.go, predictor.go, picture.go
//   - engines and devices: device.go, gpu.go, instructions.go, profile.go
//   - run folder: record.go, outlog.go, runlock.go, throughput.go, loadmeter.go
//   - checkpoints: checkpoint.go, progress.go, resume.go
//   - equal configs and data on all ranks: samevalues.go, staging.go
package train
