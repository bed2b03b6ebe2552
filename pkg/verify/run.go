package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
	"lockstep/pkg/weights"
)

// RunOptions are the options of Run.
type RunOptions struct {
	Data string // the current path of the data; empty: the path that the run used
}

// Run verifies the run folder dir. It checks that
//
//   - the run ended without an error and all lines of its files can be read;
//   - the step files come from as many different processes as run.json says, usually one per
//     rank;
//   - all ranks used the same config;
//   - all ranks used the same data, also after the run was resumed, unless the user accepted
//     other data;
//   - at most one process at a time owned the run;
//   - steps are consecutive, and repeated only after resuming from a checkpoint;
//   - the samples and the training loss per epoch in epochs.csv are those of all steps;
//   - the scores equal the scores recomputed from the checkpoint and the data.
func Run(ctx context.Context, dir string, o RunOptions) ([]Check, error) {
	run, err := runs.Read(dir)
	if err != nil {
		return nil, err
	}
	v := verifier{run: run}
	v.addBoolCheck("the run ended without an error", run.Info.Status == runs.StatusDone, "status is %q %s", run.Info.Status, run.Info.Error)
	v.addBoolCheck("every line of the folder can be read", len(run.Problems) == 0, "%s cannot be read: %v", english.FormatCount(len(run.Problems), "line"), run.Problems)
	v.checkProcesses()
	if err := v.checkConfigs(); err != nil {
		return v.checks, err
	}
	v.checkDataUnchanged()
	owners, err := v.readAndCheckOwners()
	if err != nil {
		return v.checks, err
	}
	if err := v.checkStepOrder(owners); err != nil {
		return v.checks, err
	}
	if err := v.checkEpochSums(); err != nil {
		return v.checks, err
	}
	return v.checks, v.checkScores(ctx, o.Data)
}

type verifier struct {
	run    runs.Run
	checks []Check
}

// addBoolCheck adds a check without a number.
func (v *verifier) addBoolCheck(name string, ok bool, format string, a ...any) {
	v.checks = append(v.checks, Check{Name: name, OK: ok, Value: math.NaN(), Limit: math.NaN(), Detail: fmt.Sprintf(format, a...)})
}

// addEqualityCheck checks that got equals want. The tolerance is relative to want if |want| > 1,
// else absolute.
func (v *verifier) addEqualityCheck(name string, got, want, tolerance float64, detail string) {
	v.checks = append(v.checks, Check{
		Name: name, OK: math.Abs(got-want) <= tolerance*math.Max(1, math.Abs(want)), Value: got, Limit: want, Detail: detail,
	})
}

// checkProcesses checks that each rank has a step file, that the number of processes is as in
// run.json (by default one per rank), and that all recorded the same world size.
func (v *verifier) checkProcesses() {
	world := v.run.Info.Workers
	pids, ranks := map[string]bool{}, map[int]bool{}
	agree := true
	for _, w := range v.run.Workers {
		pids[fmt.Sprintf("%s/%d", w.Host, w.PID)] = true
		ranks[w.Rank] = true
		agree = agree && w.WorldSize == world
	}
	v.addBoolCheck("each rank wrote its steps file", len(ranks) == world, "%d of %d ranks", len(ranks), world)
	processes, claim := world, "each rank was a separate process"
	if n := v.run.Info.Processes; n > 0 && n != world {
		processes, claim = n, "the ranks were in "+english.FormatCount(n, "process")
	}
	v.addBoolCheck(claim, len(pids) == processes, "%d processes for %d ranks", len(pids), world)
	v.addBoolCheck("all ranks agree on the world size", agree, "run.json says %d", world)
}

// epochLossTolerance is the largest difference between a training loss in epochs.csv and the mean loss
// of the steps, relative to the mean of their absolute values. Both add up the same float64 values,
// in another order: for a million steps, they differ by less than 1e-10.
const epochLossTolerance = 1e-9

// epochStepSums adds up the steps of all ranks in one epoch.
type epochStepSums struct {
	samples        int
	loss, absolute float64 // sums over the samples of the loss and of its absolute value
}

// checkEpochSums compares each epoch's samples and losses in epochs.csv with the sums over the steps
// of all ranks.
func (v *verifier) checkEpochSums() error {
	sums := map[int]epochStepSums{}
	for rank := range v.run.Info.Workers {
		_, steps, _, err := runs.ReadSteps(v.run.Dir, rank)
		if err != nil {
			return err
		}
		// Count a step once if a resumed run has repeated it.
		done := map[int]runs.Step{}
		for _, s := range steps {
			done[s.Step] = s
		}
		for _, s := range done {
			if s.Samples == 0 { // left out by the strategy, or counted by the first stage of a pipeline
				continue
			}
			sum, samples := sums[s.Epoch], float64(s.Samples)
			sums[s.Epoch] = epochStepSums{sum.samples + s.Samples, sum.loss + s.Loss*samples, sum.absolute + math.Abs(s.Loss)*samples}
		}
	}
	info := v.run.Info
	for _, e := range v.run.Epochs {
		name := fmt.Sprintf("epoch %d: ", e.Epoch)
		v.addEqualityCheck(name+"samples", float64(sums[e.Epoch].samples), float64(e.Samples), 0, "counted in the steps of all ranks against epochs.csv")
		v.addEqualityCheck(name+"throughput", e.SamplesPerSecond, float64(e.Samples)/e.Seconds, 1e-9, "samples/s against samples and seconds of epochs.csv")
		v.checkTrainLoss(e, sums[e.Epoch])
		full := e.Samples - e.PaddingSamples
		dropped := info.SamplesPerEpoch - full
		v.addBoolCheck(name+"no sample lost", full <= info.SamplesPerEpoch && dropped < info.GlobalBatch && (dropped == 0 || v.dropsLastBatch()),
			"%d distinct samples of %d", full, info.SamplesPerEpoch)
	}
	return nil
}

