package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// eachTwin calls f for each instruction set with assembly that this processor supports,
// with the assembly and its plain Go twins.
func eachTwin(t *testing.T, f func(t *testing.T, fast, slow *Set)) {
	t.Helper()
	all := assemblySets()
	if len(all) == 0 {
		t.Skip("there is no assembly for this processor")
	}
	for _, fast := range all {
		slow := plainGo()
		if fast.GEMM.Joined {
			slow = WideGo()
		}
		t.Run(fast.Name, func(t *testing.T) { f(t, fast, slow) })
	}
}

// guard is the number of floats before and after the memory that a function may write.
const guard = 16

// values returns n random floats, and the slice that holds them between two guards.
func values(rng *rand.Rand, n int) (v, all []float32) {
	all = AlignedFloats(n + 2*guard)
	for i := range all {
		all[i] = float32(rng.NormFloat64())
	}
	return all[guard : guard+n], all
}

// copied returns a copy of v, and the slice that holds it between two guards of zeros.
func copied(v []float32) (c, all []float32) {
	all = AlignedFloats(len(v) + 2*guard)
	copy(all[guard:], v)
	return all[guard : guard+len(v)], all
}

// same fails the test if two slices differ by more than tol of the greatest value. A
// fused multiplication and addition rounds once, the twin twice, and sums are added in
// another order.
func same(t *testing.T, what string, fast, slow []float32, tol float64) {
	t.Helper()
	top := 1.0
	for _, v := range slow {
		top = max(top, math.Abs(float64(v)))
	}
	for i := range slow {
		if d := math.Abs(float64(fast[i]) - float64(slow[i])); !(d <= tol*top) {
			t.Fatalf("%s[%d]: assembly has %v, plain Go %v", what, i-guard, fast[i], slow[i])
		}
	}
}

// TestGemmTwin compares the matrix kernel for every shape of tile, with odd numbers of
// steps and tiles.
func TestGemmTwin(t *testing.T) { eachTwin(t, checkGemmTwin) }

func checkGemmTwin(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, deep := range []bool{true, false} {
		for wide := 1; wide <= fast.GEMM.Blocks; wide *= 2 {
			for rows := 1; rows <= fast.GEMM.Rows; rows++ {
				for _, nstep := range []int{0, 1, 3, 4, 5, 9} {
					for _, tiles := range []int{1, 3} {
						full, depth := fast.GEMM.Rows, 1
						f, s := fast.GEMM.Flat[wide][rows], slow.GEMM.Flat[wide][rows]
						if deep {
							f, s, depth = fast.GEMM.Deep[wide][rows], slow.GEMM.Deep[wide][rows], Lanes
						}
						x, _ := values(rng, 4096)
						wNext := nstep*depth*Lanes + 8
						w, _ := values(rng, wide*(wNext+Lanes*Lanes)+nstep*wNext)
						bias, _ := values(rng, wide*Lanes)
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
								y, all := values(rng, wide*wide*tiles*full*Lanes)
								z, twin := copied(y)
								copy(twin, all)
								f(&x[0], &w[0], &y[0], &bias[0], &table[0], &steps[0], 4*wNext, 4*yNext, nstep, tiles, accumulate)
								s(&x[0], &w[0], &z[0], &bias[0], &table[0], &steps[0], 4*wNext, 4*yNext, nstep, tiles, accumulate)
								same(t, "y", all, twin, 1e-5)
							}
						}
					}
				}
			}
		}
	}
}

// TestPixelTwins compares the functions on pixels and floats, with numbers of pixels that
// do not fill unrolled loops.
func TestPixelTwins(t *testing.T) { eachTwin(t, checkPixelTwins) }

