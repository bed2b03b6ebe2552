package kernel

import "testing"

// BenchmarkAdam reports how many bytes per second a step of Adam moves: it reads w, g, m
// and v and writes w, m and v.
func BenchmarkAdam(b *testing.B) {
	const size = 8 << 20
	for _, set := range []string{"avx512", "avx2", "neon", "go"} {
		b.Run(set, func(b *testing.B) {
			k, err := ChooseKernelSet(set)
			if err != nil {
				b.Skip(err)
			}
			w, g, m, v := NewAlignedFloats(size), NewAlignedFloats(size), NewAlignedFloats(size), NewAlignedFloats(size)
			c := [Lanes]float32{0, 0.9, 0.1, 0.999, 0.001, 1, 1e-8, 1e-3}
			for b.Loop() {
				k.Adam(&w[0], &g[0], &m[0], &v[0], &c[0], size)
			}
			b.ReportMetric(7*4*size*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
		})
	}
}
