package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/plan"
)

// name makes the name of a subtest.
func name(parts ...any) string {
	s := ""
	for i, p := range parts {
		if i > 0 {
			s += "-"
		}
		s += fmt.Sprint(p)
	}
	return s
}

func TestBias(t *testing.T) {
	for _, shape := range shapes() {
		for _, relu := range []bool{false, true} {
			for _, sum := range []bool{false, true} {
				t.Run(name(shape, "relu", relu, "add", sum), func(t *testing.T) {
					eachDevice(t, func(d *device) {
						n, c := rowsOf(shape), shape[1]
						x, bias, z := d.normal(d.typ, n*c, 0, 1), d.normal(kernels.F32, c, 0, 1), d.normal(d.typ, n*c, 0, 1)
						y := d.rows("y", shape, nil)
						a := kernels.Bias{Rows: n, Channels: kernels.PaddedChannels(c), X: d.rows("x", shape, x).m(), Y: y.m(), Bias: d.channels("bias", bias).pointer(), ReLU: relu}
						if sum {
							a.Add = d.rows("add", shape, z).m()
						}
						d.run(a.Launches(d.typ))
						want, spatial := make([]float64, n*c), n/shape[0]
						for i := range want {
							want[i] = float64(x[i]) + float64(bias[i/spatial%c])
							if sum {
								want[i] += float64(z[i])
							}
							if relu {
								want[i] = max(want[i], 0)
							}
						}
						d.near("y", d.typ, d.logical(y), want, 0, 4*0x1p-24)
					})
				})
			}
		}
	}
}

func TestBiasBackward(t *testing.T) {
	for _, shape := range shapes() {
		for _, relu := range []bool{false, true} {
			t.Run(name(shape, "relu", relu), func(t *testing.T) {
				eachDevice(t, func(d *device) {
					n, c := rowsOf(shape), shape[1]
					padded := kernels.PaddedChannels(c)
					dy, y := d.normal(d.typ, n*c, 0.2, 1), d.normal(d.typ, n*c, 0, 1)
					db, dx := d.empty("db", c), d.rows("dx", shape, nil)
					a := kernels.BiasGrad{
						Rows: n, Channels: padded, DY: d.rows("dy", shape, dy).m(), DBias: db.pointer(),
						Partial: d.flat("partial", kernels.F32, kernels.PartialSumFloats(n, padded), nil).pointer(),
					}
					masked := dy
					if relu {
						a.Y, a.DX = d.rows("y", shape, y).m(), dx.m()
						masked = float32s(truth(d.T, plan.OpReLUBackward, plan.KernelAttr{}, []operand{{shape: shape, values: y}, {shape: shape, values: dy}}, shape)[0])
					}
					d.run(a.Launches(d.typ))
					want := truth(d.T, plan.OpBiasBackward, plan.KernelAttr{}, []operand{{shape: shape, values: masked}}, []int{c})
					d.near("db", kernels.F32, db.values(c), want[0], 1e-6, 1e-6+float64(n)*0x1p-24)
					if relu {
						d.near("dx", d.typ, d.logical(dx), int64Arg(masked), 0, 0)
					}
				})
			})
		}
	}
}

// TestElementwise: ReLU, its backward pass and addition, exact but for the sum's
// rounding. NaN passes a ReLU; a zero lets no gradient through.
func TestElementwise(t *testing.T) {
	for _, shape := range shapes() {
		t.Run(name(shape), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				n, c := rowsOf(shape), shape[1]
				a, b, acc := d.normal(d.typ, n*c, 0, 1), d.normal(d.typ, n*c, 0, 1), d.normal(d.typ, n*c, 0, 1)
				a[0], a[n*c/2] = float32(math.NaN()), 0
				am, bm, accm := d.rows("a", shape, a), d.rows("b", shape, b), d.rows("acc", shape, acc)
				relu, back, both, sum := d.rows("relu", shape, nil), d.rows("back", shape, nil), d.rows("both", shape, nil), d.rows("sum", shape, nil)
				e := kernels.ElementwiseOp{Rows: n, Channels: kernels.PaddedChannels(c), A: am.m(), B: bm.m()}
				with := func(y, acc *tensor) kernels.ElementwiseOp {
					f := e
					f.Y, f.Acc = y.m(), acc.m()
					return f
				}
				d.run(with(relu, nil).ReLU(d.typ))
				d.run(with(back, nil).ReLUBackward(d.typ))
				d.run(with(both, accm).ReLUBackward(d.typ))
				d.run(with(sum, nil).Add(d.typ))
				x := []operand{{shape: shape, values: a}, {shape: shape, values: b}}
				d.near("relu", d.typ, d.logical(relu), truth(d.T, plan.OpReLU, plan.KernelAttr{}, x[:1], shape)[0], 0, 0)
				gradient := truth(d.T, plan.OpReLUBackward, plan.KernelAttr{}, x, shape)[0]
				d.near("relu backward", d.typ, d.logical(back), gradient, 0, 0)
				d.near("add", d.typ, d.logical(sum), truth(d.T, plan.OpAdd, plan.KernelAttr{}, x, shape)[0], 0, 0)
				for i := range gradient {
					gradient[i] += float64(acc[i])
				}
				d.near("relu backward and acc", d.typ, d.logical(both), gradient, 0, 0x1p-23)
			})
		})
	}
}

