package train

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/runs"
)

// classes returns the config of a classification that trains fast.
func classes() Config {
	c := tiny()
	c.Data = DataConfig{Kind: data.KindShapes, Count: 45, Edge: 16, Classes: 4, TestImages: 11, Augment: data.Augment{Flip: true}}
	c.Optimizer.LearningRate = 0.01
	c.Batch = 3
	return c
}

// TestClassification: the accuracy is over the samples of all ranks and the complete held-out
// set. It is recorded wherever segmentation records IoU, and can be verified. A run resumed
// within an epoch also counts the samples before the interruption.
func TestClassification(t *testing.T) {
	for _, device := range []string{"cpu", "reference"} {
		cfg := classes()
		cfg.Engine.Device = device
		whole := filepath.Join(t.TempDir(), "whole")
		var said []string
		res, err := trainAll(t, cfg, 2, WorkerOptions{Dir: whole, Build: smoothed, Log: func(l string) { said = append(said, l) }})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range res[0].Epochs {
			// 34 samples for 2 × 3 are 6 steps of 6, and 11 are held out.
			for name, v := range map[string]float64{"accuracy": e.Accuracy * 36, "val_accuracy": e.ValAccuracy * 11} {
				if !(v >= 0) || math.Abs(v-math.Round(v)) > 1e-9 {
					t.Errorf("%s of epoch %d is no count: %g", name, i+1, v)
				}
			}
			if !math.IsNaN(e.IoU) || e.Accuracy != res[1].Epochs[i].Accuracy {
				t.Errorf("epoch %+v, rank 1 has accuracy %g", e, res[1].Epochs[i].Accuracy)
			}
		}
		text := strings.Join(said, "\n")
		for _, want := range []string{"untrained accuracy ", "constant 0.", ", val accuracy "} {
			if !strings.Contains(text, want) || strings.Contains(text, "IoU") {
				t.Errorf("the log lacks %q or has IoU:\n%s", want, text)
			}
		}
		if h := SummarizeTest(res[0].Test); !strings.HasPrefix(h, "accuracy 0.") || res[0].Test.Task != string(model.Classification) {
			t.Errorf("headline %q, %+v", h, res[0].Test)
		}
		checks, err := VerifyRun(t.Context(), whole, "")
		if err != nil {
			t.Fatal(err)
		}
		counted := 0
		for _, c := range checks {
			if strings.Contains(c.Name, "accuracy") {
				counted++
			}
			if !c.OK && c.Name != "each rank was a separate process" {
				t.Error(c)
			}
		}
		if counted != 3 {
			t.Errorf("%d checks of the accuracy, want 3", counted)
		}
		parts := filepath.Join(t.TempDir(), "parts")
		if err := interruptedAt(t, cfg, 2, WorkerOptions{Dir: parts, Build: smoothed}, 2, 2); err == nil {
			t.Fatal("it was not interrupted")
		}
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: parts, Build: smoothed, Resume: true}); err != nil {
			t.Fatal(err)
		}
		if outcome(t, whole) != outcome(t, parts) {
			t.Errorf("%s: the resumed run differs", device)
		}
	}
}

// TestScoresOfShards: the scores are over the complete held-out set for any number of ranks.
func TestScoresOfShards(t *testing.T) {
	var want runs.Test
	for _, workers := range []int{1, 2, 3} {
		cfg := classes()
		cfg.Epochs, cfg.Optimizer.LearningRate = 1, 1e-12 // weights that stay
		res, err := trainAll(t, cfg, workers, WorkerOptions{Build: smoothed})
		if err != nil {
			t.Fatal(err)
		}
		got := res[workers-1].Test
		if workers == 1 {
			want = got
		}
		if got.Samples != 11 || got.Accuracy != want.Accuracy || got.AccuracyConstant != want.AccuracyConstant || math.Abs(got.Loss-want.Loss) > 1e-6 {
			t.Errorf("%d workers: %+v, one: %+v", workers, got, want)
		}
	}
}

// TestLosses compares the losses of the evaluation with values computed by hand.
func TestLosses(t *testing.T) {
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	// Equal logits: the logarithm of the number of classes, however large they are.
	near("cross-entropy", softmaxCrossEntropy([]float32{1e4, 1e4, 1e4, 1e4}, []float32{2}), math.Log(4))
	near("cross-entropy", softmaxCrossEntropy([]float32{0, 3}, []float32{1}), math.Log1p(math.Exp(-3)))
	near("L1", meanAbsoluteError([]float32{1, -2, 4}, []float32{0, 0, 5}), 4./3)
	near("BCE", bceWithLogits([]float32{0, 0}, []float32{1, 0}), math.Ln2)
}

// TestWrongTask: a network whose target shape does not match the data is an error before
// training, which contains both shapes.
func TestWrongTask(t *testing.T) {
	cfg := classes() // with a U-Net
	if _, err := trainAll(t, cfg, 1, WorkerOptions{}); err == nil || !strings.Contains(err.Error(), "[3 16 16]") || !strings.Contains(err.Error(), "masks") {
		t.Errorf("a U-Net for classes: %v", err)
	}
	cfg.Model = ModelConfig{Kind: model.KindResNet, Classes: 2, Base: 4, Blocks: []int{1, 1}, Stem: "cifar"}
	if _, err := trainAll(t, cfg, 1, WorkerOptions{}); err == nil || !strings.Contains(err.Error(), "class") {
		t.Errorf("2 outputs for 4 classes: %v", err)
	}
}

// TestLastMapOfOnePixel: a ResNet whose last feature map is 1×1 cannot train with a batch of 1,
// for which batch norm has no variance. The error says so.
func TestLastMapOfOnePixel(t *testing.T) {
	cfg := classes()
	cfg.Model = ModelConfig{Kind: "resnet", Base: 4, Blocks: []int{1, 1, 1}, Classes: 4}
	cfg.Epochs = 1
	if _, err := trainAll(t, cfg, 1, WorkerOptions{}); err != nil {
		t.Error(err)
	}
	cfg.Batch = 1
	if _, err := trainAll(t, cfg, 1, WorkerOptions{}); err == nil || !strings.Contains(err.Error(), "so the variance is undefined: use a larger batch or image") {
		t.Errorf("a batch of 1: %v", err)
	}
}

// smoothed is a small classifier without batch norm.
func smoothed(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	x := g.ReLU(g.Conv("conv", image, nn.Convolution{Out: 6, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
	z := g.Linear("head", g.GlobalAvgPool(x), nn.Dense{Out: 4, Bias: true})
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Inputs()[1].Node, 0.1))
	return z
}
