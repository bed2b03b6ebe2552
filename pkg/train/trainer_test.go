package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/nn"
	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/checkpoint"
	"lockstep/pkg/weights"
)

// tiny returns a config that trains an epoch in well under a second.
func tiny() Config {
	c := DefaultConfig()
	c.Name = "tiny"
	c.Model = ModelConfig{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch"}
	c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages = 22, 16, 16, 5
	c.Data.Augment = data.Augment{Flip: true, Rotate: true}
	c.Batch = 2
	c.Epochs = 3
	return c
}

// trainAll trains with the given number of workers in this process, and returns their results.
func trainAll(t *testing.T, cfg Config, workers int, options WorkerOptions) ([]Result, error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	results := make([]Result, workers)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(workers) {
		wg.Go(func() {
			if err := trainOne(ctx, cfg, g, options, &results[rank]); err != nil {
				cancel(fmt.Errorf("rank %d: %w", rank, err))
			}
		})
	}
	wg.Wait()
	return results, context.Cause(ctx)
}

func trainOne(ctx context.Context, cfg Config, g collective.Group, options WorkerOptions, res *Result) error {
	tr, err := New(ctx, cfg, g, options)
	if err != nil {
		return err
	}
	*res, err = tr.Run(ctx)
	return errors.Join(err, tr.Close())
}

func TestTrainingLearns(t *testing.T) {
	cfg := tiny()
	cfg.Data.Height, cfg.Data.Width = 32, 32
	cfg.Epochs = 12
	cfg.Optimizer.LearningRate = 0.01
	res, err := trainAll(t, cfg, 1, WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	test := res[0].Test
	first, last := res[0].Epochs[0].TrainLoss, res[0].Epochs[11].TrainLoss
	t.Logf("train loss %.4f → %.4f, IoU %.4f, constant %.4f, untrained %.4f", first, last, test.IoU, test.IoUConstant, test.IoUUntrained)
	if !(last < 0.8*first) || !(test.IoU > test.IoUConstant) || !(test.IoU > test.IoUUntrained) {
		t.Errorf("it did not learn: train loss %v → %v, %+v", first, last, test)
	}
}

// All ranks report the same scores, and padding is counted: 17 training samples in batches of 2
// on 2 workers are 5 steps of 4 samples, 3 of them repeated.
func TestTwoWorkers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	res, err := trainAll(t, tiny(), 2, WorkerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if res[0].Test.IoU != res[1].Test.IoU || res[0].Test.Samples != 5 {
		t.Errorf("ranks disagree or lost samples: %+v and %+v", res[0].Test, res[1].Test)
	}
	if e := res[0].Epochs[0]; e.Samples != 20 || e.PaddingSamples != 3 {
		t.Errorf("epoch of 17 samples: %+v", e)
	}
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if run.Info.Status != runs.StatusDone || run.Info.Workers != 2 || len(run.Epochs) != 3 || run.Info.Test == nil || len(run.Workers) != 2 {
		t.Errorf("run folder: %+v", run)
	}
}

// A run of 4 epochs ends with the same bits as a run of 2 epochs that is resumed for 2 more.
func TestResumeBitForBit(t *testing.T) {
	for _, device := range []string{"cpu", "reference"} {
		t.Run(device, func(t *testing.T) {
			cfg := tiny()
			cfg.Engine.Device = device
			cfg.Epochs = 4
			whole := filepath.Join(t.TempDir(), "whole")
			if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: whole}); err != nil {
				t.Fatal(err)
			}
			parts := filepath.Join(t.TempDir(), "parts")
			cfg.Epochs = 2
			if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: parts}); err != nil {
				t.Fatal(err)
			}
			cfg.Epochs = 4
			res, err := trainAll(t, cfg, 2, WorkerOptions{Dir: parts, Resume: true})
			if err != nil {
				t.Fatal(err)
			}
			if len(res[0].Epochs) != 4 {
				t.Errorf("resumed run knows %d epochs", len(res[0].Epochs))
			}
			a, b := tensorsOf(t, whole), tensorsOf(t, parts)
			if len(a) == 0 || len(a) != len(b) {
				t.Fatalf("%d and %d tensors", len(a), len(b))
			}
			for name, x := range a {
				for i := range x {
					if math.Float64bits(x[i]) != math.Float64bits(b[name][i]) {
						t.Fatalf("%s[%d] is %v and %v", name, i, x[i], b[name][i])
					}
				}
			}
		})
	}
}

// A run that ended before its first checkpoint, or never began, is resumed
// from the beginning.
func TestResumeFromNothing(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 1
	dir := filepath.Join(t.TempDir(), "run")
	for range 2 {
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true}); err != nil {
			t.Fatal(err)
		}
		run, err := runs.Read(dir)
		if err != nil || run.Info.Status != runs.StatusDone || len(run.Epochs) != 1 {
			t.Fatalf("%+v, %v", run, err)
		}
		if err := os.RemoveAll(filepath.Join(dir, checkpoint.FolderName)); err != nil {
			t.Fatal(err)
		}
	}
}

