package plan_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// mixed is p in low precision.
func mixed(t testing.TB, p *plan.Program, low device.ElementType) *plan.Program {
	t.Helper()
	m, err := plan.ConvertToMixedPrecision(p, low)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMixedPrecisionGolden compares what is stored how, which weights are
// rounded where, and where the loss scale comes in, with files that were read
// and found right by hand.
func TestMixedPrecisionGolden(t *testing.T) {
	for name, m := range map[string]*plan.Program{
		"segment-bf16":      mixed(t, lowered(t, small(), 2, nn.Train, plan.Options{Fuse: true}), device.BF16),
		"segment-eval-bf16": mixed(t, lowered(t, small(), 2, nn.Eval, plan.Options{Fuse: true}), device.BF16),
		"classes-fp16":      mixed(t, lowerGraph(t, classifier(t, nn.Train)), device.F16),
		"volumes-fp16":      mixed(t, lowerGraph(t, volumes(t)), device.F16),
	} {
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(m.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), m.String()); d != "" {
			t.Errorf("program differs from %s (-want +got):\n%s", golden, d)
		}
	}
}

// TestMixedPrecisionKeepsItsInput: the program that is given stays as it was, and
// parameters, gradients and buckets are the same ones.
func TestMixedPrecisionKeepsItsInput(t *testing.T) {
	o := plan.Options{Fuse: true, BucketBytes: 200, FirstBucketBytes: 50}
	p := lowered(t, small(), 2, nn.Train, o)
	m := mixed(t, p, device.F16)
	if d := cmp.Diff(lowered(t, small(), 2, nn.Train, o), p); d != "" {
		t.Errorf("the program changed:\n%s", d)
	}
	if d := cmp.Diff(p.Params, m.Params); d != "" {
		t.Errorf("the parameters changed:\n%s", d)
	}
	// What the loss compares with stays as it is, whatever the precision.
	for name, want := range map[string]device.ElementType{"image": device.F16, "target": device.Host} {
		if got := m.Tensors[m.FindTensor(plan.Input, name)].Stored; got != want {
			t.Errorf("%s is stored as %s, want %s", name, got, want)
		}
	}
	if len(p.Buckets) < 3 || len(p.Buckets) != len(m.Buckets) {
		t.Fatalf("%d buckets became %d", len(p.Buckets), len(m.Buckets))
	}
	for i, b := range m.Buckets {
		if p.Kernels[p.Buckets[i].Ready].Name != m.Kernels[b.Ready].Name || b.Bytes != p.Buckets[i].Bytes {
			t.Errorf("bucket %d is ready after %v, not %v", i, m.Kernels[b.Ready], p.Kernels[p.Buckets[i].Ready])
		}
	}
}

func TestMixedPrecisionErrors(t *testing.T) {
	p := lowered(t, small(), 2, nn.Train, plan.Options{})
	if _, err := plan.ConvertToMixedPrecision(p, device.F32); err == nil || !strings.Contains(err.Error(), "unsupported type fp32: use fp16 or bf16") {
		t.Errorf("fp32: error %v", err)
	}
	g := nn.NewGraph(nn.Eval)
	g.Output("y", g.ReLU(g.Input(plan.LossScaleInput, 1, 2)))
	if _, err := plan.ConvertToMixedPrecision(lowerGraph(t, g), device.F16); err == nil || !strings.Contains(err.Error(), `already has an input "loss_scale"`) {
		t.Errorf("input of that name: error %v", err)
	}
}
