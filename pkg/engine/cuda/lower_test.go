package cuda

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// counts is how many tasks there are of each operation.
func counts(tasks []loweredTask) map[plan.Op]int {
	n := map[plan.Op]int{}
	for _, t := range tasks {
		n[t.op]++
	}
	return n
}

// TestLower counts the tasks of a U-Net with two levels: what is fused, and what
// takes no time at all.
func TestLower(t *testing.T) {
	normal, plain, odd := trainedUNet(), trainedUNet(), trainedUNet()
	plain.Norm = "none"
	odd.Base = 5
	for _, c := range []struct {
		name string
		fuse bool
		net  func() *plan.Program
		want map[plan.Op]int
	}{
		{"fused", true, func() *plan.Program { _, p := programOf(t, normal, 2, nn.Train, plan.Options{Fuse: true}); return p }, map[plan.Op]int{
			plan.OpConv: 10, plan.OpConvTranspose: 2, opBias: 0, opHead: 1, opHeadBackwardData: 1, opHeadBackwardWeights: 1,
			plan.OpBatchNorm: 10, plan.OpBatchNormBackward: 10, plan.OpBiasBackward: 2,
			// Skip gradients are added where the pooling's is made; concatenations are views.
			plan.OpAdd: 0, opCopy: 0, opClear: 0, plan.OpConcat: 0, plan.OpSlice: 0, plan.OpReLU: 0,
		}},
		{"not fused", false, func() *plan.Program { _, p := programOf(t, normal, 2, nn.Train, plan.Options{}); return p }, map[plan.Op]int{
			plan.OpBatchNorm: 10, plan.OpReLU: 10, plan.OpReLUBackward: 10, plan.OpAdd: 2, opCopy: 0, opBias: 2,
		}},
		{"bias and relu", true, func() *plan.Program { _, p := programOf(t, plain, 2, nn.Train, plan.Options{Fuse: true}); return p }, map[plan.Op]int{
			plan.OpConv: 10, opBias: 0, plan.OpReLU: 0, plan.OpReLUBackward: 0, plan.OpBiasBackward: 12,
		}},
		{"channels that fill no vector", true, func() *plan.Program { _, p := programOf(t, odd, 2, nn.Train, plan.Options{Fuse: true}); return p }, map[plan.Op]int{
			// 5+5 and 10+10 channels: two copies for each concatenation, and two for the
			// slices of its gradient.
			opCopy: 8,
		}},
		{"evaluation", true, func() *plan.Program { _, p := programOf(t, normal, 2, nn.Eval, plan.Options{Fuse: true}); return p }, map[plan.Op]int{
			opHead: 1, plan.OpBatchNorm: 10, opCopy: 0, plan.OpBatchNormBackward: 0,
		}},
	} {
		l, err := lowerProgram(c.net(), device.BF16, fusing(c.fuse, true))
		if err != nil {
			t.Fatal(err)
		}
		got := counts(l.tasks)
		for op, want := range c.want {
			if got[op] != want {
				t.Errorf("%s: %d tasks %s, want %d", c.name, got[op], op, want)
			}
		}
	}
}

// TestSpread: places that are alive at once never overlap, unless one is a part
// of the other, and every address is aligned to 16 bytes.
func TestSpread(t *testing.T) {
	for _, base := range []int{5, 8, 16} {
		net := trainedUNet()
		net.Base = base
		_, p := programOf(t, net, 2, nn.Train, plan.Options{Fuse: true})
		l, err := lowerProgram(p, device.BF16, fusing(true, true))
		if err != nil {
			t.Fatal(err)
		}
		places, arena, fixed := layOutTensors(p, l)
		life := l.lifetimes(p)
		for id, a := range places {
			if a.space == noSpace {
				continue
			}
			if a.offset%16 != 0 {
				t.Errorf("tensor %d lies at %d", id, a.offset)
			}
			limit := map[gpuMemorySpace]int{arenaSpace: arena, fixedSpace: fixed}[a.space]
			if root, _ := l.rootTensor(id); root == id && a.offset+a.bytes() > limit {
				t.Errorf("tensor %d ends at %d of %d", id, a.offset+a.bytes(), limit)
			}
			for other, b := range places[:id] {
				r1, _ := l.rootTensor(id)
				r2, _ := l.rootTensor(other)
				if r1 != id || r2 != other || b.space != arenaSpace || a.space != arenaSpace {
					continue
				}
				apart := a.offset+a.bytes() <= b.offset || b.offset+b.bytes() <= a.offset
				never := life[id].Last < life[other].First || life[other].Last < life[id].First
				if !apart && !never {
					t.Errorf("tensors %d and %d share memory and life", other, id)
				}
			}
		}
		for id, a := range l.aliases {
			if places[id].pitch != places[a.parent].pitch || places[id].offset < places[a.parent].offset {
				t.Errorf("tensor %d at %d with pitch %d is no part of %d", id, places[id].offset, places[id].pitch, a.parent)
			}
		}
	}
}

// TestLayouts: pack and unpack are each other's inverse, reach every logical
// element once and no other, for 2-D and 3-D maps, weights and vectors.
func TestLayouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layout{form: tensorStorageForm(rapid.IntRange(0, int(weightForm)).Draw(t, "form")), typ: device.F32}
		dims := 1
		if l.form != vectorForm {
			dims = rapid.IntRange(3, 5).Draw(t, "dimensions")
		}
		for range dims {
			l.shape = append(l.shape, rapid.IntRange(1, 9).Draw(t, "size"))
		}
		n := elementCount(l.shape)
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(i + 1)
		}
		memory := make([]float32, l.paddedElementCount())
		packToLayout(l, memory, v)
		filled := 0
		for _, f := range memory {
			if f != 0 {
				filled++
			}
		}
		back := make([]float64, n)
		unpackFromLayout(l, back, memory)
		if filled != n || !slices.Equal(back, v) || l.paddedElementCount() < n || l.form != denseForm && l.paddedElementCount()%channelMultiple != 0 {
			t.Fatalf("%s of shape %v: %d of %d elements in %d come back as %v", l.form, l.shape, filled, n, l.paddedElementCount(), back)
		}
	})
}
