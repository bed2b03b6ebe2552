package optim_test

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"lockstep/pkg/optim"
)

// fixture is testdata/optimizers.json, which optimizers.py beside it writes
// with PyTorch.
type fixture struct {
	Vector    []bool        `json:"vector"`
	Weights   [][]float64   `json:"weights"`
	Gradients [][][]float64 `json:"gradients"` // by step and parameter
	Cases     []struct {
		Name   string       `json:"name"`
		Config optim.Config `json:"config"`
		After  [][]float64  `json:"after"`
	} `json:"cases"`
}

// TestPyTorch: after 5 steps every rule has PyTorch's weights; LARS' and LAMB's
// are those of the papers' algorithms written in PyTorch. In single precision
// they differ by its rounding.
func TestPyTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/optimizers.json")
	if err != nil {
		t.Fatal(err)
	}
	var f fixture
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	rules := map[string]bool{}
	for _, c := range f.Cases {
		if err := c.Config.Validate(); err != nil {
			t.Fatal(err)
		}
		rules[c.Config.Name] = true
		double, single := tensors(f, c.Config)
		for step := range f.Gradients {
			for i, g := range f.Gradients[step] {
				copy(double[i].Gradient, g)
				for k, v := range g {
					single[i].Gradient[k] = float32(v)
				}
			}
			u := c.Config.Update(c.Config.LearningRate, step+1)
			if err := optim.Apply64(u, double); err != nil {
				t.Fatal(err)
			}
			if err := optim.Apply32(u, single); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range c.After {
			for k, w := range want {
				if got := double[i].Weights[k]; math.Abs(got-w) > 1e-14 {
					t.Errorf("%s: weight %d of parameter %d is %.17g, want %.17g", c.Name, k, i, got, w)
				}
				if got := float64(single[i].Weights[k]); math.Abs(got-w) > 3e-6 {
					t.Errorf("%s in single precision: weight %d of parameter %d is %.9g, want %.9g", c.Name, k, i, got, w)
				}
			}
		}
	}
	for _, r := range optim.Rules() {
		if !rules[r] {
			t.Errorf("no case of %s", r)
		}
	}
}

func tensors(f fixture, c optim.Config) (double []optim.Tensor64, single []optim.Tensor32) {
	slots := c.Update(1, 1).Slots()
	for i, w := range f.Weights {
		n := len(w)
		d := optim.Tensor64{Weights: append([]float64(nil), w...), Gradient: make([]float64, n), Vector: f.Vector[i]}
		s := optim.Tensor32{Weights: make([]float32, n), Gradient: make([]float32, n), Vector: f.Vector[i]}
		for k, v := range w {
			s.Weights[k] = float32(v)
		}
		for range slots {
			d.Slots, s.Slots = append(d.Slots, make([]float64, n)), append(s.Slots, make([]float32, n))
		}
		double, single = append(double, d), append(single, s)
	}
	return double, single
}

// TestLayerwiseByHand: ‖w‖ = 5, ‖g‖ = 10, all numbers exact.
func TestLayerwiseByHand(t *testing.T) {
	lars := optim.Update{Rule: "lars", LearningRate: 2, Trust: 0.5, WeightDecay: 2}
	w := []float64{3, 4}
	// local = 0.5·5/(10 + 2·5) = 0.125; w − 2·0.125·(g + 2w) = w − 0.25·(6+6, 8+8)
	if err := optim.Apply(lars, w, []float64{6, 8}); err != nil || w[0] != 0 || w[1] != 0 {
		t.Errorf("LARS: %v, %v, want 0, 0", w, err)
	}
	// Zero weights or gradients: the plain rate.
	w = []float64{0, 0}
	if err := optim.Apply(lars, w, []float64{6, 8}); err != nil || w[0] != -12 || w[1] != -16 {
		t.Errorf("LARS from zero: %v, %v, want -12, -16", w, err)
	}
	w = []float64{3, 4}
	plain := lars
	plain.WeightDecay = 0 // or the quotient would be ‖w‖/0
	if err := optim.Apply(plain, w, []float64{0, 0}); err != nil || w[0] != 3 || w[1] != 4 {
		t.Errorf("LARS without gradient: %v, %v, want 3, 4", w, err)
	}
	// In the first step m̂/√v̂ is the gradient's sign, here (1, 1) up to ε: ‖r‖ = √2, the step is lr·5/√2.
	lamb := optim.Update{Rule: "lamb", LearningRate: 0.2, Step: 1, Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-300}
	w = []float64{3, 4}
	if err := optim.Apply(lamb, w, []float64{6, 8}, make([]float64, 2), make([]float64, 2)); err != nil || math.Abs(w[0]-(3-1/math.Sqrt2)) > 1e-15 || math.Abs(w[1]-(4-1/math.Sqrt2)) > 1e-15 {
		t.Errorf("LAMB: %v, %v", w, err)
	}
	// From zero weights the quotient would be 0, and they would stay there for ever.
	w = []float64{0, 0}
	if err := optim.Apply(lamb, w, []float64{6, 8}, make([]float64, 2), make([]float64, 2)); err != nil || math.Abs(w[0]+0.2) > 1e-15 || math.Abs(w[1]+0.2) > 1e-15 {
		t.Errorf("LAMB from zero: %v, %v, want -0.2, -0.2", w, err)
	}
}

// TestClip32: the norm of all together counts, and what is small enough stays.
func TestClip32(t *testing.T) {
	a, b := []float32{3}, []float32{4, 0}
	if norm := optim.Clip32(10, a, b); norm != 5 || a[0] != 3 || b[0] != 4 {
		t.Errorf("norm %g, gradients %v %v, want 5 and as before", norm, a, b)
	}
	if norm := optim.Clip32(1, a, b); norm != 5 || math.Abs(float64(a[0])-0.6) > 1e-6 || math.Abs(float64(b[0])-0.8) > 1e-6 {
		t.Errorf("norm %g, gradients %v %v, want 5, 0.6, 0.8", norm, a, b)
	}
}

func TestSimple(t *testing.T) {
	for _, c := range []struct {
		u    optim.Update
		want bool
	}{
		{optim.Update{Rule: "adam", WeightDecay: 1}, true},
		{optim.Update{Rule: "sgd", Momentum: 0.9}, true},
		{optim.Update{Rule: "sgd", Momentum: 0.9, Nesterov: true}, false},
		{optim.Update{Rule: "adam", ClipNorm: 1}, false},
		{optim.Update{Rule: "adamw"}, false},
		{optim.Update{Rule: "lars"}, false},
		{optim.Update{Rule: "lamb"}, false},
	} {
		if got := c.u.IsSimple(); got != c.want {
			t.Errorf("%+v: %v", c.u, got)
		}
	}
	if s := strings.Join((optim.Update{Rule: "lamb"}).Slots(), " "); s != "m v" {
		t.Errorf("slots of LAMB are %q", s)
	}
}
