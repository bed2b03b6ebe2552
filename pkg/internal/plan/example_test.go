package plan_test

import (
	"fmt"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

func ExampleLower() {
	g := nn.NewGraph(nn.Train)
	x := g.Input("x", 2, 1, 4, 4)
	h := g.ReLU(g.BatchNorm("norm", g.Conv2D("conv", x, 3, 3, 1, 1, false)))
	z := g.Output("z", g.Conv2D("head", h, 1, 1, 1, 0, true))
	g.SetLoss(g.BCEWithLogits(z, g.Input("t", 2, 1, 4, 4)))

	p, err := plan.Lower(g, plan.Options{Fuse: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range p.Kernels {
		fmt.Println(k.Op, k.Name)
	}
	fmt.Println(len(p.Buckets), "bucket, ready after kernel", p.Buckets[0].Ready)
	// Output:
	// conv conv
	// batch_norm norm
	// conv head
	// bce_with_logits loss.0
	// bce_with_logits_backward loss.0
	// bias_backward head
	// conv_backward_weights head
	// conv_backward_data head
	// batch_norm_backward norm
	// conv_backward_weights conv
	// 1 bucket, ready after kernel 9
}
