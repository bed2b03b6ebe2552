package reference_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"lockstep/pkg/nn"
)

// TestAgainstTorch compares loss, gradients and running statistics of each layer
// in float64 with what PyTorch computed; testdata/torch_ops.py wrote the file.
func TestAgainstTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/torch_ops.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixtures []struct {
		Name                      string
		Loss                      float64
		Values, Gradients, States map[string][]float64
		Inputs                    map[string][]float32
	}
	if err := json.Unmarshal(text, &fixtures); err != nil {
		t.Fatal(err)
	}
	cases := gradientCases()
	for _, f := range fixtures {
		t.Run(f.Name, func(t *testing.T) {
			i := slices.IndexFunc(cases, func(c gradientCase) bool { return c.name == f.Name })
			if i < 0 {
				t.Fatal("there is no case of this name")
			}
			g := nn.NewGraph(nn.Train)
			z := cases[i].build(g, g.Parameter("x", uniform, cases[i].input...))
			if z.Dims() > 0 {
				z = g.BCEWithLogits(z, g.Input("target", z.Shape()...))
			}
			g.SetLoss(z)
			x := built(t, g, "fp64")
			for name, v := range f.Values {
				if err := x.Set(name, v); err != nil {
					t.Fatal(err)
				}
			}
			for name, v := range f.Inputs {
				input(t, x, name, v...)
			}
			step(t, x, nil, nil)
			if !near(x.Loss(), f.Loss, 1e-12) {
				t.Errorf("loss %v, PyTorch has %v", x.Loss(), f.Loss)
			}
			if len(f.Gradients) != len(g.Parameters()) {
				t.Errorf("%d gradients for %d parameters", len(f.Gradients), len(g.Parameters()))
			}
			for name, want := range f.Gradients {
				for i, v := range gradient(t, x, name) {
					if !near(v, want[i], 1e-12) {
						t.Fatalf("gradient of %s[%d] is %v, PyTorch has %v", name, i, v, want[i])
					}
				}
			}
			for name, want := range f.States {
				for i, v := range get(t, x, name) {
					if !near(v, want[i], 1e-12) {
						t.Errorf("%s[%d] is %v, PyTorch has %v", name, i, v, want[i])
					}
				}
			}
		})
	}
}
