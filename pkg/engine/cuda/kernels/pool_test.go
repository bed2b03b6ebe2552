package kernels_test

import (
	"math"
	"slices"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/plan"
)

// coarse are values with many equal ones, so that the first maximum matters.
func (d *device) coarse(n int) []float32 {
	v := d.normal(kernels.F32, n, 0, 2)
	for i := range v {
		v[i] = float32(math.Round(float64(v[i])))
	}
	return v
}

// pool2 is a 2-D pooling.
func pool2(shape []int, kernel, stride int) (kernels.Pooling, []int) {
	y := []int{shape[0], shape[1], (shape[2]-kernel)/stride + 1, (shape[3]-kernel)/stride + 1}
	return kernels.Pooling{
		Batch: shape[0], Channels: kernels.PaddedChannels(shape[1]), In: [3]int{1, shape[2], shape[3]}, Out: [3]int{1, y[2], y[3]},
		Kernel: [3]int{1, kernel, kernel}, Stride: [3]int{1, stride, stride},
	}, y
}

// TestMaxPool has windows that touch, overlap and leave gaps, and a NaN.
func TestMaxPool(t *testing.T) {
	for _, shape := range [][]int{{2, 3, 8, 6}, {1, 17, 9, 11}, {1, 520, 4, 4}, {3, 24, 5, 70}} {
		for _, w := range [][2]int{{2, 2}, {3, 2}, {2, 3}, {3, 1}, {1, 1}} {
			t.Run(name(shape, "window", w), func(t *testing.T) {
				eachDevice(t, func(d *device) {
					p, ys := pool2(shape, w[0], w[1])
					x, dy, acc := d.coarse(elements(shape)), d.normal(d.typ, elements(ys), 0, 1), d.normal(d.typ, elements(shape), 0, 1)
					for i := range x {
						if i%37 == 5 {
							x[i] = float32(math.NaN())
						}
					}
					y, index := d.rows("y", ys, nil), d.alloc("index", rowsOf(ys)*p.Channels)
					p.X, p.Y, p.Index = d.rows("x", shape, x).m(), y.m(), index.pointer()
					d.run(p.Forward(d.typ))
					attr := plan.KernelAttr{Kernel: []int{w[0], w[0]}, Stride: []int{w[1], w[1]}}
					in := []operand{{shape: shape, values: x}, {shape: ys, values: float32s(d.logical(y))}, {shape: ys, values: dy}}
					d.near("y", d.typ, d.logical(y), truth(d.T, plan.OpMaxPool, attr, in[:1], ys)[0], 0, 0)

					dx, both := d.rows("dx", shape, nil), d.rows("both", shape, nil)
					p.DY, p.DX = d.rows("dy", ys, dy).m(), dx.m()
					d.run(p.Backward(d.typ))
					want := truth(d.T, plan.OpMaxPoolBackward, attr, in, shape)[0]
					d.near("dx", d.typ, d.logical(dx), want, 0, 64*0x1p-24)
					p.DX, p.Acc = both.m(), d.rows("acc", shape, acc).m()
					d.run(p.Backward(d.typ))
					for i := range want {
						want[i] += float64(acc[i])
					}
					d.near("dx and acc", d.typ, d.logical(both), want, 0, 64*0x1p-24)

					other := d.rows("y without index", ys, nil)
					p.Y, p.Index = other.m(), 0
					d.run(p.Forward(d.typ))
					d.near("y without index", d.typ, d.logical(other), d.logical(y), 0, 0)
				})
			})
		}
	}
}

// TestMaxPoolPadded3D compares windows in three dimensions with padding (which
// engine/reference lacks) with the definition.
func TestMaxPoolPadded3D(t *testing.T) {
	for _, c := range []struct {
		shape               []int // N, C, D, H, W
		kernel, stride, pad [3]int
	}{
		{[]int{2, 5, 4, 6, 5}, [3]int{2, 2, 2}, [3]int{2, 2, 2}, [3]int{}},
		{[]int{1, 9, 5, 7, 8}, [3]int{3, 3, 3}, [3]int{2, 2, 2}, [3]int{1, 1, 1}},
		{[]int{2, 16, 1, 9, 10}, [3]int{1, 3, 3}, [3]int{1, 2, 2}, [3]int{0, 1, 1}}, // a ResNet's first pooling
	} {
		t.Run(name(c.shape, c.kernel, c.stride, c.pad), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				s := c.shape
				var out [3]int
				for i := range 3 {
					out[i] = (s[2+i]+2*c.pad[i]-c.kernel[i])/c.stride[i] + 1
				}
				ys := []int{s[0], s[1], out[0], out[1], out[2]}
				x, dy := d.coarse(elements(s)), d.normal(d.typ, elements(ys), 0, 1)
				for i := range x {
					x[i] -= 6 // padding that counted as 0 would win
				}
				wantY, wantDX := make([]float64, elements(ys)), make([]float64, elements(s))
				for i := range wantY {
					plane, o := i/(out[0]*out[1]*out[2]), [3]int{i / (out[1] * out[2]) % out[0], i / out[2] % out[1], i % out[2]}
					best := -1
					for tap := range c.kernel[0] * c.kernel[1] * c.kernel[2] {
						p := [3]int{tap / (c.kernel[1] * c.kernel[2]), tap / c.kernel[2] % c.kernel[1], tap % c.kernel[2]}
						inside := true
						for k := range 3 {
							p[k] += o[k]*c.stride[k] - c.pad[k]
							inside = inside && p[k] >= 0 && p[k] < s[2+k]
						}
						at := ((plane*s[2]+p[0])*s[3]+p[1])*s[4] + p[2]
						if inside && (best < 0 || x[at] > x[best]) {
							best = at
						}
					}
					wantY[i] = float64(x[best])
					wantDX[best] += float64(dy[i])
				}
				channels := kernels.PaddedChannels(s[1])
				y, dx, index := d.rows("y", ys, nil), d.rows("dx", s, nil), d.alloc("index", rowsOf(ys)*channels)
				p := kernels.Pooling{
					Batch: s[0], Channels: channels, In: [3]int(s[2:]), Out: out, Kernel: c.kernel, Stride: c.stride, Pad: c.pad,
					X: d.rows("x", s, x).m(), Y: y.m(), DY: d.rows("dy", ys, dy).m(), DX: dx.m(), Index: index.pointer(),
				}
				d.run(p.Forward(d.typ))
				d.near("y", d.typ, d.logical(y), wantY, 0, 0)
				d.run(p.Backward(d.typ))
				d.near("dx", d.typ, d.logical(dx), wantDX, 0, 8*0x1p-24)
			})
		})
	}
}

