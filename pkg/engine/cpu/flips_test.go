package cpu

import (
	"context"
	"fmt"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// decisions runs a step of a U-Net whose ReLUs are outputs, and returns every
// decision that its backward pass goes by: whether a ReLU lets a value through,
// and which of four values a pooling takes.
func decisions(t *testing.T, x engine.Executable, seed uint64) (list []int8) {
	t.Helper()
	feed(t, x, seed)
	if _, err := x.Step(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	p := x.Program()
	for _, id := range p.Outputs {
		out := p.Tensors[id]
		if out.Name == model.LogitsOutput {
			continue
		}
		v := make([]float32, out.Elements())
		if err := x.Output(out.Name, v); err != nil {
			t.Fatal(err)
		}
		for _, f := range v {
			if f > 0 {
				list = append(list, 1)
			} else {
				list = append(list, 0)
			}
		}
		h, w := out.Shape[2], out.Shape[3]
		for at := 0; at < len(v); at += h * w {
			for i := range h / 2 * (w / 2) {
				r, c := i/(w/2)*2, i%(w/2)*2
				best := 0
				for e := range 4 {
					if v[at+(r+e/2)*w+c+e%2] > v[at+(r+best/2)*w+c+best%2] {
						best = e
					}
				}
				list = append(list, int8(best))
			}
		}
	}
	return list
}

// TestFlips: gradients of a whole network that are far from the reference's
// come from decisions that a rounding has turned, and from nothing else: where
// every ReLU and every pooling decides alike they agree to 1e-4 of the greatest,
// whatever the shape.
func TestFlips(t *testing.T) {
	alike, turned := 0, 0
	for _, size := range [][2]int{{20, 12}, {12, 20}} {
		c := alignedUNet()
		c.Height, c.Width = size[0], size[1]
		u, err := model.UNet2D(c)
		if err != nil {
			t.Fatal(err)
		}
		g, err := u.Graph(3, nn.Train)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range g.Expr().AllNodes() {
			if call, ok := nn.OperationInfoOf(n); ok && call.Kind == nn.KindReLU {
				g.Output(fmt.Sprint("relu", i), n)
			}
		}
		p, err := plan.Lower(g, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := loaded(t, truth(t), p, g)
		x := loaded(t, openWith(t, "go", 1, "winograd"), p, g)
		for seed := range uint64(12) {
			a, b := decisions(t, x, seed), decisions(t, want, seed)
			flips := 0
			for i := range b {
				if a[i] != b[i] {
					flips++
				}
			}
			worst, where := 0.0, ""
			for _, q := range p.Params {
				got, err1 := x.Gradient(q.Name)
				ref, err2 := want.Gradient(q.Name)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				top := largest(ref)
				if top < 1e-9 {
					continue // a bias before a batch norm: nothing but roundings
				}
				for i := range ref {
					if d := max(got[i]-ref[i], ref[i]-got[i]) / top; d > worst {
						worst, where = d, q.Name
					}
				}
			}
			t.Logf("%d×%d, seed %d: %d of %d decisions turned, greatest difference %.2g (%s)", c.Height, c.Width, seed, flips, len(b), worst, where)
			if flips > 0 {
				turned++
				continue
			}
			alike++
			if worst > 1e-4 {
				t.Errorf("%d×%d, seed %d: gradient of %s differs by %.2g though every decision is the same", c.Height, c.Width, seed, where, worst)
			}
		}
	}
	if alike == 0 {
		t.Error("in no case are all decisions the same: this tests nothing")
	}
	t.Logf("%d cases alike, %d with decisions that are turned", alike, turned)
}
