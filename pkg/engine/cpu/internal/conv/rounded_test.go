package conv

import (
	"math"
	"testing"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// TestRoundedGradientOfFewImages checks that images that a block lacks do not become infinite. They
// are multiplied by zero, and were normalized once more for each channel block. Here each
// of 4 planes holds 16 of the 64 blocks, and 1000¹⁶ is greater than any float32.
func TestRoundedGradientOfFewImages(t *testing.T) {
	const images, in, out = 5, 512, 8
	set, err := kernel.ChooseBF16KernelSet("go")
	if err != nil {
		t.Fatal(err)
	}
	activation := func(c int) tensor.Operand {
		o := tensor.Operand{Tensor: plan.Tensor{Shape: []int{images, c, 2, 2}}, Space: [3]int{1, 2, 2}, Layout: tensor.ActivationLayout}
		o.Data = kernel.NewAlignedFloats(images * c * 4)
		for i := range o.Data {
			o.Data[i] = 0.5
		}
		o.Pieces = []tensor.MemoryPiece{{Count: tensor.ChannelBlockCount(c), Data: o.Data, Image: c * 4}}
		return o
	}
	x, dy := activation(in), activation(out)
	x.Pieces[0].Norm = kernel.NewAlignedFloats(in / lanes * kernel.NormConstantFloats)
	for j := range in {
		kernel.SetNormConstants(x.Pieces[0].Norm, j, 1000, 1, 0)
	}
	dw := tensor.Operand{Tensor: plan.Tensor{Shape: []int{out, in, 3, 3}}, Space: [3]int{1, 3, 3}, Layout: tensor.WeightLayout, Data: kernel.NewAlignedFloats(out * in * 9)}
	group := threads.New(1)
	defer group.Close()
	ws := workspace.New(set, 1)
	tasks := NewDirectBF16Gradient(ws, x, dy, dw, NewGeometry(x, dy, dw, [3]int{1, 1, 1}, [3]int{0, 1, 1}, false)).Tasks()
	workers := ws.Allocate()
	for _, task := range tasks {
		group.Run(task, workers)
	}
	for i, v := range dw.Data {
		// Inputs are 1000·0.5 + 1, which rounds to 500. Of the four outputs of an image, 4, 2 or
		// 1 see a tap.
		if n := float64(v) / (images * 0.5 * 500); n != 4 && n != 2 && n != 1 || math.IsNaN(n) {
			t.Fatalf("gradient %d is %v", i, v)
		}
	}
}