// TestPad compares zeros around images and volumes, and the gradient of that, with
// engine/reference.
func TestPad(t *testing.T) {
	for _, c := range []struct{ shape, front, behind []int }{
		{[]int{2, 3, 8, 6}, []int{1, 0}, []int{0, 2}},
		{[]int{1, 17, 5, 300}, []int{3, 3}, []int{3, 3}},
		{[]int{1, 520, 2, 2}, []int{0, 1}, []int{1, 0}},
		{[]int{2, 9, 3, 4, 5}, []int{1, 2, 0}, []int{0, 1, 3}},
	} {
		t.Run(name(c.shape, c.front, c.behind), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				ys := slices.Clone(c.shape)
				p := kernels.Padding{Batch: c.shape[0], Channels: kernels.PaddedChannels(c.shape[1]), In: [3]int{1, 1, 1}, Out: [3]int{1, 1, 1}}
				for i := range c.front {
					ys[2+i] += c.front[i] + c.behind[i]
					at := 3 - len(c.front) + i
					p.In[at], p.Out[at], p.Shift[at] = c.shape[2+i], ys[2+i], c.front[i]
				}
				attr := plan.KernelAttr{Pad: c.front, PadEnd: c.behind}
				x, dy, acc := d.normal(d.typ, elements(c.shape), 0, 1), d.normal(d.typ, elements(ys), 0, 1), d.normal(d.typ, elements(c.shape), 0, 1)
				y, dx := d.rows("y", ys, nil), d.rows("dx", c.shape, nil)
				p.X, p.Y = d.rows("x", c.shape, x).m(), y.m()
				d.run(p.Launches(d.typ))
				d.near("y", d.typ, d.logical(y), truth(d.T, plan.OpPad, attr, []operand{{shape: c.shape, values: x}}, ys)[0], 0, 0)

				p.In, p.Out = p.Out, p.In
				for i := range p.Shift {
					p.Shift[i] = -p.Shift[i]
				}
				p.X, p.Y = d.rows("dy", ys, dy).m(), dx.m()
				d.run(p.Launches(d.typ))
				want := truth(d.T, plan.OpPadBackward, attr, []operand{{shape: ys, values: dy}}, c.shape)[0]
				d.near("dx", d.typ, d.logical(dx), want, 0, 0)
				p.Acc = d.rows("acc", c.shape, acc).m()
				d.run(p.Launches(d.typ))
				for i := range want {
					want[i] += float64(acc[i])
				}
				d.near("dx and acc", d.typ, d.logical(dx), want, 0, 4*0x1p-24)
			})
		})
	}
}

// TestMoreLinesThanBlocks: a grid is at most 65535 blocks high; of more lines a block
// takes several.
func TestMoreLinesThanBlocks(t *testing.T) {
	shape := []int{65539, 3, 2, 2}
	eachDevice(t, func(d *device) {
		p, ys := pool2(shape, 2, 2)
		x := d.coarse(elements(shape))
		y := d.rows("y", ys, nil)
		p.X, p.Y = d.rows("x", shape, x).m(), y.m()
		launches, err := p.Forward(d.typ)
		if err != nil || len(launches) != 1 || launches[0].Grid[1] != 65535 {
			t.Fatalf("%v, %v", launches, err)
		}
		d.run(launches, nil)
		want := make([]float64, elements(ys))
		for i := range want {
			want[i] = float64(max(x[4*i], x[4*i+1], x[4*i+2], x[4*i+3]))
		}
		d.near("y", d.typ, d.logical(y), want, 0, 0)
	})
}
