package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRoundBF16 checks roundings at ties, at the ends of the range, and of special values.
func TestRoundBF16(t *testing.T) {
	for _, c := range []struct{ v, want uint32 }{ // bits of floats
		{0x3f800000, 0x3f800000}, // 1
		{0x3f808000, 0x3f800000}, // halfway, even below
		{0x3f818000, 0x3f820000}, // halfway, even above
		{0x3f808001, 0x3f810000},
		{0xbf80ffff, 0xbf810000},
		{0x7f7fffff, 0x7f800000}, // the greatest float32 rounds to infinity
		{0x7f800000, 0x7f800000},
		{0x007fffff, 0}, // below 2^−126
		{0x80400000, 0x80000000},
		{0x00800000, 0x00800000},
	} {
		if got := math.Float32bits(RoundBF16(math.Float32frombits(c.v))); got != c.want {
			t.Errorf("%#x rounds to %#x, want %#x", c.v, got, c.want)
		}
	}
	if v := RoundBF16(float32(math.NaN())); v == v {
		t.Errorf("NaN rounds to %v", v)
	}
}

// forEachBF16 calls f for each instruction set with assembly for BF16 that this processor
// supports.
func forEachBF16(t *testing.T, f func(t *testing.T, fast, slow *BF16Kernels)) {
	t.Helper()
	all := assemblyBF16KernelSets()
	if len(all) == 0 {
		t.Skip("this processor has no AVX512_BF16")
	}
	for _, fast := range all {
		t.Run(fast.Name, func(t *testing.T) { f(t, fast.BF16, newPlainGoBF16Kernels()) })
	}
}

// randomWords returns n floats rounded to bfloat16.
func randomWords(rng *rand.Rand, n int) []uint16 {
	v := Uint16View(NewAlignedFloats((n + 1) / 2))
	for i := range v {
		v[i] = toBF16(float32(rng.NormFloat64()))
	}
	return v
}

// TestBF16Multiply compares the products. Both add 32·nstep products of the same rounded
// numbers in float32 in another order, so that they differ by at most 2·32·nstep·2^−24 times
// the sum of the products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms,
// section 3.1).
func TestBF16Multiply(t *testing.T) {
	forEachBF16(t, func(t *testing.T, fast, slow *BF16Kernels) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, nstep := range []int{1, 2, 5} {
			for _, tiles := range []int{1, 3} {
				for _, row := range []int{32, 96, 101} { // elements; rows may begin anywhere
					for _, accumulate := range []bool{false, true} {
						a, b := randomWords(rng, tiles*32*row+nstep*40+64), randomWords(rng, nstep*32*32)
						var steps []int32
						for i, at := range rng.Perm(nstep) {
							steps = append(steps, int32(2*(i*40+i%2)), int32(2*at*32*32))
						}
						n := tiles * 32 * 32
						c, all := randomValues(rng, n)
						d, plain := copyGuarded(c)
						copy(plain, all)
						fast.Multiply(&c[0], &a[0], &b[0], &steps[0], nstep, 2*row, tiles, accumulate)
						slow.Multiply(&d[0], &a[0], &b[0], &steps[0], nstep, 2*row, tiles, accumulate)
						for i := range n {
							sum := 3.0 // of the magnitudes; the start is below 6 and counts once
							for s := range nstep {
								for k := range 32 {
									x := fromBF16(a[i/32*row+int(steps[2*s])/2+k])
									y := fromBF16(b[int(steps[2*s+1])/2+k/2*64+i%32*2+k%2])
									sum += math.Abs(float64(x * y))
								}
							}
							if diff := math.Abs(float64(c[i]) - float64(d[i])); !(diff <= 2*32*float64(nstep)*sum/(1<<24)) {
								t.Fatalf("steps %d, tiles %d, row %d: [%d] is %v, plain Go has %v", nstep, tiles, row, i, c[i], d[i])
							}
						}
						c[0], d[0] = 0, 0
						for i := range guardFloats {
							if all[i] != plain[i] || all[guardFloats+n+i] != plain[guardFloats+n+i] {
								t.Fatalf("Multiply wrote outside of its tiles")
							}
						}
					}
				}
			}
		}
	})
}

