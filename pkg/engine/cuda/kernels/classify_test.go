package kernels_test

import (
	"encoding/binary"
	"math"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/metric"
)

// The truth of these tests is computed here, in float64, by the definitions.

func TestGlobalAvgPool(t *testing.T) {
	for _, shape := range [][]int{{1, 1, 1, 1}, {3, 17, 5, 7}, {2, 264, 4, 4}, {2, 8, 3, 4, 5}, {1, 2048, 2, 2}, {2, 24, 40, 33}} {
		t.Run(name(shape), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				n, c, points := shape[0], shape[1], rowsOf(shape)/shape[0]
				x, dy, acc := d.normal(d.typ, elements(shape), 0.5, 1), d.normal(d.typ, n*c, 0, 1), d.normal(d.typ, elements(shape), 0, 1)
				y, dx, both := d.rows("y", []int{n, c}, nil), d.rows("dx", shape, nil), d.rows("dx and acc", shape, nil)
				a := kernels.GlobalAvgPool{
					Batch: n, Points: points, Channels: kernels.PaddedChannels(c), X: d.rows("x", shape, x).m(), Y: y.m(),
					DY: d.rows("dy", []int{n, c}, dy).m(), DX: dx.m(),
				}
				d.run(a.Forward(d.typ))
				wantY, wantDX := make([]float64, n*c), make([]float64, len(x))
				for i := range x {
					wantY[i/points] += float64(x[i]) / float64(points)
					wantDX[i] = float64(dy[i/points]) / float64(points)
				}
				d.near("y", d.typ, d.logical(y), wantY, 0, float64(points)*0x1p-24)
				d.run(a.Backward(d.typ))
				d.near("dx", d.typ, d.logical(dx), wantDX, 2*0x1p-24, 0)
				a.DX, a.Acc = both.m(), d.rows("acc", shape, acc).m()
				d.run(a.Backward(d.typ))
				for i := range wantDX {
					wantDX[i] += float64(acc[i])
				}
				d.near("dx and acc", d.typ, d.logical(both), wantDX, 0, 4*0x1p-24)
			})
		})
	}
}

// TestAvgPool has windows that touch, overlap and leave gaps, in two and three
// dimensions.
func TestAvgPool(t *testing.T) {
	for _, c := range []struct {
		shape          []int
		kernel, stride [3]int
	}{
		{[]int{2, 3, 1, 8, 6}, [3]int{1, 2, 2}, [3]int{1, 2, 2}},
		{[]int{1, 17, 1, 9, 11}, [3]int{1, 3, 3}, [3]int{1, 2, 2}},
		{[]int{1, 9, 5, 7, 8}, [3]int{2, 2, 3}, [3]int{3, 1, 2}},
		{[]int{1, 520, 1, 3, 3}, [3]int{1, 1, 1}, [3]int{1, 2, 2}},
	} {
		t.Run(name(c.shape, c.kernel, c.stride), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				s := c.shape
				var out [3]int
				for i := range 3 {
					out[i] = (s[2+i]-c.kernel[i])/c.stride[i] + 1
				}
				ys := []int{s[0], s[1], out[0], out[1], out[2]}
				x, dy := d.normal(d.typ, elements(s), 0, 1), d.normal(d.typ, elements(ys), 0, 1)
				acc := d.normal(d.typ, elements(s), 0, 1)
				wantY, wantDX := make([]float64, elements(ys)), int64Arg(acc)
				taps := c.kernel[0] * c.kernel[1] * c.kernel[2]
				for i := range wantY {
					plane := i / (out[0] * out[1] * out[2])
					o := [3]int{i / (out[1] * out[2]) % out[0], i / out[2] % out[1], i % out[2]}
					for tap := range taps {
						p := [3]int{tap / (c.kernel[1] * c.kernel[2]), tap / c.kernel[2] % c.kernel[1], tap % c.kernel[2]}
						at := plane
						for k := range 3 {
							at = at*s[2+k] + o[k]*c.stride[k] + p[k]
						}
						wantY[i] += float64(x[at]) / float64(taps)
						wantDX[at] += float64(dy[i]) / float64(taps)
					}
				}
				y, dx := d.rows("y", ys, nil), d.rows("dx", s, nil)
				a := kernels.Pooling{
					Batch: s[0], Channels: kernels.PaddedChannels(s[1]), In: [3]int{s[2], s[3], s[4]}, Out: out, Kernel: c.kernel, Stride: c.stride,
					X: d.rows("x", s, x).m(), Y: y.m(), DY: d.rows("dy", ys, dy).m(), DX: dx.m(), Acc: d.rows("acc", s, acc).m(),
				}
				d.run(a.Average(d.typ))
				d.near("y", d.typ, d.logical(y), wantY, 0, 64*0x1p-24)
				d.run(a.AverageBackward(d.typ))
				d.near("dx", d.typ, d.logical(dx), wantDX, 0, 64*0x1p-24)
			})
		})
	}
}

