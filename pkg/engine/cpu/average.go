package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/internal/plan"
)

// globalAverage prepares the mean of each channel, and its gradient.
func (x *builder) globalAverage(c call) ([]task, error) {
	maps, means := c.in[0], c.out[0]
	if c.Op == plan.OpGlobalAvgPoolBackward {
		maps, means = c.out[0], c.in[0]
	}
	if maps.layout != activationLayout || means.layout != activationLayout || !slices.Equal(means.logical, maps.Shape[:2]) {
		return nil, c.errorf("it takes or makes an activation [n,c,…] and its means [n,c]")
	}
	channels, pixels := blocks(maps.Shape[1]), maps.plane()/kernel.Lanes
	scale := 1 / float64(pixels)
	k := x.set
	if c.Op == plan.OpGlobalAvgPool {
		return []task{{maps.Shape[0] * channels, func(_ *worker, lo, hi int) {
			var part kernel.Block
			for i := lo; i < hi; i++ {
				from, _ := maps.block(i/channels, i%channels)
				var sum [kernel.Lanes]float64
				for at := 0; at < pixels; at += chunkPixels {
					k.Sums(&from[at*kernel.Lanes], min(chunkPixels, pixels-at), &part[0])
					for l, v := range part {
						sum[l] += float64(v)
					}
				}
				for l, v := range sum {
					means.data[i*kernel.Lanes+l] = float32(v * scale)
				}
			}
		}}}, nil
	}
	return []task{{maps.Shape[0] * channels, func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			to, _ := maps.block(i/channels, i%channels)
			var v kernel.Block
			for l := range v {
				v[l] = float32(float64(means.data[i*kernel.Lanes+l]) * scale)
			}
			all := kernel.BlocksAt(&to[0], pixels)
			for p := range all {
				all[p] = v
			}
		}
	}}}, nil
}

// average prepares the mean of windows, and its gradient.
func (x *builder) average(c call) ([]task, error) {
	in, y := c.in[0], c.out[0]
	if c.Op == plan.OpAvgPoolBackward {
		in, y = c.out[0], c.in[0]
	}
	window, stride, pad, err := poolAxes(c, in, y)
	if err != nil {
		return nil, err
	}
	if pad != [3]int{} {
		return nil, c.errorf("pad is %v: the mean of a window takes no padding", c.Attr.Pad)
	}
	channels := blocks(in.Shape[1])
	scale := 1 / float32(window[0]*window[1]*window[2])
	// eachElement calls f for each element of each window.
	eachElement := func(f func(pixel, at int)) {
		i := 0
		for z := range y.space[0] {
			for q := range y.space[1] {
				for p := range y.space[2] {
					for a := range window[0] {
						for b := range window[1] {
							row := ((z*stride[0]+a)*in.space[1]+q*stride[1]+b)*in.space[2] + p*stride[2]
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
	return []task{{in.Shape[0] * channels, func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			from, _ := in.block(i/channels, i%channels)
			means, _ := y.block(i/channels, i%channels)
			maps, small := kernel.BlocksAt(&from[0], in.plane()/kernel.Lanes), kernel.BlocksAt(&means[0], y.plane()/kernel.Lanes)
			if c.Op == plan.OpAvgPool {
				clear(means[:y.plane()])
				eachElement(func(pixel, at int) {
					for l, v := range maps[at] {
						small[pixel][l] += v * scale
					}
				})
				continue
			}
			clear(from[:in.plane()])
			eachElement(func(pixel, at int) {
				for l, v := range small[pixel] {
					maps[at][l] += v * scale
				}
			})
		}
	}}}, nil
}

// padding prepares a border of zeros, and its gradient.
func (x *builder) padding(c call) ([]task, error) {
	small, large := c.in[0], c.out[0]
	if c.Op == plan.OpPadBackward {
		small, large = large, small
	}
	before, ok1 := triple(c.Attr.Pad, small.logical, 0, 0)
	after, ok2 := triple(c.Attr.PadEnd, small.logical, 0, 0)
	if !ok1 || !ok2 {
		return nil, c.errorf("pad is %v in front and %v behind: give a number of at least 0 for each spatial dimension", c.Attr.Pad, c.Attr.PadEnd)
	}
	fits := small.layout == activationLayout && large.layout == activationLayout &&
		len(small.logical) == len(large.logical) && slices.Equal(small.Shape[:2], large.Shape[:2])
	for i := range before {
		fits = fits && large.space[i] == before[i]+small.space[i]+after[i]
	}
	if !fits {
		return nil, c.errorf("the shapes do not fit together with %v zeros in front and %v behind", c.Attr.Pad, c.Attr.PadEnd)
	}
	channels := blocks(small.Shape[1])
	row, outRow := small.space[2]*kernel.Lanes, large.space[2]*kernel.Lanes
	return []task{{small.Shape[0] * channels, func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			inner, _ := small.block(i/channels, i%channels)
			outer, _ := large.block(i/channels, i%channels)
			if c.Op == plan.OpPad {
				clear(outer[:large.plane()])
			}
			for r := range small.space[0] * small.space[1] {
				z, q := r/small.space[1]+before[0], r%small.space[1]+before[1]
				at := (z*large.space[1]+q)*outRow + before[2]*kernel.Lanes
				if c.Op == plan.OpPad {
					copy(outer[at:at+row], inner[r*row:])
				} else {
					copy(inner[r*row:(r+1)*row], outer[at:])
				}
			}
		}
	}}}, nil
}