// TestBF16Pack compares the roundings, which must have the same bits, with denormal and
// infinite numbers among them.
func TestBF16Pack(t *testing.T) {
	forEachBF16(t, func(t *testing.T, fast, slow *BF16Kernels) {
		rng := rand.New(rand.NewPCG(3, 4))
		var s [4][]float32
		for i := range s {
			s[i], _ = randomValues(rng, 96*Lanes)
			s[i][rng.IntN(96*Lanes)] = float32(math.Inf(1))
			s[i][rng.IntN(96*Lanes)] = math.Float32frombits(0x80001234)
			for j := range s[i] {
				if rng.IntN(3) == 0 { // ties
					s[i][j] = math.Float32frombits(math.Float32bits(s[i][j])&^0xffff | 0x8000)
				}
			}
		}
		same := func(what string, n int, f func(k *BF16Kernels, dst *uint16)) {
			t.Helper()
			v, w := randomWords(rng, n), make([]uint16, n)
			copy(w, v)
			f(fast, &v[0])
			f(slow, &w[0])
			for i := range w {
				if v[i] != w[i] {
					t.Fatalf("%s: word %d is %#x, plain Go has %#x", what, i, v[i], w[i])
				}
			}
		}
		for _, n := range []int{1, 2, 5, 96} {
			for _, step := range []int{64, 192} {
				same("PackRows", 96*96, func(k *BF16Kernels, dst *uint16) {
					k.PackRows(dst, &s[0][0], &s[1][0], &s[2][0], &s[3][0], nil, n, step)
				})
			}
		}
		var norm []float32 // of four channel blocks
		for range 4 {
			factors, _ := randomValues(rng, NormConstantFloats)
			norm = append(norm, factors...)
		}
		for _, n := range []int{1, 96} {
			v, w := make([]uint16, n*32), make([]uint16, n*32)
			fast.PackRows(&v[0], &s[0][0], &s[1][0], &s[2][0], &s[3][0], &norm[0], n, 64)
			var normal [4][]float32
			for i := range normal {
				normal[i] = NewAlignedFloats(n * Lanes)
				AvailableKernelSets()[0].Normalize(&s[i][0], &normal[i][0], &norm[i*NormConstantFloats], n)
			}
			slow.PackRows(&w[0], &normal[0][0], &normal[1][0], &normal[2][0], &normal[3][0], nil, n, 64)
			if !slices.Equal(v, w) {
				t.Fatalf("PackRows of %d pixels with norm differs from normalizing them before", n)
			}
		}
		for _, n := range []int{2, 8, 96} {
			same("PackPairs", 96*32, func(k *BF16Kernels, dst *uint16) { k.PackPairs(dst, &s[0][0], &s[1][0], &s[2][0], &s[3][0], n) })
		}
		same("PackTransposed", 8*32, func(k *BF16Kernels, dst *uint16) { k.PackTransposed(dst, &s[0][0], &s[1][0], &s[2][0], &s[3][0]) })
		for _, n := range []int{32, 64, 96} {
			for _, row := range []int{192, 202} {
				same("PackColumns", 8*128, func(k *BF16Kernels, dst *uint16) { k.PackColumns(dst, &s[0][0], n, row) })
			}
		}
	})
}

// TestBF16Unpack compares copies with a bias, which must have the same bits.
func TestBF16Unpack(t *testing.T) {
	forEachBF16(t, func(t *testing.T, fast, slow *BF16Kernels) {
		rng := rand.New(rand.NewPCG(5, 6))
		src, _ := randomValues(rng, 4096)
		bias, _ := randomValues(rng, 32)
		for _, blocks := range []int{1, 3, 4} {
			for _, n := range []int{1, 7} {
				c, all := randomValues(rng, 4*64*Lanes)
				d, plain := copyGuarded(c)
				e, uncached := copyGuarded(c)
				copy(plain, all)
				copy(uncached, all)
				fast.Unpack(&c[0], &src[0], &bias[0], n, 384, 64, 64*Lanes*4, blocks)
				slow.Unpack(&d[0], &src[0], &bias[0], n, 384, 64, 64*Lanes*4, blocks)
				fast.UnpackUncached(&e[0], &src[0], &bias[0], n, 384, 64, 64*Lanes*4, blocks)
				checkSame(t, "y", all, plain, 0)
				checkSame(t, "y past the cache", uncached, plain, 0)
			}
		}
	})
}

// BenchmarkBF16Multiply measures products of operands in the first-level cache.
func BenchmarkBF16Multiply(b *testing.B) {
	for _, set := range AvailableBF16KernelSets() {
		b.Run(set.Name, func(b *testing.B) {
			const nstep, tiles = 9, 8
			rng := rand.New(rand.NewPCG(7, 8))
			x, w, c := randomWords(rng, (tiles*32+16)*32), randomWords(rng, nstep*32*32), NewAlignedFloats(tiles*32*32)
			var steps []int32
			for s := range nstep {
				steps = append(steps, int32(s*64), int32(s*2048))
			}
			for b.Loop() {
				set.BF16.Multiply(&c[0], &x[0], &w[0], &steps[0], nstep, 64, tiles, false)
			}
			b.ReportMetric(2*32*32*32*nstep*tiles*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
