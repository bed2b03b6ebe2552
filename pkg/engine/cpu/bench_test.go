package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// benchmark runs n, and reports work by units of 1e9 a second.
func (n node) benchmark(b *testing.B, set string, threads int, work float64, unit string) {
	convolution := n.convolution
	if convolution == "" {
		convolution = "auto"
	}
	n.measure(b, openWith(b, set, threads, convolution), work, unit)
}

// measure is benchmark with an engine.
func (n node) measure(b *testing.B, e engine.Engine, work float64, unit string) {
	x, err := e.Load(n.program(), nil)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i, shape := range n.in {
		v := make([]float32, tensor.ElementCount(shape))
		for j := range v {
			v[j] = rng.Float32() - 0.5
		}
		if len(n.state) == 0 || i < n.state[0] {
			if err := x.SetInput(string(rune('a'+i)), v); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		if _, err := x.Step(context.Background(), nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(work*float64(b.N)/b.Elapsed().Seconds()/1e9, unit)
}

// BenchmarkConvolution reports GFLOP/s, a multiplication and an addition
// counted as two; with Winograd's algorithm those of the direct one, which
// computes the same.
func BenchmarkConvolution(b *testing.B) {
	for _, c := range []convCase{
		{8, 64, 64, 64, 64, 3, 3, 1, 1},
		{8, 32, 128, 128, 32, 3, 3, 1, 1},
		{8, 128, 32, 32, 128, 3, 3, 1, 1},
		{8, 256, 16, 16, 256, 3, 3, 1, 1},
		{8, 512, 8, 8, 512, 3, 3, 1, 1},
		{1, 256, 8, 8, 256, 3, 3, 1, 1},
		{8, 8, 128, 128, 8, 3, 3, 1, 1},
		{8, 16, 64, 64, 16, 3, 3, 1, 1},
		{8, 64, 64, 64, 64, 1, 1, 1, 0},
		{8, 1, 128, 128, 32, 3, 3, 1, 1},
		{8, 32, 128, 128, 1, 1, 1, 1, 0},
		{8, 64, 64, 64, 64, 3, 3, 2, 1},
		{8, 64, 64, 64, 32, 2, 2, 2, 0},
	} {
		flop := 2 * float64(tensor.ElementCount(c.out())) * float64(c.c*c.r*c.s)
		for _, convolution := range []string{"direct", "winograd"} {
			if convolution == "winograd" && (c.r != 3 || c.stride != 1) {
				continue
			}
			for _, n := range c.nodes(convolution) {
				if len(n.in) == 3 {
					continue // a bias costs nothing
				}
				for _, set := range []string{"avx512", "avx2", "neon", "go"} {
					for threads := 1; threads <= 2; threads++ {
						b.Run(fmt.Sprintf("%s/%s/%s/%s/threads-%d", n.op, c, convolution, set, threads), func(b *testing.B) {
							n.benchmark(b, set, threads, flop, "GFLOP/s")
						})
					}
				}
			}
		}
	}
}

// BenchmarkBatchNorm reports the bytes that its passes must move: forward reads
// x twice and writes y; backward reads x and dy twice and writes dx.
func BenchmarkBatchNorm(b *testing.B) {
	s, c := []int{8, 32, 128, 128}, []int{32}
	attr := plan.KernelAttr{Training: true, ReLU: true, Epsilon: 1e-5, Momentum: 0.1}
	for threads := 1; threads <= 2; threads++ {
		b.Run(fmt.Sprintf("forward/threads-%d", threads), func(b *testing.B) {
			n := node{op: plan.OpBatchNorm, attr: attr, in: [][]int{s, c, c, c, c}, out: [][]int{s, c, c}, state: []int{3, 4}}
			n.benchmark(b, "", threads, 3*4*float64(tensor.ElementCount(s)), "GB/s")
		})
		b.Run(fmt.Sprintf("backward/threads-%d", threads), func(b *testing.B) {
			n := node{op: plan.OpBatchNormBackward, attr: attr, in: [][]int{s, c, c, c, s, s, c}, out: [][]int{s, c, c}}
			n.benchmark(b, "", threads, 5*4*float64(tensor.ElementCount(s)), "GB/s")
		})
	}
}

// BenchmarkConvolution3D is BenchmarkConvolution for 3×3×3 windows.
func BenchmarkConvolution3D(b *testing.B) {
	ones := []int{1, 1, 1}
	for _, c := range []volumeCase{
		{2, 32, 32, []int{32, 32, 32}, []int{3, 3, 3}, ones, ones},
		{2, 64, 64, []int{16, 16, 16}, []int{3, 3, 3}, ones, ones},
		{2, 128, 128, []int{8, 8, 8}, []int{3, 3, 3}, ones, ones},
		{2, 256, 256, []int{4, 4, 4}, []int{3, 3, 3}, ones, ones},
		{2, 16, 16, []int{32, 32, 32}, []int{3, 3, 3}, ones, ones},
	} {
		for _, convolution := range []string{"direct", "winograd"} {
			for _, n := range c.nodes(convolution)[:3] {
				flop := 2 * 27 * float64(c.n*c.c*c.k*tensor.ElementCount(c.in))
				for threads := 1; threads <= 2; threads++ {
					b.Run(fmt.Sprintf("%s/%s/%s/threads-%d", n.op, c, convolution, threads), func(b *testing.B) {
						n.benchmark(b, "", threads, flop, "GFLOP/s")
					})
				}
			}
		}
	}
}
