package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// eachTwin runs f for each instruction set that this processor has assembly for and
// its plain Go twins.
func eachTwin(t *testing.T, f func(t *testing.T, fast, slow *kernels)) {
	t.Helper()
	all := assemblySets()
	if len(all) == 0 {
		t.Skip("there is no assembly for this processor")
	}
	for _, fast := range all {
		slow := goKernels()
		if fast.gemm.joined {
			slow = wideGoKernels()
		}
		t.Run(fast.name, func(t *testing.T) { f(t, fast, slow) })
	}
}

// guard is the number of floats before and after what a kernel may write.
const guard = 16

// values returns n random floats between guards, and all of it.
func values(rng *rand.Rand, n int) (v, all []float32) {
	all = alignedFloats(n + 2*guard)
	for i := range all {
		all[i] = float32(rng.NormFloat64())
	}
	return all[guard : guard+n], all
}

// copied returns v's copy between equal guards, and all of it.
func copied(v []float32) (c, all []float32) {
	all = alignedFloats(len(v) + 2*guard)
	copy(all[guard:], v)
	return all[guard : guard+len(v)], all
}

// same fails where two slices differ by more than tol of the greatest value.
// FMA rounds once where the twin rounds twice, and sums are added in another order.
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

// TestGemmTwin has every shape of tile, with odd numbers of steps and tiles.
func TestGemmTwin(t *testing.T) { eachTwin(t, checkGemmTwin) }

