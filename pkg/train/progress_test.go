package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/checkpoint"
	"lockstep/pkg/weights"
)

// outcome returns as text what must be equal for interrupted and uninterrupted runs: the bits
// of the last checkpoint, the epochs without their times, and each step of every rank once.
func outcome(t *testing.T, dir string) string {
	t.Helper()
	ranks, err := runs.Ranks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, rank := range ranks {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("steps-%d.jsonl", rank)))
		if err != nil {
			t.Fatal(err)
		}
		_, steps, _, err := runs.ReadSteps(dir, rank)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), `"step":`); lines != len(steps) {
			t.Errorf("rank %d has %d lines of %d steps", rank, lines, len(steps))
		}
	}
	return replayed(t, dir)
}

// replayed returns the outcome of a run that may have repeated steps: the last repetition
// counts.
func replayed(t *testing.T, dir string) string {
	t.Helper()
	r, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Info.Status != runs.StatusDone || len(r.Problems) > 0 || r.Info.Test == nil {
		t.Fatalf("%s: status %q, error %q, problems %v", dir, r.Info.Status, r.Info.Error, r.Problems)
	}
	var b strings.Builder
	for _, e := range r.Epochs {
		fmt.Fprintln(&b, e.Epoch, e.Samples, e.PaddingSamples, e.TrainLoss, e.ValLoss, e.IoU, e.Dice, e.LearningRate, e.Accuracy, e.ValAccuracy)
	}
	for rank := range r.Info.Workers {
		_, steps, problems, err := runs.ReadSteps(dir, rank)
		if err != nil || len(problems) > 0 {
			t.Error(err, problems)
		}
		for _, s := range steps {
			fmt.Fprintln(&b, rank, s.Epoch, s.Step, s.Samples, s.Loss)
		}
	}
	file, err := weights.Read(filepath.Join(dir, r.Info.Test.Checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range file.Tensors {
		fmt.Fprint(&b, "\n", w.Name)
		for _, v := range w.Float64s() {
			fmt.Fprintf(&b, " %x", math.Float64bits(v))
		}
	}
	return b.String()
}

// interruptedAt trains until a worker has done the given step of the given epoch, and then
// interrupts all workers.
func interruptedAt(t *testing.T, cfg Config, workers int, options WorkerOptions, epoch, step int) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	options.Progress = func(e, s, _ int) {
		if e == epoch && s == step {
			cancel()
		}
	}
	errs := make([]error, workers)
	results := make([]Result, workers)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(workers) {
		wg.Go(func() { errs[rank] = trainOne(ctx, cfg, g, options, &results[rank]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	all, err := checkpoint.ListPaths(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range all {
		all[i] = filepath.Base(name)
	}
	return all
}

// TestInterruptedWithinAnEpoch: an interrupted run completes the current step, and the resumed
// run continues with the next one. 17 samples are 5 steps per epoch on two workers.
func TestInterruptedWithinAnEpoch(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, tt := range []struct {
		device  string
		workers int
		every   int
		steps   []int // of epoch 2
		norms   bool  // synchronised
	}{
		{"cpu", 1, 1, []int{1, 5, 9}, false},
		{"cpu", 2, 1, []int{1, 2, 5}, false},
		{"cpu", 3, 9, []int{2}, false},
		{"reference", 2, 1, []int{3}, false},
		{"cpu", 2, 1, []int{2}, true},
	} {
		cfg := tiny()
		cfg.Engine.Device, cfg.Checkpoint.Every, cfg.SyncBatchNorm = tt.device, tt.every, tt.norms
		whole := filepath.Join(t.TempDir(), "whole")
		if _, err := trainAll(t, cfg, tt.workers, WorkerOptions{Dir: whole}); err != nil {
			t.Fatal(err)
		}
		want := outcome(t, whole)
		for _, step := range tt.steps {
			t.Run(fmt.Sprintf("%s, %d workers, step %d, norms %v", tt.device, tt.workers, step, tt.norms), func(t *testing.T) {
				options := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")}
				err := interruptedAt(t, cfg, tt.workers, options, 2, step)
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("it ended with %v", err)
				}
				// The other worker may be before or after the end of a step.
				names := namesIn(t, options.Dir)
				near := []string{}
				for s := step; s <= step+1; s++ {
					near = append(near, fmt.Sprintf("epoch-0002-step-%06d.safetensors", s))
				}
				if len(names) == 0 || !slices.Contains(near, names[len(names)-1]) || len(names) > 2 {
					t.Fatalf("checkpoints %v, want the newest of %v", names, near)
				}
				run, err := runs.Read(options.Dir)
				if err != nil || run.Info.Status != runs.StatusCanceled || len(run.Epochs) != 1 {
					t.Errorf("%v: status %q after %d epochs", err, run.Info.Status, len(run.Epochs))
				}
				options.Resume = true
				if _, err := trainAll(t, cfg, tt.workers, options); err != nil {
					t.Fatal(err)
				}
				if got := outcome(t, options.Dir); got != want {
					t.Errorf("it ended otherwise:\n%.2000s\nwant\n%.2000s", got, want)
				}
				// With a single end-of-epoch checkpoint, the one within the epoch is the second newest.
				if names := namesIn(t, options.Dir); tt.every == 1 && slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "step") }) || len(names) != 2 {
					t.Errorf("checkpoints %v are left", names)
				}
			})
		}
	}
}

// TestInterruptedAgainAndAgain: a run that is interrupted after every step has the outcome of
// an uninterrupted run.
func TestInterruptedAgainAndAgain(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 2
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: whole}); err != nil {
		t.Fatal(err)
	}
	options := WorkerOptions{Dir: filepath.Join(t.TempDir(), "run"), Resume: true}
	times := 0
	for epoch := 1; epoch <= cfg.Epochs; epoch++ {
		for step := 1; step <= 5; step++ {
			if err := interruptedAt(t, cfg, 2, options, epoch, step); err != nil {
				times++
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			}
		}
	}
	if times < 5 {
		t.Errorf("it was interrupted only %d times", times)
	}
	if _, err := trainAll(t, cfg, 2, options); err != nil {
		t.Fatal(err)
	}
	if got, want := outcome(t, options.Dir), outcome(t, whole); got != want {
		t.Errorf("it ended otherwise:\n%.2000s\nwant\n%.2000s", got, want)
	}
}