// checkTrainLoss compares epoch e's training loss in epochs.csv with the mean over all samples of
// its steps.
func (v *verifier) checkTrainLoss(e runs.Epoch, steps epochStepSums) {
	name := fmt.Sprintf("epoch %d: training loss", e.Epoch)
	if steps.samples == 0 || steps.samples != e.Samples {
		v.addBoolCheck(name, true, "not recomputed: the steps of %d of %d samples are recorded", steps.samples, e.Samples)
		return
	}
	n := float64(steps.samples)
	got := steps.loss / n
	ok := math.Abs(got-e.TrainLoss) <= epochLossTolerance*steps.absolute/n || math.IsNaN(got) && math.IsNaN(e.TrainLoss)
	v.checks = append(v.checks, Check{Name: name, OK: ok, Value: got, Limit: e.TrainLoss, Detail: "mean over the samples of the steps of all ranks against epochs.csv"})
}

func (v *verifier) dropsLastBatch() bool {
	d, ok := v.run.Info.Config["data"].(map[string]any)
	drop, _ := d["drop_last"].(bool)
	return ok && drop
}

// checkScores evaluates the newest checkpoint again, and compares the scores with run.json and
// epochs.csv. dataPath is the path of the data. If it is empty, the path in the run's config is used.
func (v *verifier) checkScores(ctx context.Context, dataPath string) error {
	test := v.run.Info.Test
	if test == nil {
		v.addBoolCheck("the run was evaluated", false, "run.json contains no test scores")
		return nil
	}
	p, err := train.OpenPredictor(ctx, v.run.Dir, dataPath)
	var damaged *weights.DamagedError
	if errors.As(err, &damaged) || errors.Is(err, train.ErrNoCheckpoint) {
		v.addBoolCheck("the checkpoint loads", false, "%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()
	v.addBoolCheck("the checkpoint loads", true, "%s", filepath.Join(v.run.Dir, p.Checkpoint))
	exact, near := 1e-9, 1e-5
	if p.Note != "" { // another engine rounds differently
		v.addBoolCheck("another engine evaluates", true, "%s", p.Note)
		exact, near = 0.01, 0.01
	}
	v.addEqualityCheck("training samples", float64(p.TrainLen()), float64(v.run.Info.SamplesPerEpoch), 0, "of the data against run.json")
	s, err := p.Score(ctx)
	if err != nil {
		return err
	}
	for _, e := range v.run.Epochs {
		if e.Epoch != p.Epoch {
			continue
		}
		of := fmt.Sprintf("from the checkpoint against epoch %d of epochs.csv", e.Epoch)
		if s.Total() > 0 { // pixels were counted
			v.addEqualityCheck("IoU", s.IoU(), e.IoU, exact, of)
			v.addEqualityCheck("Dice", s.Dice(), e.Dice, exact, of)
			v.checkClassScores(s, e.Epoch, exact)
		}
		if s.Hits != nil {
			v.addEqualityCheck("accuracy", s.Hits.Accuracy(), e.ValAccuracy, exact, of)
		}
		v.addEqualityCheck("validation loss", s.Loss, e.ValLoss, near, of)
	}
	v.addEqualityCheck(v.run.Info.EvaluatedPart()+" samples", float64(s.Samples), float64(test.Samples), 0, "evaluated")
	if s.Total() > 0 {
		v.addEqualityCheck("IoU of run.json", s.IoU(), test.IoU, exact, "from the checkpoint")
		constant, _ := s.ConstantScores()
		v.addEqualityCheck("IoU of the better constant predictor", constant, test.IoUConstant, exact, "recounted")
	}
	if s.Hits != nil {
		v.addEqualityCheck("accuracy of run.json", s.Hits.Accuracy(), test.Accuracy, exact, "from the checkpoint")
		v.addEqualityCheck("accuracy of the most frequent class", s.Hits.ConstantAccuracy(), test.AccuracyConstant, exact, "recounted")
	}
	return nil
}

// checkClassScores compares the IoU of each class in s with the IoU in classes.csv for the epoch.
func (v *verifier) checkClassScores(s train.Scores, epoch int, tolerance float64) {
	if s.Classes == nil {
		return
	}
	recorded := slices.DeleteFunc(slices.Clone(v.run.Classes), func(c runs.ClassScores) bool { return c.Epoch != epoch })
	if n := s.Classes.Classes; len(recorded) != n {
		v.addBoolCheck("classes", false, "classes.csv has %d rows of epoch %d, want %d", len(recorded), epoch, n)
		return
	}
	for k, c := range recorded {
		if iou, _ := s.Classes.ClassScores(k); iou == iou { // else no mask has the class
			v.addEqualityCheck("IoU of "+c.Name, iou, c.IoU, tolerance, fmt.Sprintf("from the checkpoint against epoch %d of classes.csv", epoch))
		}
	}
}
