package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// forEachAssembly calls f for each instruction set with assembly that this processor
// supports, with the assembly and the plain Go version of the Set.
func forEachAssembly(t *testing.T, f func(t *testing.T, fast, slow *Set)) {
	t.Helper()
	all := assemblyKernelSets()
	if len(all) == 0 {
		t.Skip("there is no assembly for this processor")
	}
	for _, fast := range all {
		slow := newPlainGoKernelSet()
		if fast.GEMM.Interleaved {
			slow = NewPlainGoAVX512KernelSet()
		}
		t.Run(fast.Name, func(t *testing.T) { f(t, fast, slow) })
	}
}

// guardFloats is the number of floats before and after the memory that a function may
// write. The tests check that functions do not change them.
const guardFloats = 16

// randomValues returns n random floats, and the slice that contains them between two
// guards.
func randomValues(rng *rand.Rand, n int) (v, all []float32) {
	all = NewAlignedFloats(n + 2*guardFloats)
	for i := range all {
		all[i] = float32(rng.NormFloat64())
	}
	return all[guardFloats : guardFloats+n], all
}

// copyGuarded returns a copy of v, and the slice that contains it between two guards of
// zeros.
func copyGuarded(v []float32) (c, all []float32) {
	all = NewAlignedFloats(len(v) + 2*guardFloats)
	copy(all[guardFloats:], v)
	return all[guardFloats : guardFloats+len(v)], all
}

// checkSame fails the test if the slices differ by more than tol times the greatest
// magnitude (at least 1). The assembly fuses multiplications and additions, which then
// round once instead of twice, and adds in another order.
func checkSame(t *testing.T, what string, fast, slow []float32, tol float64) {
	t.Helper()
	top := 1.0
	for _, v := range slow {
		top = max(top, math.Abs(float64(v)))
	}
	for i := range slow {
		if d := math.Abs(float64(fast[i]) - float64(slow[i])); !(d <= tol*top) {
			t.Fatalf("%s[%d]: assembly has %v, plain Go %v", what, i-guardFloats, fast[i], slow[i])
		}
	}
}

// TestGemm compares the matrix kernel for every number of rows of the last tile, alone and after
// two full tiles, with even and odd numbers of steps.
func TestGemm(t *testing.T) { forEachAssembly(t, checkGemm) }

func checkGemm(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, deep := range []bool{true, false} {
		for wide := 1; wide <= fast.GEMM.Blocks; wide *= 2 {
			for rows := 1; rows <= fast.GEMM.Rows; rows++ {
				for _, nstep := range []int{0, 1, 3, 4, 5, 9} {
					for _, tiles := range []int{1, 3} {
						full, depth := fast.GEMM.Rows, 1
						f, s := &fast.GEMM.Flat[wide], &slow.GEMM.Flat[wide]
						if deep {
							f, s, depth = &fast.GEMM.Deep[wide], &slow.GEMM.Deep[wide], Lanes
						}
						x, _ := randomValues(rng, 4096)
						wNext := nstep*depth*Lanes + 8
						w, _ := randomValues(rng, wide*(wNext+Lanes*Lanes)+nstep*wNext)
						bias, _ := randomValues(rng, wide*Lanes)
						steps := make([]int32, nstep+1)
						for i := range steps {
							steps[i] = int32(4 * rng.IntN(2000))
						}
						if deep { // weights in any order
							pairs := make([]int32, 0, 2*len(steps))
							for _, s := range steps {
								pairs = append(pairs, s, int32(4*Lanes*Lanes*rng.IntN(nstep+1)))
							}
							steps = pairs
						}
						table := make([]int32, tiles*2*full)
						places := rng.Perm(tiles * full) // rows of the output, each once
						for i := range table {
							table[i] = int32(4 * rng.IntN(2000))
							if i%(2*full) >= full {
								table[i] = int32(32 * wide * places[i/(2*full)*full+i%full])
							}
						}
						// The blocks of a row's outputs are next to each other, or apart.
						for _, yNext := range []int{Lanes, tiles * full * wide * Lanes} {
							for _, accumulate := range []bool{false, true} {
								y, all := randomValues(rng, wide*wide*tiles*full*Lanes)
								z, plain := copyGuarded(y)
								copy(plain, all)
								n := (tiles-1)*full + rows
								MultiplyRows(f, full, x, w, y, bias, table, steps, 4*wNext, 4*yNext, nstep, n, accumulate)
								MultiplyRows(s, full, x, w, z, bias, table, steps, 4*wNext, 4*yNext, nstep, n, accumulate)
								checkSame(t, "y", all, plain, 1e-5)
							}
						}
					}
				}
			}
		}
	}
}