// TestMaxPoolPadZeros: a padding zero that wins gives 0, and takes its gradient with it.
func TestMaxPoolPadZeros(t *testing.T) {
	eachDevice(t, func(d *device) {
		s, ys := []int{2, 9, 1, 7, 6}, []int{2, 9, 1, 4, 3}
		x, dy := d.coarse(elements(s)), d.normal(d.typ, elements(ys), 0, 1)
		for i := range x {
			x[i]-- // so that zeros of the padding win now and then
		}
		wantY, wantDX, zeros := make([]float64, elements(ys)), make([]float64, elements(s)), 0
		for i := range wantY {
			plane, oh, ow := i/12, i/3%4, i%3
			best, from, first := 0.0, -1, true
			for tap := range 9 {
				h, w := oh*2-1+tap/3, ow*2-1+tap%3
				v, at := 0.0, -1
				if h >= 0 && h < 7 && w >= 0 && w < 6 {
					at = (plane*7+h)*6 + w
					v = float64(x[at])
				}
				if first || v > best {
					best, from, first = v, at, false
				}
			}
			wantY[i] = best
			if from >= 0 {
				wantDX[from] += float64(dy[i])
			} else {
				zeros++
			}
		}
		if zeros == 0 || zeros == len(wantY) {
			d.Fatalf("%d of %d windows are won by the padding: the test shows nothing", zeros, len(wantY))
		}
		y, dx, index := d.rows("y", ys, nil), d.rows("dx", s, nil), d.alloc("index", rowsOf(ys)*16)
		a := kernels.Pooling{
			Batch: 2, Channels: 16, In: [3]int{1, 7, 6}, Out: [3]int{1, 4, 3}, Kernel: [3]int{1, 3, 3}, Stride: [3]int{1, 2, 2}, Pad: [3]int{0, 1, 1},
			PadZeros: true, X: d.rows("x", s, x).m(), Y: y.m(), Index: index.pointer(), DY: d.rows("dy", ys, dy).m(), DX: dx.m(),
		}
		d.run(a.Forward(d.typ))
		d.near("y", d.typ, d.logical(y), wantY, 0, 0)
		d.run(a.Backward(d.typ))
		d.near("dx", d.typ, d.logical(dx), wantDX, 0, 16*0x1p-24)
	})
}

func TestLeakyReLUAndTanh(t *testing.T) {
	for _, shape := range shapes() {
		t.Run(name(shape), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				n := elements(shape)
				x, dy, acc := d.normal(d.typ, n, 0, 1), d.normal(d.typ, n, 0, 1), d.normal(d.typ, n, 0, 1)
				leaky, leakyBack, tanh, tanhBack := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
				for i := range x {
					v := float64(x[i])
					slope := 1.0
					if v <= 0 {
						slope = 0.25 // a power of two, as below
					}
					leaky[i], tanh[i] = slope*v, math.Tanh(v)
					leakyBack[i] = slope*float64(dy[i]) + float64(acc[i])
					tanhBack[i] = float64(dy[i])*(1-v*v) + float64(acc[i]) // x is taken for y
				}
				one := func(what string, want []float64, relative float64, f func(kernels.ElementwiseOp) ([]kernels.Launch, error)) {
					y := d.rows(what, shape, nil)
					d.run(f(kernels.ElementwiseOp{
						Rows: rowsOf(shape), Channels: kernels.PaddedChannels(shape[1]), A: d.rows(what+" a", shape, x).m(), B: d.rows(what+" b", shape, dy).m(),
						Acc: d.rows(what+" acc", shape, acc).m(), Y: y.m(),
					}))
					d.near(what, d.typ, d.logical(y), want, relative, 64*0x1p-24)
				}
				one("leaky", leaky, 0, func(a kernels.ElementwiseOp) ([]kernels.Launch, error) { return a.LeakyReLU(d.typ, 0.25) })
				one("leaky backward", leakyBack, 0, func(a kernels.ElementwiseOp) ([]kernels.Launch, error) { return a.LeakyReLUBackward(d.typ, 0.25) })
				one("tanh", tanh, 4*0x1p-24, func(a kernels.ElementwiseOp) ([]kernels.Launch, error) { return a.Tanh(d.typ) })
				one("tanh backward", tanhBack, 0, func(a kernels.ElementwiseOp) ([]kernels.Launch, error) { return a.TanhBackward(d.typ) })
			})
		})
	}
}