func checkGemmTwin(t *testing.T, fast, slow *kernels) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, deep := range []bool{true, false} {
		for wide := 1; wide <= fast.gemm.blocks; wide *= 2 {
			for rows := 1; rows <= fast.gemm.rows; rows++ {
				for _, nstep := range []int{0, 1, 3, 4, 5, 9} {
					for _, tiles := range []int{1, 3} {
						full, depth := fast.gemm.rows, 1
						f, s := fast.gemm.flat[wide][rows], slow.gemm.flat[wide][rows]
						if deep {
							f, s, depth = fast.gemm.deep[wide][rows], slow.gemm.deep[wide][rows], lanes
						}
						x, _ := values(rng, 4096)
						wNext := nstep*depth*lanes + 8
						w, _ := values(rng, wide*(wNext+lanes*lanes)+nstep*wNext)
						bias, _ := values(rng, wide*lanes)
						steps := make([]int32, nstep+1)
						for i := range steps {
							steps[i] = int32(4 * rng.IntN(2000))
						}
						if deep { // weights in any order
							pairs := make([]int32, 0, 2*len(steps))
							for _, s := range steps {
								pairs = append(pairs, s, int32(4*lanes*lanes*rng.IntN(nstep+1)))
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
						for _, yNext := range []int{lanes, tiles * full * wide * lanes} {
							for _, accumulate := range []bool{false, true} {
								y, all := values(rng, wide*wide*tiles*full*lanes)
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

// TestPixelTwins has numbers of pixels that fill no unrolled loop.
func TestPixelTwins(t *testing.T) { eachTwin(t, checkPixelTwins) }

func checkPixelTwins(t *testing.T, fast, slow *kernels) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, pixels := range []int{1, 2, 3, 4, 5, 7, 8, 31, 512} {
		n := pixels * lanes
		x, _ := values(rng, n)
		dy, _ := values(rng, n)
		p, _ := values(rng, normFloats)
		q, _ := values(rng, gradBlocks*lanes)
		check := func(what string, size int, run func(k *kernels, out *float32)) {
			t.Helper()
			a, all := values(rng, size)
			b, twin := copied(a)
			copy(twin, all)
			run(fast, &a[0])
			run(slow, &b[0])
			same(t, what, all, twin, 1e-5)
		}
		check("deviations", 3*lanes, func(k *kernels, out *float32) { k.deviations(&x[0], pixels, out) })
		check("sums", lanes, func(k *kernels, out *float32) { k.sums(&x[0], pixels, out) })
		check("normalize", n, func(k *kernels, out *float32) { k.normalize(&x[0], out, &p[0], pixels) })
		check("normSums", 2*lanes, func(k *kernels, out *float32) { k.normSums(&x[0], &dy[0], &p[0], &q[0], out, pixels) })
		check("normGrad", n, func(k *kernels, out *float32) { k.normGrad(&x[0], &dy[0], out, &p[0], &q[0], pixels) })
		check("normGrad in place", n, func(k *kernels, out *float32) { k.normGrad(&x[0], out, out, &p[0], &q[0], pixels) })
		z, _ := values(rng, n)
		for i := range z {
			z[i] *= []float32{1, 10, 50, 1000}[i%4] // far ones must not overflow
		}
		check("bce", lanes, func(k *kernels, out *float32) { k.bce(&z[0], &dy[0], out, n) })
		check("bceGrad", n, func(k *kernels, out *float32) { k.bceGrad(&z[0], &dy[0], out, &p[0], n) })
		check("add", n, func(k *kernels, out *float32) { k.add(&x[0], &dy[0], out, n) })
		check("relu", n, func(k *kernels, out *float32) { k.relu(&x[0], out, n) })
		check("leaky", n, func(k *kernels, out *float32) { k.leaky(&x[0], &dy[0], out, &p[0], n) })
		check("tanhGrad", n, func(k *kernels, out *float32) { k.tanhGrad(&x[0], &dy[0], out, n) })
		check("distances", lanes, func(k *kernels, out *float32) { k.distances(&x[0], &dy[0], out, n) })
		same := append([]float32{}, x...)
		copy(same[:lanes/2], dy)
		check("signs", n, func(k *kernels, out *float32) { k.signs(&x[0], &same[0], out, &p[0], n) })
		check("reluGrad", n, func(k *kernels, out *float32) { k.reluGrad(&x[0], &dy[0], out, n) })
	}
}

// TestTransposeTwin is exact.
func TestTransposeTwin(t *testing.T) { eachTwin(t, checkTransposeTwin) }

func checkTransposeTwin(t *testing.T, fast, slow *kernels) {
	rng := rand.New(rand.NewPCG(5, 6))
	x, _ := values(rng, lanes*lanes)
	a, all := values(rng, lanes*lanes)
	b, twin := copied(a)
	copy(twin, all)
	fast.transpose(&a[0], &x[0], 4*lanes)
	slow.transpose(&b[0], &x[0], 4*lanes)
	same(t, "tile", all, twin, 0)
	c, all := values(rng, 3*lanes*lanes)
	d, twin := copied(c)
	copy(twin, all)
	fast.transpose(&c[0], &x[0], 3*4*lanes)
	slow.transpose(&d[0], &x[0], 3*4*lanes)
	same(t, "tile with gaps", all, twin, 0)
	fast.spread(&c[0], &x[0], 2*4*lanes, 5)
	slow.spread(&d[0], &x[0], 2*4*lanes, 5)
	same(t, "spread vectors", all, twin, 0)
}

// TestPoolTwins has windows that touch, overlap and leave gaps, and equal maxima.
func TestPoolTwins(t *testing.T) { eachTwin(t, checkPoolTwins) }

func checkPoolTwins(t *testing.T, fast, slow *kernels) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, w := range [][3]int{{2, 2, 2}, {3, 2, 1}, {1, 3, 4}, {1, 1, 1}, {16, 16, 3}} {
		kh, kw, stride := w[0], w[1], w[2]
		const count = 7
		cols := (count-1)*stride + kw
		x, _ := values(rng, kh*cols*lanes)
		for i := range x {
			x[i] = float32(int(2 * x[i]))
		}
		dy, _ := values(rng, count*lanes)
		p, _ := values(rng, normFloats)
		index, other := make([]byte, count*lanes+1), make([]byte, count*lanes+1)
		index[count*lanes], other[count*lanes] = 77, 77 // a guard
		y, all := values(rng, count*lanes)
		z, twin := copied(y)
		copy(twin, all)
		fast.maxPool(&x[0], &y[0], &p[0], &index[0], count, kh, kw, cols*lanes*4, stride*lanes*4)
		slow.maxPool(&x[0], &z[0], &p[0], &other[0], count, kh, kw, cols*lanes*4, stride*lanes*4)
		same(t, "y", all, twin, 1e-6) // FMA rounds once
		if !bytes.Equal(index, other) {
			t.Fatalf("index of %v: assembly has %v, plain Go %v", w, index, other)
		}
		dx, all := values(rng, len(x))
		dz, twin := copied(dx)
		copy(twin, all)
		fast.maxPoolGrad(&index[0], &dy[0], &dx[0], count, kh, kw, cols*lanes*4, stride*lanes*4)
		slow.maxPoolGrad(&index[0], &dy[0], &dz[0], count, kh, kw, cols*lanes*4, stride*lanes*4)
		same(t, "dx", all, twin, 0)
	}
}

// TestUpdateTwins runs each optimiser on lengths of one vector and more.
func TestUpdateTwins(t *testing.T) { eachTwin(t, checkUpdateTwins) }

func checkUpdateTwins(t *testing.T, fast, slow *kernels) {
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
			for i, k := range []*kernels{fast, slow} {
				b := [2][3][]float32{buffers, twin}[i]
				w, m, v := &b[0][guard], &b[1][guard], &b[2][guard]
				switch rule {
				case "adam":
					k.adam(w, &g[0], m, v, &c[0], n)
				case "momentum":
					k.momentum(w, &g[0], m, &c[0], n)
				default:
					k.sgd(w, &g[0], &c[0], n)
				}
			}
			for i := range buffers {
				same(t, rule, buffers[i], twin[i], 1e-6)
			}
		}
	}
}
