package layer

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

func (x *Builder) buildGlobalAveragePool(c Operation) ([]threads.Task, error) {
	maps, means := c.Inputs[0], c.Outputs[0]
	if c.Op == plan.OpGlobalAvgPoolBackward {
		maps, means = c.Outputs[0], c.Inputs[0]
	}
	if maps.Layout != tensor.ActivationLayout || means.Layout != tensor.ActivationLayout || !slices.Equal(means.Logical, maps.Shape[:2]) {
		return nil, c.errorf("want an activation [n,c,…] and its means [n,c]")
	}
	channels, pixels := tensor.ChannelBlockCount(maps.Shape[1]), maps.PlaneFloats()/lanes
	scale := 1 / float64(pixels)
	k := x.Set
	if c.Op == plan.OpGlobalAvgPool {
		return []threads.Task{{Items: maps.Shape[0] * channels, Run: func(_ *threads.Worker, lo, hi int) {
			var part kernel.FloatBlock
			for i := lo; i < hi; i++ {
				from, _ := maps.ChannelBlock(i/channels, i%channels)
				var sum [lanes]float64
				for at := 0; at < pixels; at += workspace.MaxFloat32SumPixels {
					k.Sums(&from[at*lanes], min(workspace.MaxFloat32SumPixels, pixels-at), &part[0])
					for l, v := range part {
						sum[l] += float64(v)
					}
				}
				for l, v := range sum {
					means.Data[i*lanes+l] = float32(v * scale)
				}
			}
		}}}, nil
	}
	return []threads.Task{{Items: maps.Shape[0] * channels, Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			to, _ := maps.ChannelBlock(i/channels, i%channels)
			var v kernel.FloatBlock
			for l := range v {
				v[l] = float32(float64(means.Data[i*lanes+l]) * scale)
			}
			all := kernel.FloatBlocksAt(&to[0], pixels)
			for p := range all {
				all[p] = v
			}
		}
	}}}, nil
}

func (x *Builder) buildAveragePool(c Operation) ([]threads.Task, error) {
	in, y := c.Inputs[0], c.Outputs[0]
	if c.Op == plan.OpAvgPoolBackward {
		in, y = c.Outputs[0], c.Inputs[0]
	}
	window, stride, pad, err := resolvePoolingGeometry(c, in, y)
	if err != nil {
		return nil, err
	}
	if pad != [3]int{} {
		return nil, c.errorf("pad is %v: average pooling does not support padding", c.Attr.Pad)
	}
	channels := tensor.ChannelBlockCount(in.Shape[1])
	scale := 1 / float32(window[0]*window[1]*window[2])
	// eachElement calls f for each element of each window, with the pixel of the output (the
	// number of the window) and the pixel of the input (at).
	eachElement := func(f func(pixel, at int)) {
		i := 0
		for z := range y.Space[0] {
			for q := range y.Space[1] {
				for p := range y.Space[2] {
					for a := range window[0] {
						for b := range window[1] {
							row := ((z*stride[0]+a)*in.Space[1]+q*stride[1]+b)*in.Space[2] + p*stride[2]
							for e := range window[2] {
								f(i, row+e)
							}
						}
					}
					i++
				}
			}
		}
	}
	return []threads.Task{{Items: in.Shape[0] * channels, Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			from, _ := in.ChannelBlock(i/channels, i%channels)
			means, _ := y.ChannelBlock(i/channels, i%channels)
			maps, small := kernel.FloatBlocksAt(&from[0], in.PlaneFloats()/lanes), kernel.FloatBlocksAt(&means[0], y.PlaneFloats()/lanes)
			if c.Op == plan.OpAvgPool {
				clear(means[:y.PlaneFloats()])
				eachElement(func(pixel, at int) {
					for l, v := range maps[at] {
						small[pixel][l] += v * scale
					}
				})
				continue
			}
			clear(from[:in.PlaneFloats()])
			eachElement(func(pixel, at int) {
				for l, v := range small[pixel] {
					maps[at][l] += v * scale
				}
			})
		}
	}}}, nil
}

func (x *Builder) buildPadding(c Operation) ([]threads.Task, error) {
	small, large := c.Inputs[0], c.Outputs[0]
	if c.Op == plan.OpPadBackward {
		small, large = large, small
	}
	before, ok1 := attributePerAxis(c.Attr.Pad, small.Logical, 0, 0)
	after, ok2 := attributePerAxis(c.Attr.PadEnd, small.Logical, 0, 0)
	if !ok1 || !ok2 {
		return nil, c.errorf("padding is %v before and %v after: want a number of at least 0 for each spatial dimension", c.Attr.Pad, c.Attr.PadEnd)
	}
	fits := small.Layout == tensor.ActivationLayout && large.Layout == tensor.ActivationLayout &&
		len(small.Logical) == len(large.Logical) && slices.Equal(small.Shape[:2], large.Shape[:2])
	for i := range before {
		fits = fits && large.Space[i] == before[i]+small.Space[i]+after[i]
	}
	if !fits {
		return nil, c.errorf("the shapes do not match a padding of %v before and %v after", c.Attr.Pad, c.Attr.PadEnd)
	}
	channels := tensor.ChannelBlockCount(small.Shape[1])
	row, outRow := small.Space[2]*lanes, large.Space[2]*lanes
	return []threads.Task{{Items: small.Shape[0] * channels, Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			inner, _ := small.ChannelBlock(i/channels, i%channels)
			outer, _ := large.ChannelBlock(i/channels, i%channels)
			if c.Op == plan.OpPad {
				clear(outer[:large.PlaneFloats()])
			}
			for r := range small.Space[0] * small.Space[1] {
				z, q := r/small.Space[1]+before[0], r%small.Space[1]+before[1]
				at := (z*large.Space[1]+q)*outRow + before[2]*lanes
				if c.Op == plan.OpPad {
					copy(outer[at:at+row], inner[r*row:])
				} else {
					copy(inner[r*row:(r+1)*row], outer[at:])
				}
			}
		}
	}}}, nil
}