// TestConcatAndSlice copies channels, also at odd offsets, where no vector fits.
func TestConcatAndSlice(t *testing.T) {
	for _, c := range [][2]int{{8, 16}, {3, 5}, {16, 3}, {5, 24}, {1, 1}} {
		t.Run(name(c), func(t *testing.T) {
			eachDevice(t, func(d *device) {
				sa, sb, sy := []int{2, c[0], 3, 5}, []int{2, c[1], 3, 5}, []int{2, c[0] + c[1], 3, 5}
				a, b := d.normal(d.typ, elements(sa), 0, 1), d.normal(d.typ, elements(sb), 0, 1)
				am, bm := d.rows("a", sa, a), d.rows("b", sb, b)
				y := d.rows("y", sy, make([]float32, elements(sy))).inOut()
				copyTo := func(src, dst *tensor, from, to, channels int) {
					d.run(kernels.ChannelCopy{
						Rows: 30, Channels: channels,
						Src: src.m().Data + kernels.Pointer(from*d.typ.Bytes()), SrcPitch: src.pitch,
						Dst: dst.m().Data + kernels.Pointer(to*d.typ.Bytes()), DstPitch: dst.pitch,
					}.Launches(d.typ))
				}
				copyTo(am, y, 0, 0, c[0])
				copyTo(bm, y, 0, c[0], c[1])
				in := []operand{{shape: sa, values: a}, {shape: sb, values: b}}
				want := truth(d.T, plan.OpConcat, plan.KernelAttr{}, in, sy)[0]
				d.near("concat", d.typ, d.logical(y), want, 0, 0)
				back := d.rows("slice", sb, make([]float32, elements(sb))).inOut()
				copyTo(y, back, c[0], 0, c[1])
				d.near("slice", d.typ, d.logical(back), int64Arg(b), 0, 0)
			})
		})
	}
}

// TestCasts: odd lengths; rounding to nearest even, infinities, NaN, the largest and
// the smallest numbers, halfway cases (1+2⁻⁹ and 1+3·2⁻⁹ lie between bfloat16s,
// 1+2⁻¹¹ and 1+3·2⁻¹¹ between float16s, 2⁻²⁵ between 0 and float16's smallest).
func TestCasts(t *testing.T) {
	special := []float32{
		0, float32(math.Copysign(0, -1)), 1, 1 + 0x1p-9, 1 + 3*0x1p-9, 1 + 0x1p-11, 1 + 3*0x1p-11, 65504, 65519.996, 65520, -65520, 1e30,
		math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-14, 0x1.ffcp-15, 0x1.fffp-15, math.SmallestNonzeroFloat32,
	}
	for _, n := range []int{1, 7, 8, 23, 2048*3 + 5} {
		for _, shift := range []int{0, 1} { // the second is aligned for no vector
			t.Run(name(n, "shift", shift), func(t *testing.T) {
				eachDevice(t, func(d *device) {
					values := d.normal(kernels.F32, n, 0, 100)
					copy(values, special)
					src := d.flat("src", kernels.F32, n+shift, append(make([]float32, shift), values...))
					low, back := d.flat("low", d.typ, n+shift, nil), d.flat("back", kernels.F32, n+shift, nil)
					at := func(x *tensor) kernels.Pointer { return x.pointer() + kernels.Pointer(shift*x.typ.Bytes()) }
					d.run(kernels.CastFromF32(d.typ, at(src), at(low), n))
					d.run(kernels.CastToF32(d.typ, at(low), at(back), n))
					for i, v := range back.mem.F32()[shift:] {
						want := round(d.typ, values[i])
						if math.Float32bits(v) != math.Float32bits(want) && (v == v || want == want) {
							d.Fatalf("%g becomes %g, want %g", values[i], v, want)
						}
					}
				})
			})
		}
	}
}

func TestFill(t *testing.T) {
	for _, n := range []int{1, 3, 4, 1031} {
		for _, shift := range []int{0, 1} {
			eachDevice(t, func(d *device) {
				x := d.flat("x", kernels.F32, n+shift, nil)
				d.run(kernels.FillWords(x.pointer()+kernels.Pointer(4*shift), 0xdeadbeef, n))
				for i, w := range words(x.mem.Bytes()) {
					if (w == 0xdeadbeef) != (i >= shift) {
						d.Fatalf("word %d of %d+%d is %#x", i, shift, n, w)
					}
				}
			})
		}
	}
}