// TestPixelFunctions compares the functions on pixels and floats, with numbers of pixels
// that do not fill unrolled loops.
func TestPixelFunctions(t *testing.T) { forEachAssembly(t, checkPixelFunctions) }

func checkPixelFunctions(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, pixels := range []int{1, 2, 3, 4, 5, 7, 8, 31, 512} {
		n := pixels * Lanes
		x, _ := randomValues(rng, n)
		dy, _ := randomValues(rng, n)
		p, _ := randomValues(rng, NormConstantFloats)
		q, _ := randomValues(rng, NormGradConstantFloats)
		check := func(what string, size int, run func(k *Set, out *float32)) {
			t.Helper()
			a, all := randomValues(rng, size)
			b, plain := copyGuarded(a)
			copy(plain, all)
			run(fast, &a[0])
			run(slow, &b[0])
			checkSame(t, what, all, plain, 1e-5)
		}
		check("deviations", 3*Lanes, func(k *Set, out *float32) { k.Deviations(&x[0], pixels, out) })
		check("sums", Lanes, func(k *Set, out *float32) { k.Sums(&x[0], pixels, out) })
		check("normalize", n, func(k *Set, out *float32) { k.Normalize(&x[0], out, &p[0], pixels) })
		check("normSums", 2*Lanes, func(k *Set, out *float32) { k.NormSums(&x[0], &dy[0], &p[0], &q[0], out, pixels) })
		check("normGrad", n, func(k *Set, out *float32) { k.NormGrad(&x[0], &dy[0], out, &p[0], &q[0], pixels) })
		check("normGrad in place", n, func(k *Set, out *float32) { k.NormGrad(&x[0], out, out, &p[0], &q[0], pixels) })
		z, _ := randomValues(rng, n)
		for i := range z {
			z[i] *= []float32{1, 10, 50, 1000}[i%4] // far ones must not overflow
		}
		check("bce", Lanes, func(k *Set, out *float32) { k.BCE(&z[0], &dy[0], out, n) })
		check("exp", n, func(k *Set, out *float32) { k.Exp(&z[0], out, n) })
		check("bceGrad", n, func(k *Set, out *float32) { k.BCEGrad(&z[0], &dy[0], out, &p[0], n) })
		check("add", n, func(k *Set, out *float32) { k.Add(&x[0], &dy[0], out, n) })
		check("relu", n, func(k *Set, out *float32) { k.ReLU(&x[0], out, n) })
		check("leaky", n, func(k *Set, out *float32) { k.Leaky(&x[0], &dy[0], out, &p[0], n) })
		check("tanhGrad", n, func(k *Set, out *float32) { k.TanhGrad(&x[0], &dy[0], out, n) })
		check("distances", Lanes, func(k *Set, out *float32) { k.Distances(&x[0], &dy[0], out, n) })
		same := append([]float32{}, x...)
		copy(same[:Lanes/2], dy)
		check("signs", n, func(k *Set, out *float32) { k.Signs(&x[0], &same[0], out, &p[0], n) })
		check("reluGrad", n, func(k *Set, out *float32) { k.ReLUGrad(&x[0], &dy[0], out, n) })
	}
}

// TestBoxes compares the functions that copy and normalize boxes of pixels. They must not change
// the memory between the rows and planes of the copy.
func TestBoxes(t *testing.T) { forEachAssembly(t, checkBoxes) }

func checkBoxes(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(15, 16))
	for _, b := range []PixelBox{
		{Pixels: 1, Rows: 1, Planes: 1},
		{Pixels: 6, Rows: 5, Planes: 3, FromRow: 7 * 32, FromPlane: 6 * 7 * 32, ToRow: 6 * 32, ToPlane: 36 * 32},
		{Pixels: 4, Rows: 1, Planes: 7, FromPlane: 4 * 32, ToPlane: 9 * 32},
		{Pixels: 2, Rows: 3, Planes: 2, FromRow: 32, FromPlane: 64, ToRow: 3 * 32, ToPlane: 10 * 32},
		{Pixels: 5, Rows: 2, Planes: 0},
	} {
		x, _ := randomValues(rng, 1024)
		p, _ := randomValues(rng, (b.Planes+1)*NormConstantFloats)
		for name, run := range map[string]func(k *Set, out *float32){
			"copy":      func(k *Set, out *float32) { k.CopyBox(&x[0], out, b) },
			"normalize": func(k *Set, out *float32) { k.NormalizeBox(&x[0], out, &p[0], b) },
		} {
			a, all := randomValues(rng, 1024)
			c, plain := copyGuarded(a)
			copy(plain, all)
			run(fast, &a[0])
			run(slow, &c[0])
			checkSame(t, name, all, plain, 1e-6)
		}
	}
}