// TestSoftmaxCE: the mean loss, the hits and the gradient, with logits that would
// overflow an exponential, equal greatest ones, and a padded gradient.
func TestSoftmaxCE(t *testing.T) {
	for _, c := range []struct {
		rows, classes, pitch int
		smoothing            float64
	}{{1, 2, 8, 0}, {33, 10, 16, 0.1}, {7, 1000, 1000, 0}, {5, 300, 304, 0.25}, {1100, 3, 8, 0.5}} {
		t.Run(name(c.rows, c.classes, c.smoothing), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				z, target := d.normal(d.typ, c.rows*c.pitch, 0, 3), make([]float32, c.rows)
				want, wantDZ, hits := 0.0, make([]float64, c.rows*c.pitch), int64(0)
				for row := range c.rows {
					of := z[row*c.pitch : (row+1)*c.pitch]
					for j := c.classes; j < c.pitch; j++ {
						of[j] = float32(math.NaN()) // beside the logits
					}
					switch row % 4 {
					case 1:
						of[0] = 200
					case 2:
						of[0], of[1] = 50, 50
					}
					truth := d.random.IntN(c.classes)
					if row%3 == 0 {
						truth = row % 2
					}
					target[row] = float32(truth)
					greatest, first := math.Inf(-1), -1
					for j, v := range of[:c.classes] {
						if float64(v) > greatest {
							greatest, first = float64(v), j
						}
					}
					if first == truth {
						hits++
					}
					sum := 0.0
					for _, v := range of[:c.classes] {
						sum += math.Exp(float64(v) - greatest)
					}
					for j, v := range of[:c.classes] {
						q := c.smoothing / float64(c.classes)
						if j == truth {
							q += 1 - c.smoothing
						}
						logp := float64(v) - greatest - math.Log(sum)
						want -= q * logp / float64(c.rows)
						wantDZ[row*c.pitch+j] = 4 * (math.Exp(logp) - q) / float64(c.rows)
					}
				}
				loss, counts, dz := d.flat("loss", kernels.F32, 1, nil), d.alloc("counts", 32), d.flat("dz", d.typ, c.rows*c.pitch, nil)
				control := kernels.ControlBlock{LossScale: 8}
				block := d.alloc("control", kernels.ControlBytes)
				copy(block.mem.Bytes(), control.Bytes())
				a := kernels.SoftmaxCE{
					Rows: c.rows, Classes: c.classes, Z: d.flat("z", d.typ, len(z), z).pointer(), ZPitch: c.pitch,
					T: d.flat("t", kernels.F32, c.rows, target).pointer(), Smoothing: c.smoothing, Loss: loss.pointer(), Counts: counts.pointer(),
					Partial: d.flat("partial", kernels.F32, kernels.LossPartialSumFloats, nil).pointer(),
					DLoss:   d.flat("dloss", kernels.F32, 1, []float32{0.5}).pointer(), Control: block.pointer(), DZ: dz.pointer(), DZPitch: c.pitch,
				}
				d.run(a.Forward(d.typ))
				d.near("loss", kernels.F32, loss.values(1), []float64{want}, 4e-6, 1e-6)
				if got := int64(binary.LittleEndian.Uint64(counts.mem.Bytes())); got != hits {
					d.Fatalf("%d hits, want %d", got, hits)
				}
				d.run(a.Backward(d.typ))
				d.near("dz", d.typ, dz.values(len(z)), wantDZ, 64*0x1p-24, 16*0x1p-22/float64(c.rows))
			})
		})
	}
}

func TestL1(t *testing.T) {
	for _, c := range []struct {
		rows, channels, pitch int
		weight                float64 // of the exponentials of channel 0
	}{{1, 1, 1, 0}, {20001, 1, 1, 0}, {301, 3, 8, 0}, {64, 8, 8, 0}, {20001, 1, 1, 1e-4}, {301, 3, 8, 1e-3}} {
		t.Run(name(c.rows, c.channels, c.pitch, "weight", c.weight), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				n := c.rows * c.channels
				y, target := d.normal(d.typ, c.rows*c.pitch, 0, 0.25), d.normal(kernels.F32, n, 0, 0.25)
				want, wantDY := 0.0, make([]float64, c.rows*c.pitch)
				for i := range y {
					if i%c.pitch >= c.channels {
						y[i] = float32(math.NaN())
						continue
					}
					k := i/c.pitch*c.channels + i%c.pitch
					if k%17 == 4 {
						target[k] = y[i] // no gradient
					}
					e := float64(y[i]) - float64(target[k])
					want += math.Abs(e) / float64(n)
					switch {
					case e > 0:
						wantDY[i] = 4 / float64(n)
					case e < 0:
						wantDY[i] = -4 / float64(n)
					}
					if i%c.pitch == 0 {
						v := math.Exp(14 * float64(y[i]))
						want += c.weight * math.Abs(v-math.Exp(14*float64(target[k]))) / float64(c.rows)
						wantDY[i] *= 1 + c.weight*14*v*float64(c.channels)
					}
				}
				loss, dy := d.flat("loss", kernels.F32, 1, nil), d.flat("dy", d.typ, len(y), nil)
				control := kernels.ControlBlock{LossScale: 8}
				block := d.alloc("control", kernels.ControlBytes)
				copy(block.mem.Bytes(), control.Bytes())
				a := kernels.L1{ExpWeight: c.weight, BCE: kernels.BCE{
					Rows: c.rows, Channels: c.channels, Z: d.flat("y", d.typ, len(y), y).pointer(), ZPitch: c.pitch,
					T: d.flat("t", kernels.F32, n, target).pointer(), Loss: loss.pointer(),
					Partial: d.flat("partial", kernels.F32, kernels.LossPartialSumFloats, nil).pointer(),
					DLoss:   d.flat("dloss", kernels.F32, 1, []float32{0.5}).pointer(), Control: block.pointer(), DZ: dy.pointer(), DZPitch: c.pitch,
				}}
				d.run(a.Forward(d.typ))
				d.near("loss", kernels.F32, loss.values(1), []float64{want}, 4e-6, 1e-6)
				d.run(a.Backward(d.typ))
				d.near("dy", d.typ, dy.values(len(y)), wantDY, 64*0x1p-24, 0)
			})
		})
	}
}

