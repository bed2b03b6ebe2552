package reference_test

import (
	"slices"
	"testing"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestRecompute: activations that are computed again give the same bits in every
// precision, running statistics included, which move once a step.
func TestRecompute(t *testing.T) {
	u, err := model.UNet2D(model.UNet2DConfig{Base: 4, Depth: 3, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	image, mask := blobs(2, 16)
	for _, precision := range []string{"fp32", "fp64", "bf16", "fp16"} {
		for _, fuse := range []bool{true, false} {
			var results [2]map[string][]float64
			var kernels [2]int
			for i, again := range []bool{false, true} {
				e := open(t, precision)
				x := load(t, e, u, 2, nn.Train, plan.Options{Fuse: fuse, Recompute: again}, nil)
				kernels[i] = len(x.Program().Kernels)
				set(t, x, image, mask)
				for k := 1; k <= 3; k++ {
					step(t, x, nil, &optim.Update{Rule: "adam", LearningRate: 1e-2, Step: k, Beta1: .9, Beta2: .999, Epsilon: 1e-8})
				}
				results[i] = map[string][]float64{"loss": {x.Loss()}}
				for _, name := range x.Names() {
					results[i][name] = get(t, x, name)
				}
			}
			if kernels[1] <= kernels[0] {
				t.Errorf("%s, fuse %v: %d kernels became %d: nothing is recomputed", precision, fuse, kernels[0], kernels[1])
			}
			for name, want := range results[0] {
				if !slices.Equal(want, results[1][name]) {
					t.Errorf("%s, fuse %v: %s is %v, not %v", precision, fuse, name, results[1][name], want)
				}
			}
		}
	}
}
