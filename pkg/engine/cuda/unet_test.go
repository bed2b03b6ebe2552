package cuda

import (
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// TestUNetGradients compares a whole network's loss, gradients and running
// statistics with the reference in float64. Rounding may change the decision of a ReLU
// or a pooling, so fp32 gradients may differ by 1e-3 of their greatest value. In 16 bits
// it changes many decisions, so the test compares the angle between all gradients
// together and the reference's. Other tests compare single kernels to within a rounding.
func TestUNetGradients(t *testing.T) {
	for _, fuse := range []bool{true, false} {
		g, p := programOf(t, smallUNet(), 3, nn.Train, plan.Options{Fuse: fuse, BucketBytes: 4096})
		want := loaded(t, truth(t), p, g)
		for _, c := range []struct {
			precision                string
			loss, cosine, statistics float64
		}{{"fp32", 1e-5, 0.999999, 1e-4}, {"fp16", 1e-3, 0.995, 2e-3}, {"bf16", 1e-2, 0.95, 2e-2}} {
			t.Run(fmt.Sprintf("%s/fuse-%v", c.precision, fuse), func(t *testing.T) {
				o := gpuOptions(c.precision)
				o.Fuse = fuse
				x := loaded(t, open(t, o), p, g)
				if d := math.Abs(x.Loss() - want.Loss()); !(d < c.loss) {
					t.Errorf("loss is %v, the reference has %v", x.Loss(), want.Loss())
				}
				var dot, aa, bb float64
				for _, q := range p.Params {
					a, err1 := x.Gradient(q.Name)
					b, err2 := want.Gradient(q.Name)
					if err1 != nil || err2 != nil {
						t.Fatal(err1, err2)
					}
					// A bias before a batch norm has no gradient but roundings.
					if largest(b) > 1e-9 && c.precision == "fp32" {
						near(t, "gradient of "+q.Name, a, b, 1e-3)
					}
					for i := range a {
						dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
					}
				}
				if cosine := dot / math.Sqrt(aa*bb); !(cosine > c.cosine) {
					t.Errorf("the cosine between the gradients and the reference's is %v", cosine)
				}
				for _, id := range p.States {
					name := p.Tensors[id].Name
					a, err1 := x.Get(name)
					b, err2 := want.Get(name)
					if err1 != nil || err2 != nil {
						t.Fatal(err1, err2)
					}
					near(t, name, a, b, c.statistics)
				}
				if err := checkPadding(x); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
