package train

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
)

// TestTrainBF16 trains a small network in bf16 and in fp32 on the generated cells. The losses of
// the epochs stay close: bf16 may differ from fp32 by no more than another seed does, with a
// margin of half. run.json has the precision and the instruction set, out.log the notice, and a
// run that is resumed has the same bits as one that is not.
func TestTrainBF16(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if _, err := engine.InstructionSets("bf16"); err != nil {
		t.Setenv("LOCKSTEP_CPU", "go") // slow, and the same roundings
	}
	cfg := tiny()
	cfg.Model.Base, cfg.Epochs = 16, 4
	train := func(cfg Config, dir string, resume bool) runs.Run {
		t.Helper()
		if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: resume}); err != nil {
			t.Fatal(err)
		}
		run, err := runs.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	folder := t.TempDir()
	full := train(cfg, filepath.Join(folder, "fp32"), false)
	cfg.Seed++
	other := train(cfg, filepath.Join(folder, "seed"), false)
	cfg.Seed--
	cfg.Engine.Precision = "bf16"
	dir := filepath.Join(folder, "bf16")
	low := train(cfg, dir, false)
	spread := 0.0
	for i := range full.Epochs {
		spread = max(spread, math.Abs(full.Epochs[i].TrainLoss-other.Epochs[i].TrainLoss))
	}
	for i, e := range low.Epochs {
		t.Logf("epoch %d: loss %.4f in bf16, %.4f in fp32, %.4f with another seed", i+1, e.TrainLoss, full.Epochs[i].TrainLoss, other.Epochs[i].TrainLoss)
		if d := math.Abs(e.TrainLoss - full.Epochs[i].TrainLoss); !(d <= 1.5*spread) || d == 0 {
			t.Errorf("epoch %d: loss %v in bf16, %v in fp32; another seed differs by %v at most", i+1, e.TrainLoss, full.Epochs[i].TrainLoss, spread)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil || !strings.Contains(string(text), `"precision": "bf16"`) || engine.ParseInstructionSet(low.Info.Engine) == "" {
		t.Errorf("run.json has no precision, or engine %q (%v)", low.Info.Engine, err)
	}
	if log, err := os.ReadFile(filepath.Join(dir, "out.log")); err != nil || !strings.Contains(string(log), "precision bf16: ") {
		t.Errorf("out.log has no note on bf16 (%v):\n%s", err, log)
	}
	resumed := filepath.Join(folder, "resumed")
	cfg.Epochs = 2
	train(cfg, resumed, false)
	cfg.Epochs = 4
	if again := train(cfg, resumed, true); again.Epochs[3].TrainLoss != low.Epochs[3].TrainLoss {
		t.Errorf("the resumed run has loss %v, want %v", again.Epochs[3].TrainLoss, low.Epochs[3].TrainLoss)
	}
}
