package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/runs"
)

// trainStages returns the parameters and running statistics of each rank after the given number
// of optimizer steps.
func trainStages(t *testing.T, cfg Config, workers, steps int) []map[string][]float64 {
	t.Helper()
	params, errs := make([]map[string][]float64, workers), make([]error, workers)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(workers) {
		wg.Go(func() {
			tr, err := New(t.Context(), cfg, g, WorkerOptions{})
			if err == nil {
				err = tr.TrainTo(t.Context(), steps)
			}
			if err == nil {
				params[rank], err = tr.Parameters()
			}
			if err == nil {
				for _, name := range tr.runningStatNames() {
					var e error
					params[rank][name], e = tr.train.Get(name)
					err = errors.Join(err, e)
				}
			}
			if tr != nil {
				err = errors.Join(err, tr.Close())
			}
			if err != nil {
				errs[rank] = fmt.Errorf("rank %d: %w", rank, err)
				_ = g.Close() // so that the other ranks end
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return params
}

// TestPipelineEqualsOneWorker: the stages of a pipeline compute what one worker computes with
// the same batch and micro-batches, for every kind of network, and with updates that need norms
// over all stages.
func TestPipelineEqualsOneWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const optimizerSteps = 5
	unet := exactConfig()
	normed := exactConfig()
	normed.Model.Norm, normed.Model.Bias = "batch", false
	normed.Optimizer.ClipNorm = 0.01 // well below the norm of the gradients
	lamb := exactConfig()
	lamb.Optimizer.Name, lamb.Optimizer.LearningRate, lamb.Optimizer.WeightDecay = "lamb", 0.01, 0.01
	fast := exactConfig()
	fast.Engine.Device, fast.Engine.Precision = "cpu", "fp32"
	classes := exactConfig()
	classes.Model = ModelConfig{Kind: "resnet", Base: 4, Blocks: []int{1, 1}, Classes: 4, Stem: "cifar"}
	classes.Data = DataConfig{Kind: "shapes", Count: 25, Edge: 16, Classes: 4, TestImages: 1}
	cases := []struct {
		name      string
		cfg       Config
		micro     []int
		workers   []int
		tolerance float64
	}{
		{"U-Net", unet, []int{1, 3}, []int{1, 3}, toleranceFloat64},
		{"batch norm, clipping", normed, []int{3}, []int{3}, toleranceFloat64},
		{"LAMB", lamb, []int{2}, []int{3}, toleranceFloat64},
		{"CPU engine", fast, []int{4}, []int{2, 3}, 1e-5},
		{"ResNet", classes, []int{2}, []int{4}, toleranceFloat64},
	}
	if underRace { // they start the same goroutines
		cases = cases[1:2]
	}
	for _, c := range cases {
		for _, micro := range c.micro {
			cfg := c.cfg
			cfg.Accumulate = micro
			want := trainStages(t, cfg, 1, optimizerSteps)[0]
			for _, workers := range c.workers {
				for _, schedule := range []string{"gpipe", "1f1b"} {
					cfg.Strategy = parseStrategy(t, "pipeline:schedule="+schedule)
					for rank, got := range trainStages(t, cfg, workers, optimizerSteps) {
						if d := furthest(want, got); !(d <= c.tolerance) {
							t.Errorf("%s, %s, %d micro-batches, %d stages, rank %d: the parameters differ by %g", c.name, schedule, micro, workers, rank, d)
						}
					}
				}
			}
		}
	}
}

// TestPipelineInRunFolder: out.log describes the stages and their bubbles beside the formula,
// the steps have each stage's time of waiting, only rank 0 counts samples, and all ranks, of which
// only the last one computes the loss, record the mean loss of the micro-batches.
func TestPipelineInRunFolder(t *testing.T) {
	cfg := tiny()
	cfg.Strategy, cfg.Epochs, cfg.Accumulate = parseStrategy(t, "pipeline"), 1, 3
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "out.log"))
	if err != nil {
		t.Fatal(err)
	}
	stages := regexp.MustCompile(`strategy pipeline, stages of layers 1 to \d+ \(\d+ %\), \d+ to 13 \(\d+ % of the operations\)`)
	bubble := regexp.MustCompile(`pipeline bubble: the stages were idle for (\d+\.\d) %, (\d+\.\d) % of the steps; \(S−1\)/\(M\+S−1\) is 25.0 %`) // 1/(3+1)
	if !stages.Match(text) || !bubble.Match(text) {
		t.Errorf("out.log lacks %s or %s:\n%s", stages, bubble, text)
	}
	var losses []float64 // of the steps of rank 0
	for rank := range 2 {
		_, steps, _, err := runs.ReadSteps(dir, rank)
		if err != nil || len(steps) != 3 { // 17 training samples: 9 micro-batches of 2
			t.Fatalf("rank %d: %d steps, error %v", rank, len(steps), err)
		}
		for _, s := range steps {
			if want := []int{6, 0}[rank]; s.Samples != want || !(s.Loss > 0) || !(s.Wait > 0) || !(s.AllReduce > 0) {
				t.Errorf("rank %d, step %d: %d samples, loss %g, waited %g s of %g s", rank, s.Step, s.Samples, s.Loss, s.Wait, s.AllReduce)
			}
			if rank == 0 {
				losses = append(losses, s.Loss)
			} else if s.Loss != losses[s.Step-1] {
				t.Errorf("rank %d, step %d: loss %g, want %g as on rank 0", rank, s.Step, s.Loss, losses[s.Step-1])
			}
		}
	}
	if got, want := formatBubbles([]float64{0.25, 0}, 0.5), "pipeline bubble: the stages were idle for 25.0 %, 0.0 % of the steps; (S−1)/(M+S−1) is 50.0 %"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPipelineSendsTheFormula: the stages send what the formula in run.json says, in every optimizer
// step but the last, which also includes the copy of the parameters at the end of the epoch. The
// loss, the headers of messages and pings are less than 2,000 bytes per step.
func TestPipelineSendsTheFormula(t *testing.T) {
	for _, workers := range []int{2, 3} {
		for _, schedule := range []string{"gpipe", "1f1b"} {
			cfg := tiny()
			cfg.Strategy, cfg.Epochs = parseStrategy(t, "pipeline:schedule="+schedule), 1
			cfg.Data.Count, cfg.Data.TestImages, cfg.Batch, cfg.Accumulate = 24, 6, 2, 3
			dir := filepath.Join(t.TempDir(), "run")
			if _, err := trainAll(t, cfg, workers, WorkerOptions{Dir: dir}); err != nil {
				t.Fatal(err)
			}
			run, err := runs.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			sum, n := 0.0, 0.0
			for rank := range workers {
				_, steps, _, err := runs.ReadSteps(dir, rank)
				if err != nil {
					t.Fatal(err)
				}
				if len(steps) != 3 {
					t.Fatalf("rank %d did %d steps, want 3 for 18 samples", rank, len(steps))
				}
				for _, s := range steps[:len(steps)-1] {
					sum += float64(s.Sent)
					n++
				}
			}
			if got, want := sum/n, run.Info.SentFormula; want < 10_000 || got < want || got > want+2000 {
				t.Errorf("%d stages, %s: %g bytes were sent per step and worker, want %g", workers, schedule, got, want)
			}
		}
	}
}

// TestPipelineTrace: the trace of a stage has the passes of each profiled micro-batch, in the order
// of schedule 1f1b, and the waits for other stages. Two stages run 2 optimizer steps of 3
// micro-batches; the backward passes 2 to 6 are profiled.
func TestPipelineTrace(t *testing.T) {
	cfg := tiny()
	cfg.Strategy, cfg.Epochs = parseStrategy(t, "pipeline"), 1
	cfg.Engine.Device, cfg.Engine.Precision = "cpu", "fp32"
	cfg.Data.Count, cfg.Data.TestImages, cfg.Batch, cfg.Accumulate = 18, 6, 2, 3
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Profile: Profile{First: 2, Steps: 5}}); err != nil {
		t.Fatal(err)
	}
	const end = "wait for the end of the other stages; "
	for rank, want := range []string{
		"forward of micro-batch 3; wait for gradients of micro-batch 2; backward of micro-batch 2; wait for gradients of micro-batch 3; backward of micro-batch 3; " + end +
			"forward of micro-batch 1; forward of micro-batch 2; wait for gradients of micro-batch 1; backward of micro-batch 1; " +
			"forward of micro-batch 3; wait for gradients of micro-batch 2; backward of micro-batch 2; wait for gradients of micro-batch 3; backward of micro-batch 3; ",
		"wait for activations of micro-batch 2; forward of micro-batch 2; backward of micro-batch 2; " +
			"wait for activations of micro-batch 3; forward of micro-batch 3; backward of micro-batch 3; " + end +
			"wait for activations of micro-batch 1; forward of micro-batch 1; backward of micro-batch 1; " +
			"wait for activations of micro-batch 2; forward of micro-batch 2; backward of micro-batch 2; " +
			"wait for activations of micro-batch 3; forward of micro-batch 3; backward of micro-batch 3; ",
	} {
		if got := stageSpans(t, filepath.Join(dir, fmt.Sprintf("trace-%d.json", rank))); got != want {
			t.Errorf("rank %d: got spans\n%s, want\n%s", rank, got, want)
		}
	}
}

// stageSpans returns the names of the spans in row "stage" of a trace, in the order of their starts.
// Two spans must not overlap.
func stageSpans(t *testing.T, path string) (names string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents []struct {
			Name, Ph string
			Tid      int
			Ts, Dur  float64
			Args     struct{ Name string }
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	row, at := -1, 0.0
	for _, e := range file.TraceEvents {
		switch {
		case e.Ph == "M" && e.Args.Name == "stage":
			row = e.Tid
		case e.Ph == "X" && e.Tid == row:
			if e.Ts < at-0.01 { // microseconds, rounded
				t.Errorf("%s: %s begins at %g, before the previous span ends at %g", path, e.Name, e.Ts, at)
			}
			at = e.Ts + e.Dur
			names += e.Name + "; "
		}
	}
	return names
}
