package cuda

import (
	"fmt"
	"testing"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// TestPrecisionIsThePlans: this engine stores in 16 bits what plan.ConvertToMixedPrecision
// says, for every model that has a name, so that engine/reference in bf16 and fp16 is
// what it may be compared with. Parameters differ: copies of them are the plan's tensors.
func TestPrecisionIsThePlans(t *testing.T) {
	check := func(name string, g *nn.Graph) {
		p, err := plan.Lower(g, plan.Options{Fuse: true})
		if err != nil {
			t.Fatal(name, err)
		}
		mixed, err := plan.ConvertToMixedPrecision(p, device.BF16)
		if err != nil {
			t.Fatal(name, err)
		}
		layouts, err := chooseLayouts(p, device.BF16)
		if err != nil {
			t.Fatal(name, err)
		}
		for id, q := range p.Tensors {
			if low := layouts[id].typ == device.BF16; q.Role != plan.Parameter && low != (mixed.Tensors[id].Stored == device.BF16) {
				t.Errorf("%s: tensor %d (%s, %v) is stored in 16 bits here: %v", name, id, q.Name, q.Shape, low)
			}
		}
	}
	nets := map[string]model.Network{}
	for _, name := range model.Names() {
		net, err := model.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		nets[name] = net
	}
	for i, net := range networks(t) {
		nets[fmt.Sprint("network ", i)] = net
	}
	for name, net := range nets {
		g, err := net.Graph(2, nn.Train)
		if err != nil {
			t.Fatal(name, err)
		}
		check(name, g)
	}
}
