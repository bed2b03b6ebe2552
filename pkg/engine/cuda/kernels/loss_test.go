package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/metric"
)

// TestBCE: the mean loss, the counts and the gradient, with logits that would
// overflow an exponential, exact zeros and a padded gradient.
func TestBCE(t *testing.T) {
	for _, c := range []struct{ rows, channels, pitch int }{{1, 1, 1}, {1000, 1, 1}, {20001, 1, 1}, {301, 3, 8}, {64, 8, 8}} {
		t.Run(name(c.rows, c.channels, c.pitch), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				n := c.rows * c.channels
				shape := []int{1, 1, c.rows, c.channels} // both sides count rows × channels
				z, target := d.normal(d.typ, n, 0, 4), make([]float32, n)
				for i := range z {
					switch {
					case i%11 == 3:
						z[i] = 0
					case i%101 == 7:
						z[i] = round(d.typ, 20*z[i])
					}
					if d.random.IntN(3) == 0 {
						target[i] = 1
					}
					if i%13 == 5 {
						target[i] = 0.5 // a soft mask's, which is no foreground yet
					}
				}
				spread := make([]float32, c.rows*c.pitch)
				for i := range spread {
					spread[i] = float32(math.NaN()) // beside the logits
				}
				for i := range z {
					spread[i/c.channels*c.pitch+i%c.channels] = z[i]
				}
				loss, counts := d.flat("loss", kernels.F32, 1, nil), d.alloc("counts", 32)
				dz := d.flat("dz", d.typ, c.rows*c.pitch, nil)
				control := kernels.ControlBlock{LossScale: 8}
				block := d.alloc("control", kernels.ControlBytes)
				copy(block.mem.Bytes(), control.Bytes())
				a := kernels.BCE{
					Rows: c.rows, Channels: c.channels, Z: d.flat("z", d.typ, len(spread), spread).pointer(), ZPitch: c.pitch,
					T: d.flat("t", kernels.F32, n, target).pointer(), Loss: loss.pointer(), Counts: counts.pointer(),
					Partial: d.flat("partial", kernels.F32, kernels.LossPartialSumFloats, nil).pointer(),
					DLoss:   d.flat("dloss", kernels.F32, 1, []float32{0.5}).pointer(), Control: block.pointer(), DZ: dz.pointer(), DZPitch: c.pitch,
				}
				in := []operand{{shape: shape, values: z}, {shape: shape, values: target}, {shape: []int{1}, values: []float32{4}}} // 0.5·8
				want := truth(d.T, plan.OpBCEWithLogits, plan.KernelAttr{}, in[:2], []int{1})[0]
				once := metric.CountLogits(z, target)
				d.run(a.Forward(d.typ))
				d.near("loss", kernels.F32, loss.values(1), want, 1e-6, 0)
				d.counts(counts, once)
				a.Accumulate = true
				d.run(a.Forward(d.typ))
				twice := once
				twice.Add(once)
				d.counts(counts, twice)

				d.run(a.Backward(d.typ))
				want = truth(d.T, plan.OpBCEWithLogitsBackward, plan.KernelAttr{}, in, shape)[0]
				padded := make([]float64, c.rows*c.pitch)
				for i := range want {
					padded[i/c.channels*c.pitch+i%c.channels] = want[i]
				}
				d.near("dz", d.typ, dz.values(len(padded)), padded, 8*0x1p-24, 4*0x1p-22/float64(n))
			})
		})
	}
}

func (d *device) counts(x *tensor, want metric.Counts) {
	d.Helper()
	var got [4]int64
	for i := range got {
		got[i] = int64(binary.LittleEndian.Uint64(x.mem.Bytes()[8*i:]))
	}
	if c := (metric.Counts{TP: got[0], FP: got[1], FN: got[2], TN: got[3]}); c != want {
		d.Fatalf("counts are %+v, want %+v", c, want)
	}
}

// TestHead compares with engine/reference's convolution of window 1. x has one row
// less than whole warps need, widths that no power of two fits.
func TestHead(t *testing.T) {
	for _, shape := range [][]int{{1, 1, 1, 1}, {2, 64, 9, 7}, {1, 24, 5, 5}, {3, 17, 11, 13}, {1, 264, 3, 5}, {1, 520, 2, 2}, {2, 16, 40, 33}} {
		for _, bias := range []bool{false, true} {
			t.Run(name(shape, "bias", bias), func(t *testing.T) {
				eachDevice(t, func(d *device) { head(d, shape, bias) })
			})
		}
	}
}