func checkPixelTwins(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, pixels := range []int{1, 2, 3, 4, 5, 7, 8, 31, 512} {
		n := pixels * Lanes
		x, _ := values(rng, n)
		dy, _ := values(rng, n)
		p, _ := values(rng, NormFloats)
		q, _ := values(rng, GradFloats)
		check := func(what string, size int, run func(k *Set, out *float32)) {
			t.Helper()
			a, all := values(rng, size)
			b, twin := copied(a)
			copy(twin, all)
			run(fast, &a[0])
			run(slow, &b[0])
			same(t, what, all, twin, 1e-5)
		}
		check("deviations", 3*Lanes, func(k *Set, out *float32) { k.Deviations(&x[0], pixels, out) })
		check("sums", Lanes, func(k *Set, out *float32) { k.Sums(&x[0], pixels, out) })
		check("normalize", n, func(k *Set, out *float32) { k.Normalize(&x[0], out, &p[0], pixels) })
		check("normSums", 2*Lanes, func(k *Set, out *float32) { k.NormSums(&x[0], &dy[0], &p[0], &q[0], out, pixels) })
		check("normGrad", n, func(k *Set, out *float32) { k.NormGrad(&x[0], &dy[0], out, &p[0], &q[0], pixels) })
		check("normGrad in place", n, func(k *Set, out *float32) { k.NormGrad(&x[0], out, out, &p[0], &q[0], pixels) })
		z, _ := values(rng, n)
		for i := range z {
			z[i] *= []float32{1, 10, 50, 1000}[i%4] // far ones must not overflow
		}
		check("bce", Lanes, func(k *Set, out *float32) { k.BCE(&z[0], &dy[0], out, n) })
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

// TestTransposeTwin compares the functions that move weights, which must be exact.
func TestTransposeTwin(t *testing.T) { eachTwin(t, checkTransposeTwin) }

func checkTransposeTwin(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(5, 6))
	x, _ := values(rng, Lanes*Lanes)
	a, all := values(rng, Lanes*Lanes)
	b, twin := copied(a)
	copy(twin, all)
	fast.Transpose(&a[0], &x[0], 4*Lanes)
	slow.Transpose(&b[0], &x[0], 4*Lanes)
	same(t, "tile", all, twin, 0)
	c, all := values(rng, 3*Lanes*Lanes)
	d, twin := copied(c)
	copy(twin, all)
	fast.Transpose(&c[0], &x[0], 3*4*Lanes)
	slow.Transpose(&d[0], &x[0], 3*4*Lanes)
	same(t, "tile with gaps", all, twin, 0)
	fast.Spread(&c[0], &x[0], 2*4*Lanes, 5)
	slow.Spread(&d[0], &x[0], 2*4*Lanes, 5)
	same(t, "spread vectors", all, twin, 0)
}

// TestPoolTwins compares max pooling and its gradient with windows that touch, overlap
// and leave gaps, and with equal maxima.
func TestPoolTwins(t *testing.T) { eachTwin(t, checkPoolTwins) }

func checkPoolTwins(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, w := range [][3]int{{2, 2, 2}, {3, 2, 1}, {1, 3, 4}, {1, 1, 1}, {16, 16, 3}} {
		kh, kw, stride := w[0], w[1], w[2]
		const count = 7
		cols := (count-1)*stride + kw
		x, _ := values(rng, kh*cols*Lanes)
		for i := range x {
			x[i] = float32(int(2 * x[i]))
		}
		dy, _ := values(rng, count*Lanes)
		p, _ := values(rng, NormFloats)
		index, other := make([]byte, count*Lanes+1), make([]byte, count*Lanes+1)
		index[count*Lanes], other[count*Lanes] = 77, 77 // a guard
		y, all := values(rng, count*Lanes)
		z, twin := copied(y)
		copy(twin, all)
		fast.MaxPool(&x[0], &y[0], &p[0], &index[0], count, kh, kw, cols*Lanes*4, stride*Lanes*4)
		slow.MaxPool(&x[0], &z[0], &p[0], &other[0], count, kh, kw, cols*Lanes*4, stride*Lanes*4)
		same(t, "y", all, twin, 1e-6) // FMA rounds once
		if !bytes.Equal(index, other) {
			t.Fatalf("index of %v: assembly has %v, plain Go %v", w, index, other)
		}
		dx, all := values(rng, len(x))
		dz, twin := copied(dx)
		copy(twin, all)
		fast.MaxPoolGrad(&index[0], &dy[0], &dx[0], count, kh, kw, cols*Lanes*4, stride*Lanes*4)
		slow.MaxPoolGrad(&index[0], &dy[0], &dz[0], count, kh, kw, cols*Lanes*4, stride*Lanes*4)
		same(t, "dx", all, twin, 0)
	}
}

// TestUpdateTwins compares the optimizers on lengths of one vector and more.
func TestUpdateTwins(t *testing.T) { eachTwin(t, checkUpdateTwins) }

func checkUpdateTwins(t *testing.T, fast, slow *Set) {
	rng := rand.New(rand.NewPCG(9, 10))
	c := []float32{0.01, 0.9, 0.1, 0.999, 0.001, 1.5, 1e-8, 0.02}
	for _, n := range []int{8, 24, 1000} {
		g, _ := values(rng, n)
		for _, rule := range []string{"adam", "momentum", "sgd"} {
			var buffers, twin [3][]float32 // w and two slots
			for i := range buffers {
				_, buffers[i] = values(rng, n)
				for j := range buffers[i] {
					buffers[i][j] = max(buffers[i][j], -buffers[i][j]) // v is a sum of squares
				}
				_, twin[i] = copied(buffers[i][guard : guard+n])
				copy(twin[i], buffers[i])
			}
			for i, k := range []*Set{fast, slow} {
				b := [2][3][]float32{buffers, twin}[i]
				w, m, v := &b[0][guard], &b[1][guard], &b[2][guard]
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
				same(t, rule, buffers[i], twin[i], 1e-6)
			}
		}
	}
}