// TestCheckpointsEverySteps resumes a copy of the run folder made in the middle of an epoch, as
// after a kill, from the newest checkpoint within the epoch.
func TestCheckpointsEverySteps(t *testing.T) {
	cfg := tiny()
	cfg.Checkpoint.EverySteps = 2
	whole, killed := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "killed")
	var once sync.Once
	options := WorkerOptions{Dir: whole, Progress: func(epoch, step, _ int) {
		if epoch == 2 && step == 4 { // the checkpoint after step 4 comes only now
			once.Do(func() {
				if err := os.CopyFS(killed, os.DirFS(whole)); err != nil {
					t.Error(err)
				}
			})
		}
	}}
	if _, err := trainAll(t, cfg, 2, options); err != nil {
		t.Fatal(err)
	}
	want := outcome(t, whole)
	if names, want := namesIn(t, killed), []string{"epoch-0001.safetensors", "epoch-0002-step-000002.safetensors"}; !slices.Equal(names, want) {
		t.Fatalf("checkpoints in the middle are %v, want %v", names, want)
	}
	if names, want := namesIn(t, whole), []string{"epoch-0002.safetensors", "epoch-0003.safetensors"}; !slices.Equal(names, want) {
		t.Errorf("checkpoints at the end are %v, want %v", names, want)
	}
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: killed, Resume: true}); err != nil {
		t.Fatal(err)
	}
	if got := outcome(t, killed); got != want {
		t.Errorf("it ended otherwise:\n%.2000s\nwant\n%.2000s", got, want)
	}

	// A checkpoint of another number of steps or workers is an error.
	half := filepath.Join(t.TempDir(), "half")
	if err := interruptedAt(t, cfg, 2, WorkerOptions{Dir: half}, 3, 2); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cfg.Epochs = 2
	_, err := trainAll(t, cfg, 2, WorkerOptions{Dir: half, Resume: true})
	wantError(t, err, "resume "+half, "the checkpoint is in epoch 3, but epochs is 2: set epochs to at least 3")
}
