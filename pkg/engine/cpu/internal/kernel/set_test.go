package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"
)

// BenchmarkSet runs each function of each available Set on data that fits in the cache. It
// reports the time per output: per multiplication and addition for the matrix kernel, and
// per float that the function writes, reads or updates for the others.
func BenchmarkSet(b *testing.B) {
	for _, k := range AvailableKernelSets() {
		calls, _ := setCalls(k)
		for _, c := range calls {
			b.Run(c.name+"/"+k.Name, func(b *testing.B) {
				for b.Loop() {
					c.run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.outputs), "ns/output")
			})
		}
	}
}

// TestSetBits checks that the functions for AVX2 and for NEON compute the same bits, which
// they do because they multiply, add and round in the same order. If a change of this order
// is meant, the new sum belongs here.
func TestSetBits(t *testing.T) {
	const want = "a27993dc1423c9b2" // the same in a process on amd64 with AVX2 and in one on arm64
	checked := false
	for _, k := range assemblyKernelSets() {
		if k.Name != "avx2" && k.Name != "neon" {
			continue
		}
		checked = true
		calls, buffers := setCalls(k)
		hash := sha256.New()
		for _, c := range calls {
			c.run()
			for _, b := range buffers {
				for _, v := range b {
					if err := binary.Write(hash, binary.LittleEndian, math.Float32bits(v)); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Logf("%x after %s", hash.Sum(nil)[:8], c.name)
		}
		if got := hex.EncodeToString(hash.Sum(nil))[:16]; got != want {
			t.Errorf("%s: the sum of all results is %s, want %s", k.Name, got, want)
		}
	}
	if !checked {
		t.Skip("there is no assembly for this processor")
	}
}

// setCall is a call of a function of a Set.
type setCall struct {
	name    string
	outputs int // of a call
	run     func()
}

// setCalls returns one call of each function of k, and the memory that they read and write.
func setCalls(k *Set) (calls []setCall, buffers [][]float32) {
	const (
		pixels = 64
		n      = pixels * Lanes
		steps  = 16
		square = 6 * 6 * Lanes // floats of a square of Winograd's algorithm
		side   = 2             // of a pooling window
	)
	rng := rand.New(rand.NewPCG(11, 12))
	buffer := func() *float32 {
		v := NewAlignedFloats(square * Lanes)
		for i := range v {
			v[i] = float32(rng.IntN(1<<20)+1) / (1 << 18)
			if len(buffers) == 0 && i%3 == 0 { // the others are positive, for roots are computed of v
				v[i] = -v[i]
			}
		}
		buffers = append(buffers, v)
		return &v[0]
	}
	x, y, z, w, v, c, tmp := buffer(), buffer(), buffer(), buffer(), buffer(), buffer(), buffer()
	index := make([]byte, n)
	blocks := k.GEMM.Blocks
	rows := make([]int32, 2*k.GEMM.Rows)
	for i := range k.GEMM.Rows {
		rows[i], rows[k.GEMM.Rows+i] = int32(4*Lanes*i), int32(4*Lanes*blocks*i)
	}
	deep, flat := make([]int32, 2*steps), make([]int32, steps)
	for i := range steps {
		deep[2*i], deep[2*i+1], flat[i] = int32(4*Lanes*i), int32(4*Lanes*Lanes*i), int32(4*i)
	}
	gemm := func(f GEMMFunc, list []int32, depth int) func() {
		wNext := steps * depth * 4 * Lanes
		if k.GEMM.Interleaved {
			wNext = 4 * Lanes * blocks
		}
		return func() {
			f(x, w, y, c, &rows[0], &list[0], wNext, 4*Lanes, steps, 1, false)
		}
	}
	box := PixelBox{Pixels: pixels / 8, Rows: 4, Planes: 2, FromRow: pixels / 8 * 4 * Lanes, FromPlane: pixels / 2 * 4 * Lanes, ToRow: pixels / 8 * 4 * Lanes, ToPlane: pixels / 2 * 4 * Lanes}
	products := k.GEMM.Rows * blocks * Lanes * steps
	g := k.Winograd
	return []setCall{
		{"gemmDeep", products * Lanes, gemm(k.GEMM.Deep[blocks][k.GEMM.Rows], deep, Lanes)},
		{"gemmFlat", products, gemm(k.GEMM.Flat[blocks][k.GEMM.Rows], flat, 1)},
		{"winogradInput", square, func() { g.Input(x, y, tmp, 8*4*Lanes, 0, 4*Lanes, 4*Lanes, 1) }},
		{"winogradNormInput", square, func() { g.NormInput(x, y, tmp, c, 8*4*Lanes, 0, 4*Lanes, 4*Lanes, 1) }},
		{"winogradGradient", square, func() { g.Gradient(x, y, tmp, 8*4*Lanes, 0, 4*Lanes, 4*Lanes, 1) }},
		{"winogradOutput", TileSide * TileSide * Lanes, func() { g.Output(x, y, c, tmp, 4*Lanes, 8*4*Lanes, 0, 0, 1) }},
		{"winogradWeights", square * Lanes, func() { g.Weights(x, y, tmp, 4*Lanes*Lanes) }},
		{"winogradWeightGradient", Taps * Lanes * Lanes, func() { g.WeightGradient(x, y, tmp, 4*Lanes*Lanes) }},
		{"deviations", n, func() { k.Deviations(x, pixels, y) }},
		{"normalize", n, func() { k.Normalize(x, y, c, pixels) }},
		{"copyBox", n, func() { k.CopyBox(x, y, box) }},
		{"normalizeBox", n, func() { k.NormalizeBox(x, y, c, box) }},
		{"normSums", n, func() { k.NormSums(x, y, c, tmp, w, pixels) }},
		{"normGrad", n, func() { k.NormGrad(x, y, z, c, tmp, pixels) }},
		{"sums", n, func() { k.Sums(x, pixels, y) }},
		{"maxPool", n / 4, func() { k.MaxPool(x, y, c, &index[0], pixels/4, side, side, pixels/2*4*Lanes, side*4*Lanes) }},
		{"maxPoolGrad", n, func() { k.MaxPoolGrad(&index[0], y, z, pixels/4, side, side, pixels/2*4*Lanes, side*4*Lanes) }},
		{"add", n, func() { k.Add(x, y, z, n) }},
		{"relu", n, func() { k.ReLU(x, z, n) }},
		{"reluGrad", n, func() { k.ReLUGrad(x, y, z, n) }},
		{"leaky", n, func() { k.Leaky(x, y, z, c, n) }},
		{"tanhGrad", n, func() { k.TanhGrad(x, y, z, n) }},
		{"distances", n, func() { k.Distances(x, y, z, n) }},
		{"signs", n, func() { k.Signs(x, y, z, c, n) }},
		{"bce", n, func() { k.BCE(x, y, z, n) }},
		{"exp", n, func() { k.Exp(x, y, n) }},
		{"bceGrad", n, func() { k.BCEGrad(x, y, z, c, n) }},
		{"adam", n, func() { k.Adam(w, x, y, v, c, n) }},
		{"momentum", n, func() { k.Momentum(w, x, y, c, n) }},
		{"sgd", n, func() { k.SGD(w, x, c, n) }},
		{"transpose", Lanes * Lanes, func() { k.Transpose(y, x, 4*Lanes) }},
		{"spread", n, func() { k.Spread(y, x, 4*Lanes, pixels) }},
	}, buffers
}