func tensorsOf(t *testing.T, dir string) map[string][]float64 {
	t.Helper()
	f, err := weights.Read(filepath.Join(dir, checkpoint.FolderName, "epoch-0004.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]float64{}
	for _, x := range f.Tensors {
		m[x.Name] = x.Float64s()
	}
	return m
}

// With running statistics the scores do not depend on the batch size of the
// evaluation: the same counts at 1 and at 8, on either engine.
func TestScoresAtAnyBatch(t *testing.T) {
	for _, device := range []string{"cpu", "reference"} {
		cfg := tiny()
		cfg.Engine.Device = device
		cfg.Data.TestImages, cfg.Data.Count = 11, 30
		tr, err := New(t.Context(), cfg, collective.InProcess(1)[0], WorkerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var scores []Scores
		for _, batch := range []int{1, 8} {
			image, target := tr.samples.Test.ImageShape(), tr.samples.Test.TargetShape()
			_, exe, err := tr.loadProgram(image, target, batch, nn.Eval, tr.train)
			if err != nil {
				t.Fatal(err)
			}
			s, err := evaluateShard(t.Context(), exe, tr.net.Task(), tr.samples.Test, 1, 0)
			if err := errors.Join(err, exe.Close()); err != nil {
				t.Fatal(err)
			}
			scores = append(scores, s)
		}
		if scores[0].Counts != scores[1].Counts || scores[0].Samples != 11 || scores[0].Total() != 11*16*16 {
			t.Errorf("%s: %+v at batch 1, %+v at batch 8", device, scores[0], scores[1])
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNaNStops(t *testing.T) {
	cfg := tiny()
	cfg.Optimizer.Name, cfg.Optimizer.LearningRate = "sgd", 1e30
	dir := filepath.Join(t.TempDir(), "run")
	_, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir})
	if !errors.Is(err, engine.ErrNonFinite) || !strings.Contains(err.Error(), "learning rate") {
		t.Errorf("a diverging run ended with %v", err)
	}
	run, rerr := runs.Read(dir)
	if rerr != nil || run.Info.Status != runs.StatusFailed || run.Info.Error == "" {
		t.Errorf("run folder: %+v, %v", run.Info, rerr)
	}
}

func TestRunErrors(t *testing.T) {
	used := filepath.Join(t.TempDir(), "run")
	cfg := tiny()
	cfg.Epochs = 1
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: used}); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.Model.Base = 6
	tooMany := cfg
	tooMany.Data.TestImages = 22
	odd := cfg
	odd.Data.Height = 30
	for _, c := range []struct {
		name    string
		cfg     Config
		options WorkerOptions
		want    []string
	}{
		{"a second run into the same folder", cfg, WorkerOptions{Dir: used}, []string{used, "--resume"}},
		{"a run of another network", other, WorkerOptions{Dir: used, Resume: true}, []string{"model.base 4, not 6", "use the config"}},
		{"nothing left to train on", tooMany, WorkerOptions{}, []string{"test_images is 22 of 22"}},
		{"a size the network cannot halve", odd, WorkerOptions{}, []string{"30", "32"}},
	} {
		_, err := trainAll(t, c.cfg, 1, c.options)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", c.name, err, part)
			}
		}
	}
}

func TestCheckpointsAreFewAndWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, tiny(), 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(dir, checkpoint.FolderName))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if got := strings.Join(names, " "); got != "epoch-0002.safetensors epoch-0003.safetensors" {
		t.Errorf("checkpoints left after 3 epochs, 2 kept: %s", got)
	}
}

// TestEpochDone: every rank calls the function after each epoch, whose row is in the run folder by then. Its
// error ends the run. Without a run folder, nothing is written.
func TestEpochDone(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 3
	dir := filepath.Join(t.TempDir(), "run")
	enough := errors.New("enough")
	var calls, rows atomic.Int64
	_, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, EpochDone: func(row runs.Epoch) error {
		calls.Add(1)
		if r, err := runs.Read(dir); err == nil && len(r.Epochs) >= row.Epoch {
			rows.Add(1)
		}
		if row.Epoch == 2 {
			return enough
		}
		return nil
	}})
	if !errors.Is(err, enough) || calls.Load() != 4 || rows.Load() < 2 {
		t.Errorf("%d calls, %d found their row, error %v; want 4 calls and an error", calls.Load(), rows.Load(), err)
	}

	t.Chdir(t.TempDir())
	epochs := 0
	if _, err := trainAll(t, cfg, 1, WorkerOptions{EpochDone: func(runs.Epoch) error { epochs++; return nil }}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 || epochs != 3 {
		t.Errorf("%d epochs, files %v, %v; want 3 and none", epochs, left, err)
	}
}
