package cuda

import (
	"fmt"
	"testing"

	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// denselyConnected returns a network whose convolutions read and write concatenated maps,
// with batch norms before and after them, similar to DenseNet (Huang et al. 2017, "Densely
// connected convolutional networks"). A concatenation in place leaves gaps between the
// pixels of its operands.
func denselyConnected(t testing.TB) (*nn.Graph, *plan.Program) {
	t.Helper()
	g := nn.NewGraph(nn.Train)
	image, target := g.Input(model.ImageInput, 3, 3, 8, 8), g.Input(model.TargetInput, 3, 1, 8, 8)
	stem := g.ReLU(g.BatchNorm("stem.norm", g.Conv2D("stem", image, 8, 3, 1, 1, false)))
	// a reads the stem with gaps, and its statistics are taken.
	a := g.ReLU(g.BatchNorm("a.norm", g.Conv2D("a", stem, 8, 3, 1, 1, false)))
	joined := g.Concat(stem, a)
	b := g.ReLU(g.BatchNorm("b.norm", g.Conv2D("b", joined, 8, 3, 1, 1, false)))
	// c writes a map with gaps. The gradient of its data, which reads one with gaps, leaves
	// the sums for the gradient of b.norm.
	c := g.Conv2D("c", b, 8, 3, 1, 1, false)
	d := g.ReLU(g.BatchNorm("d.norm", g.Conv2D("d", g.Concat(c, a), 8, 3, 1, 1, false)))
	e := g.ReLU(g.BatchNorm("e.norm", g.Conv2D("e", d, 8, 3, 1, 1, false)))
	f := g.ReLU(g.BatchNorm("f.norm", g.Conv2D("f", e, 8, 3, 1, 1, false)))
	z := g.Output("logits", g.Conv2D("head", f, 1, 1, 1, 0, true))
	g.SetLoss(g.BCEWithLogits(z, target))
	p, err := plan.Lower(g, plan.Options{Fuse: true, BucketBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return g, p
}

// TestGapsBetweenNorms: in fp16, where convolutions take the statistics of batch norms, a
// network trains as well where cuDNN refuses tensors with gaps.
func TestGapsBetweenNorms(t *testing.T) {
	g, p := denselyConnected(t)
	want := loaded(t, truth(t), p, g)
	truths := gradientsOf(t, want)
	for _, gaps := range []clibtest.TensorGapSupport{clibtest.GapsFast, clibtest.GapsRefused} {
		for _, inPlace := range []bool{true, false} {
			t.Run(fmt.Sprintf("gaps-%d/in-place-%v", gaps, inPlace), func(t *testing.T) {
				o := gpuOptions("fp16")
				o.ConcatInPlace = inPlace
				x := firstStep(t, openOn(t, cudatest.NewMachine(t, clibtest.Options{Gaps: gaps}), o), g, p)
				statistics, sums, copies := 0, 0, 0
				for i, pick := range x.schedule.picks {
					conv, _ := x.asConvolution(x.tasks[i])
					if conv.gaplessBytes() == 0 {
						continue
					}
					if x.tasks[i].stats != nil {
						statistics++
					}
					if x.tasks[i].sums != nil {
						sums++
					}
					if x.memory.gapless.ptr != 0 && pick.usesMemory(x.memory.gapless.ptr, x.memory.gapless.bytes) {
						copies++
					}
				}
				if (statistics > 0 && sums > 0) != inPlace || (copies > 0) != (inPlace && gaps == clibtest.GapsRefused) {
					t.Errorf("%d convolutions with statistics, and %d with sums, have gaps; %d have copies", statistics, sums, copies)
				}
				if c := number.CosineSimilarity(gradientsOf(t, x), truths); !(c > 0.995) {
					t.Errorf("the gradients' cosine with the reference's is %v", c)
				}
				near(t, "running statistics", statesOf(t, x), statesOf(t, want), 2e-3)
			})
		}
	}
}
