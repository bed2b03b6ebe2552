package train

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// asynchronousStrategies returns strategies whose workers may be in different steps.
func asynchronousStrategies() []string {
	return []string{"paramserver:max_staleness=2", "paramserver:max_staleness=4:servers=2", "async_peer"}
}

// TestAsynchronousTraining: a run with an asynchronous strategy learns, can be resumed after an
// epoch, and records the staleness of each step.
func TestAsynchronousTraining(t *testing.T) {
	for _, text := range asynchronousStrategies() {
		t.Run(text, func(t *testing.T) {
			cfg := tiny()
			cfg.Strategy, cfg.Epochs = parseStrategy(t, text), 3
			dir := filepath.Join(t.TempDir(), "run")
			res, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if first, last := res[0].Epochs[0].TrainLoss, res[0].Epochs[2].TrainLoss; !(last < first) {
				t.Errorf("the training loss went from %g to %g", first, last)
			}
			cfg.Epochs = 4
			if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true}); err != nil {
				t.Fatal(err)
			}
			for rank := range 2 {
				_, steps, problems, err := runs.ReadSteps(dir, rank)
				if err != nil || len(problems) > 0 {
					t.Fatal(err, problems)
				}
				for _, s := range steps {
					if s.Staleness < 0 || s.Staleness > cfg.Strategy.MaxStaleness && text != "async_peer" {
						t.Errorf("step %d of rank %d has staleness %d", s.Step, rank, s.Staleness)
					}
					if s.Samples == 0 || s.Loss <= 0 {
						t.Errorf("step %d of rank %d has %d samples and loss %g", s.Step, rank, s.Samples, s.Loss)
					}
				}
				if len(steps) != 4*5 { // 22 samples, 2 × 2 per step
					t.Errorf("rank %d has %d steps, want 20", rank, len(steps))
				}
			}
			wantTrainLossVerified(t, dir, cfg.Epochs)
		})
	}
}

// TestAsynchronousInterrupt: an interrupted run ends with the last complete epoch, and goes on
// from there.
func TestAsynchronousInterrupt(t *testing.T) {
	for _, text := range asynchronousStrategies() {
		cfg := tiny()
		cfg.Strategy, cfg.Epochs = parseStrategy(t, text), 2
		dir := filepath.Join(t.TempDir(), "run")
		if err := interruptedAt(t, cfg, 2, WorkerOptions{Dir: dir}, 2, 2); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: interrupted in epoch 2: %v", text, err)
		}
		res, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true})
		if err != nil || len(res[0].Epochs) != 2 {
			t.Errorf("%s: resumed: %d epochs, error %v", text, len(res[0].Epochs), err)
		}
	}
}

// TestAsynchronousLearningRate: the learning rate is scaled for the batches that an update uses.
func TestAsynchronousLearningRate(t *testing.T) {
	for text, want := range map[string]float64{"ddp": 4, "paramserver": 4, "paramserver:max_staleness=3": 1, "async_peer": 4} {
		cfg := tiny()
		cfg.Strategy, cfg.Epochs, cfg.Schedule.Scaling = parseStrategy(t, text), 1, "linear"
		res, err := trainAll(t, cfg, 4, WorkerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := res[0].Epochs[0].LearningRate / cfg.Optimizer.LearningRate; got != want {
			t.Errorf("%s: the learning rate of 4 workers is scaled by %g, want %g", text, got, want)
		}
	}
}

// TestSentBytesAreRecorded: each step records what the transport has sent, which is about what
// the strategy's formula in run.json says; requests and headers are the rest.
func TestSentBytesAreRecorded(t *testing.T) {
	for _, text := range []string{
		"ddp", "ddp:no_communication=true", "zero1", "paramserver", "paramserver:max_staleness=2", "local_sgd:steps=1", "async_peer",
		"ddp:gradient_compression=fp16", "ddp:gradient_compression=bf16",
	} {
		cfg := tiny()
		cfg.Strategy, cfg.Epochs = parseStrategy(t, text), 1
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		run, err := runs.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		sum, n := 0.0, 0.0
		for rank := range 2 {
			_, steps, _, err := runs.ReadSteps(dir, rank)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				sum += float64(s.Sent)
				n++
			}
		}
		want := run.Info.SentFormula
		most := 1.05 * want
		if cfg.Strategy.IsAsynchronous() { // the parameters once more, at the end of the 5 steps
			most += want / 5
		}
		if got := sum / n; got < 0.95*want || got > most+1000 || (want == 0) != (text == "ddp:no_communication=true") {
			t.Errorf("%s: %g bytes were sent per step and worker, want %g", text, got, want)
		}
	}
}

// TestBytesOfNCCLAreNotCounted: the group counts only what the hosts exchange beside NCCL, which is
// not comparable with the formula of ddp.
func TestBytesOfNCCLAreNotCounted(t *testing.T) {
	tr, err := New(t.Context(), tiny(), collective.Single(), WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := tr.strategy
	defer func() {
		tr.strategy = own
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}()
	if line := tr.describeSentBytes(100); line != "" {
		t.Errorf("ddp without options: got log line %q, want none", line)
	}
	tr.strategy = &strategy.NCCL{}
	if n, f := tr.countSentBytes(), tr.expectedSentBytes(); n != 0 || f != 0 {
		t.Errorf("NCCL: %d bytes are counted and the formula gives %g, want 0", n, f)
	}
	if line := tr.describeSentBytes(0); !strings.Contains(line, "not counted, because NCCL") {
		t.Errorf("NCCL: got log line %q", line)
	}
}