// TestDiceBCE compares with engine/reference: maps of several chunks and of one, several
// channels, logits far out, a sample without foreground.
func TestDiceBCE(t *testing.T) {
	for _, c := range []struct {
		samples, channels, height, width, pitch int
		weight                                  float64
	}{{1, 1, 1, 1, 1, 0.5}, {3, 1, 61, 70, 1, 0.5}, {2, 3, 9, 11, 8, 0.3}, {2, 8, 17, 16, 8, 1}, {1, 1, 8, 8, 8, 0.01}} {
		t.Run(name(c.samples, c.channels, c.height, c.width, "weight", c.weight), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				points := c.height * c.width
				rows, shape := c.samples*points, []int{c.samples, c.channels, c.height, c.width}
				n := rows * c.channels
				z, target := d.normal(d.typ, n, 0, 3), make([]float32, n) // in logical order
				spread, dense := make([]float32, rows*c.pitch), make([]float32, n)
				for i := range spread {
					spread[i] = float32(math.NaN())
				}
				at := func(i int) (row, channel int) { // of a logical index
					return i/(points*c.channels)*points + i%points, i / points % c.channels
				}
				for i := range z {
					if i%101 == 7 {
						z[i] *= 16
					}
					if i >= points && d.random.IntN(3) == 0 {
						target[i] = 1
					}
					row, channel := at(i)
					spread[row*c.pitch+channel], dense[row*c.channels+channel] = z[i], target[i]
				}
				loss, counts, dz := d.flat("loss", kernels.F32, 1, nil), d.alloc("counts", 32), d.flat("dz", d.typ, rows*c.pitch, nil)
				control := kernels.ControlBlock{LossScale: 8}
				block := d.alloc("control", kernels.ControlBytes)
				copy(block.mem.Bytes(), control.Bytes())
				a := kernels.DiceBCE{Points: points, Weight: c.weight, BCE: kernels.BCE{
					Rows: rows, Channels: c.channels, Z: d.flat("z", d.typ, len(spread), spread).pointer(), ZPitch: c.pitch,
					T: d.flat("t", kernels.F32, n, dense).pointer(), Loss: loss.pointer(), Counts: counts.pointer(),
					Partial: d.flat("partial", kernels.F32, kernels.DicePartialSumFloats(rows, points, c.channels), nil).pointer(),
					DLoss:   d.flat("dloss", kernels.F32, 1, []float32{0.5}).pointer(), Control: block.pointer(), DZ: dz.pointer(), DZPitch: c.pitch,
				}}
				attr := plan.KernelAttr{DiceWeight: c.weight}
				in := []operand{{shape: shape, values: z}, {shape: shape, values: target}, {shape: []int{1}, values: []float32{4}}} // 0.5·8
				d.run(a.Forward(d.typ))
				d.near("loss", kernels.F32, loss.values(1), truth(d.T, plan.OpDiceBCE, attr, in[:2], []int{1})[0], 4e-6, 0)
				d.counts(counts, metric.CountLogits(z, target))

				d.run(a.Backward(d.typ))
				want, padded := truth(d.T, plan.OpDiceBCEBackward, attr, in, shape)[0], make([]float64, rows*c.pitch)
				for i, v := range want {
					row, channel := at(i)
					padded[row*c.pitch+channel] = v
				}
				d.near("dz", d.typ, dz.values(len(padded)), padded, 64*0x1p-24, 16*0x1p-22/float64(n))
			})
		})
	}
}