// TestTranspose compares the functions that move weights, which must be exact.
func TestTranspose(t *testing.T) { forEachAssembly(t, checkTranspose) }

func checkTranspose(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(5, 6))
	x, _ := randomValues(rng, Lanes*Lanes)
	a, all := randomValues(rng, Lanes*Lanes)
	b, plain := copyGuarded(a)
	copy(plain, all)
	fast.Transpose(&a[0], &x[0], 4*Lanes)
	slow.Transpose(&b[0], &x[0], 4*Lanes)
	checkSame(t, "tile", all, plain, 0)
	c, all := randomValues(rng, 3*Lanes*Lanes)
	d, plain := copyGuarded(c)
	copy(plain, all)
	fast.Transpose(&c[0], &x[0], 3*4*Lanes)
	slow.Transpose(&d[0], &x[0], 3*4*Lanes)
	checkSame(t, "tile with gaps", all, plain, 0)
	fast.Spread(&c[0], &x[0], 2*4*Lanes, 5)
	slow.Spread(&d[0], &x[0], 2*4*Lanes, 5)
	checkSame(t, "spread vectors", all, plain, 0)
}

// TestPooling compares max pooling and its gradient, with windows that touch, overlap or
// leave gaps, and with equal maxima.
func TestPooling(t *testing.T) { forEachAssembly(t, checkPooling) }

func checkPooling(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, w := range [][3]int{{2, 2, 2}, {3, 2, 1}, {1, 3, 4}, {1, 1, 1}, {16, 16, 3}} {
		kh, kw, stride := w[0], w[1], w[2]
		const count = 7
		cols := (count-1)*stride + kw
		x, _ := randomValues(rng, kh*cols*Lanes)
		for i := range x {
			x[i] = float32(int(2 * x[i]))
		}
		dy, _ := randomValues(rng, count*Lanes)
		p, _ := randomValues(rng, NormConstantFloats)
		index, other := make([]byte, count*Lanes+1), make([]byte, count*Lanes+1)
		index[count*Lanes], other[count*Lanes] = 77, 77 // a guard
		y, all := randomValues(rng, count*Lanes)
		z, plain := copyGuarded(y)
		copy(plain, all)
		fast.MaxPool(&x[0], &y[0], &p[0], &index[0], count, kh, kw, cols*Lanes*4, stride*Lanes*4)
		slow.MaxPool(&x[0], &z[0], &p[0], &other[0], count, kh, kw, cols*Lanes*4, stride*Lanes*4)
		checkSame(t, "y", all, plain, 1e-6) // FMA rounds once
		if !bytes.Equal(index, other) {
			t.Fatalf("index of %v: assembly has %v, plain Go %v", w, index, other)
		}
		dx, all := randomValues(rng, len(x))
		dz, plain := copyGuarded(dx)
		copy(plain, all)
		fast.MaxPoolGrad(&index[0], &dy[0], &dx[0], count, kh, kw, cols*Lanes*4, stride*Lanes*4)
		slow.MaxPoolGrad(&index[0], &dy[0], &dz[0], count, kh, kw, cols*Lanes*4, stride*Lanes*4)
		checkSame(t, "dx", all, plain, 0)
	}
}

// TestOptimizers compares the optimizers on lengths of one vector and more.
func TestOptimizers(t *testing.T) { forEachAssembly(t, checkOptimizers) }

func checkOptimizers(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(9, 10))
	c := []float32{0.01, 0.9, 0.1, 0.999, 0.001, 1.5, 1e-8, 0.02}
	for _, n := range []int{8, 24, 1000} {
		g, _ := randomValues(rng, n)
		for _, rule := range []string{"adam", "momentum", "sgd"} {
			var buffers, plain [3][]float32 // w and two slots
			for i := range buffers {
				_, buffers[i] = randomValues(rng, n)
				for j := range buffers[i] {
					buffers[i][j] = max(buffers[i][j], -buffers[i][j]) // v is a sum of squares
				}
				_, plain[i] = copyGuarded(buffers[i][guardFloats : guardFloats+n])
				copy(plain[i], buffers[i])
			}
			for i, k := range []*Set{fast, slow} {
				b := [2][3][]float32{buffers, plain}[i]
				w, m, v := &b[0][guardFloats], &b[1][guardFloats], &b[2][guardFloats]
				switch rule {
				case "adam":
					k.Adam(w, &g[0], m, v, &c[0], n)
				case "momentum":
					k.Momentum(w, &g[0], m, &c[0], n)
				default:
					k.SGD(w, &g[0], &c[0], n)
				}
			}
			for i := range buffers {
				checkSame(t, rule, buffers[i], plain[i], 1e-6)
			}
		}
	}
}
