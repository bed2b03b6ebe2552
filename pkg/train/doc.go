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
// The package is larger than others, because the methods of Trainer share its state: the
// executables, the group and the position in the run. What does not need it is in internal:
// checkpoint (files of checkpoints), ranks (agreement of the ranks) and gpuwatch. Each file
// covers one topic:
//   - configs: config.go, named.go
//   - starting a worker: main.go, worker.go, process.go, processors.go, check.go, replicas.go, mirror.go
//   - set-up: trainer.go, programs.go, engine.go, samples.go, samedata.go, profile.go
//   - training: loop.go, exchange.go, feeder.go, steps.go, ema.go
//   - evaluation: evaluate.go, scores.go, final.go, predictor.go, picture.go, variants.go
//   - saving: runfiles.go, outlog.go, loadmeter.go, checkpoint.go, progress.go, resume.go
package train
