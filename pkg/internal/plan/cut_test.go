package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/internal/plan"
)

// TestCut: the stages have the kernels of the whole program, each once and in its order. The
// forward pass needs only tensors of earlier stages, the backward pass only gradients of later
// ones, and skip connections go directly to the stage that reads them.
func TestCut(t *testing.T) {
	for name, p := range deep(t) {
		for _, n := range []int{1, 2, 3, 5} {
			stages, err := plan.CutIntoStages(p, n)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var got, want []string
			flops, far := int64(0), 0
			for s, stage := range stages {
				flops += stage.FLOPs
				for _, pass := range []*plan.Program{stage.Forward, stage.Backward} {
					for _, k := range pass.Kernels {
						got = append(got, fmt.Sprint(k.Op, k.Name, k.Attr, k.Backward))
					}
				}
				for from := range stages {
					if len(stage.Activations[from]) > 0 && from >= s || len(stage.Gradients[from]) > 0 && from <= s {
						t.Errorf("%s: stage %d of %d needs activations %v and gradients %v of stage %d", name, s, n, stage.Activations[from], stage.Gradients[from], from)
					}
					if from < s-1 {
						far += len(stage.Activations[from])
					}
				}
				if (stage.Forward.Loss >= 0) != (s == n-1) || stage.Backward.Loss >= 0 {
					t.Errorf("%s: stage %d of %d computes the loss: %t", name, s, n, stage.Forward.Loss >= 0)
				}
			}
			for _, k := range p.Kernels {
				want = append(want, fmt.Sprint(k.Op, k.Name, k.Attr, k.Backward))
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %d stages have %d kernels, want the %d of the program", name, n, len(got), len(want))
			}
			if flops != p.StepFLOPs() {
				t.Errorf("%s: %d stages have %d FLOPs, want %d", name, n, flops, p.StepFLOPs())
			}
			if skips := n > 2 && name[:4] == "unet"; skips && far == 0 {
				t.Errorf("%s: no skip connection goes past a stage in %d stages", name, n)
			}
		}
	}
}

// TestCutBalances: no other division of the layers has a smaller largest number of operations.
func TestCutBalances(t *testing.T) {
	for name, p := range deep(t) {
		all, err := plan.CutIntoStages(p, 1)
		if err != nil {
			t.Fatal(err)
		}
		layers := all[0].Layers[1]
		each, err := plan.CutIntoStages(p, layers)
		if err != nil {
			t.Fatal(err)
		}
		stages, err := plan.CutIntoStages(p, 3)
		if err != nil {
			t.Fatal(err)
		}
		cost := func(from, to int) (sum int64) {
			for _, s := range each[from:to] {
				sum += s.FLOPs
			}
			return sum
		}
		best := cost(0, layers)
		for i := 1; i < layers; i++ {
			for j := i + 1; j < layers; j++ {
				best = min(best, max(cost(0, i), cost(i, j), cost(j, layers)))
			}
		}
		if got := max(stages[0].FLOPs, stages[1].FLOPs, stages[2].FLOPs); got != best {
			t.Errorf("%s: the largest stage has %d FLOPs, want %d", name, got, best)
		}
	}
}

// TestCutErrors: what cannot be cut is an error that says what to do.
func TestCutErrors(t *testing.T) {
	p := deep(t)["unet2d"]
	layers := 0
	for _, k := range p.Kernels[:p.Forward] {
		if p.FLOPs(k) > 0 {
			layers++
		}
	}
	forward := *p
	forward.Kernels = p.Kernels[:p.Forward]
	synced := *p
	synced.Kernels = slices.Clone(p.Kernels)
	synced.Kernels[1].Attr.Sync = true
	for want, f := range map[string]func() ([]plan.PipelineStage, error){
		fmt.Sprintf("got %d stages for a network of %d layers (convolutions and linear layers): use at most %[2]d workers", layers+1, layers): func() ([]plan.PipelineStage, error) { return plan.CutIntoStages(p, layers+1) },
		"got 0 stages":            func() ([]plan.PipelineStage, error) { return plan.CutIntoStages(p, 0) },
		"no backward pass":        func() ([]plan.PipelineStage, error) { return plan.CutIntoStages(&forward, 2) },
		"set recompute to false":  func() ([]plan.PipelineStage, error) { return plan.CutIntoStages(recomputed(t, p), 2) },
		"set sync_batchnorm to f": func() ([]plan.PipelineStage, error) { return plan.CutIntoStages(&synced, 2) },
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