func head(d *device, shape []int, bias bool) {
	n, c := rowsOf(shape), shape[1]
	padded := kernels.PaddedChannels(c)
	zs, ws := []int{shape[0], 1, shape[2], shape[3]}, []int{1, c, 1, 1}
	x, w, b := d.normal(d.typ, n*c, 0, 1), d.normal(kernels.F32, c, 0, 1), d.normal(kernels.F32, 1, 0, 1)
	dz, acc := d.normal(kernels.F32, n, 0, 1), d.normal(d.typ, n*c, 0, 1)
	z, dx, dw, db := d.flat("z", kernels.F32, n, nil), d.rows("dx", shape, nil), d.empty("dw", c), d.flat("db", kernels.F32, 1, nil)
	a := kernels.HeadConvolution{
		Rows: n, Channels: padded, X: d.rows("x", shape, x).m(), W: d.channels("w", w).pointer(), Z: z.pointer(),
		DZ: d.flat("dz", kernels.F32, n, dz).pointer(), DX: dx.m(), DW: dw.pointer(),
		Partial: d.flat("partial", kernels.F32, kernels.PartialSumFloats(n, padded), nil).pointer(),
	}
	attr := plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{0, 0}}
	in := []operand{{shape: shape, values: x}, {shape: ws, values: w}}
	if bias {
		a.Bias, a.DBias = d.flat("bias", kernels.F32, 1, b).pointer(), db.pointer()
		in = append(in, operand{shape: []int{1}, values: b})
	}
	d.run(a.Forward(d.typ))
	width := float64(c) * 0x1p-23 // c products of about 1
	d.near("z", kernels.F32, z.values(n), truth(d.T, plan.OpConv, attr, in, zs)[0], 1e-6, 1e-6+width)

	d.run(a.BackwardWeights(d.typ))
	gradient := operand{shape: zs, values: dz}
	sum := 4e-6 + float64(n)*0x1p-24
	d.near("dw", kernels.F32, dw.values(c), truth(d.T, plan.OpConvBackwardWeights, attr, []operand{in[0], gradient}, ws)[0], 1e-6, sum)
	if bias {
		d.near("db", kernels.F32, db.values(1), truth(d.T, plan.OpBiasBackward, plan.KernelAttr{}, []operand{gradient}, []int{1})[0], 1e-6, sum)
	}

	d.run(a.BackwardData(d.typ))
	want := truth(d.T, plan.OpConvBackwardData, attr, []operand{in[1], gradient}, shape)[0]
	d.near("dx", d.typ, d.logical(dx), want, 0x1p-23, 0)
	a.Acc = d.rows("acc", shape, acc).m()
	d.run(a.BackwardData(d.typ))
	for i := range want {
		want[i] += float64(acc[i])
	}
	d.near("dx and acc", d.typ, d.logical(dx), want, 0x1p-23, 16*0x1p-24)
}

// TestCeilings: the kernels that measure a machine compute what they say.
func TestCeilings(t *testing.T) {
	sim := openSimulator(t)
	d := &device{T: t, sim: sim}
	for i, make := range []func(out kernels.Pointer) (kernels.ThroughputTest, error){
		func(out kernels.Pointer) (kernels.ThroughputTest, error) { return kernels.NewFMATest(out, 2, 11) },
		func(out kernels.Pointer) (kernels.ThroughputTest, error) {
			return kernels.NewMMATest(kernels.F16, out, 2, 11)
		},
		func(out kernels.Pointer) (kernels.ThroughputTest, error) {
			return kernels.NewMMATest(kernels.BF16, out, 2, 11)
		},
	} {
		out := d.flat(fmt.Sprint("out", i), kernels.F32, 512, nil)
		c, err := make(out.pointer())
		if err != nil {
			t.Fatal(err)
		}
		d.run([]kernels.Launch{c.Launch}, nil)
		// 2 blocks of 256 threads, 11 turns: 16 multiply-adds a thread, or 8 products
		// of 16×8×16 a warp of 32.
		result, flop := 11.0, 512.*11*16*2
		if i > 0 {
			result, flop = 11*16, 16.*11*8*(2*16*8*16)
		}
		if c.FLOP != flop {
			t.Errorf("ceiling %d counts %g operations, want %g", i, c.FLOP, flop)
		}
		for _, v := range out.mem.F32() {
			if float64(v) != result {
				t.Fatalf("ceiling %d: %g, want %g", i, v, result)
			}
		}
	}
	d.finish()
	if c, err := kernels.NewMMATest(kernels.F32, 64, 1, 1); err == nil {
		t.Errorf("tensor cores in float32: %+v", c)
	}
}

// counting are the numbers 0 to n−1.
func (d *device) counting(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i)
	}
	return v
}
