package compress

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"lockstep/pkg/collective"
)

// TestHalfFormats compares the conversions with the definitions of the formats: every value of a
// format converts to itself, and a number between two values to the nearer one, or if it is halfway
// to the one with even bits.
func TestHalfFormats(t *testing.T) {
	for name, c := range map[string]struct {
		round    func(float32) uint16
		value    func(uint16) float32
		infinite uint16 // bits of +∞
	}{
		FP16: {toFP16, fromFP16, 0x7c00},
		BF16: {toBF16, fromBF16, 0x7f80},
	} {
		for bits := range c.infinite {
			v := c.value(bits)
			if got, negative := c.round(v), c.round(-v); got != bits || negative != bits|0x8000 {
				t.Fatalf("%s: %v gives %#x and %#x, want %#x", name, v, got, negative, bits)
			}
			if bits+1 == c.infinite {
				break
			}
			next := c.value(bits + 1)
			middle := v + (next-v)/2 // exact in float32 for both formats, except for the least bf16
			if even := bits + bits&1; middle != v && middle != next && c.round(middle) != even {
				t.Fatalf("%s: %v, between %v and %v, gives %#x, want %#x", name, middle, v, next, c.round(middle), even)
			}
			if above := math.Nextafter32(middle, next); above < next && middle != v && c.round(above) != bits+1 {
				t.Fatalf("%s: %v gives %#x, want %#x", name, above, c.round(above), bits+1)
			}
		}
		largest := c.value(c.infinite - 1)
		if got := c.round(math.MaxFloat32); got != c.infinite-1 {
			t.Errorf("%s: the largest float32 gives %#x, want the bits of %v", name, got, largest)
		}
		if v := c.value(c.round(float32(math.NaN()))); v == v {
			t.Errorf("%s: NaN gives %v", name, v)
		}
		if v := c.value(c.round(float32(math.Inf(-1)))); !math.IsInf(float64(v), -1) {
			t.Errorf("%s: -∞ gives %v", name, v)
		}
	}
	// From IEEE 754-2008, table 3.5: the largest fp16, the least normal and the least subnormal.
	for bits, want := range map[uint16]float32{0x7bff: 65504, 0x0400: 0x1p-14, 0x0001: 0x1p-24, 0x3c00: 1} {
		if got := fromFP16(bits); got != want {
			t.Errorf("fp16 %#x is %v, want %v", bits, got, want)
		}
	}
}

// together calls f for each of n ranks.
func together(n int, f func(collective.Group) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(n) {
		wg.Go(func() { errs[rank] = f(g) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// conserved exchanges random gradients of all ranks for some steps. After each, all ranks must have
// the same result, and the sum of all results plus the mean of all rests must be the sum of the
// means of the gradients: nothing is lost.
func conserved[T gradientElement](n, length int, tolerance float64, exchange func(g collective.Group, gradient, rest []T) (int, error)) error {
	const steps = 5
	var mu sync.Mutex
	results := make([][]T, steps)
	sums := make([]float64, length) // over steps and ranks: gradients − results·n; in the end n·(mean rest)
	err := together(n, func(g collective.Group) error {
		random := rand.New(rand.NewPCG(7, uint64(g.Rank())))
		rest, gradient := make([]T, length), make([]T, length)
		own := make([]float64, length)
		for step := range steps {
			for i := range gradient {
				gradient[i] = T(random.NormFloat64())
				own[i] += float64(gradient[i])
			}
			if _, err := exchange(g, gradient, rest); err != nil {
				return err
			}
			for i := range own {
				own[i] -= float64(gradient[i])
			}
			mu.Lock()
			if results[step] == nil {
				results[step] = slices.Clone(gradient)
			}
			equal := slices.Equal(results[step], gradient)
			mu.Unlock()
			if !equal {
				return fmt.Errorf("rank %d has another result than an earlier one in step %d", g.Rank(), step)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range own {
			sums[i] += own[i] - float64(rest[i])
		}
		return nil
	})
	for i, v := range sums {
		if math.Abs(v) > tolerance {
			err = errors.Join(err, fmt.Errorf("element %d: the ranks have lost %v", i, v))
		}
	}
	return err
}

// methods are the exchanges of a vector.
func methods[T gradientElement]() map[string]func(g collective.Group, gradient, rest []T) (int, error) {
	all := map[string]func(g collective.Group, gradient, rest []T) (int, error){}
	for _, name := range MethodNames() {
		all[name] = func(g collective.Group, gradient, rest []T) (int, error) {
			return AverageHalfPrecision(context.Background(), g, name, gradient, rest)
		}
	}
	return all
}

// TestNothingIsLost checks each method with 2 and 3 ranks in both precisions.
func TestNothingIsLost(t *testing.T) {
	for n := 2; n <= 3; n++ {
		for name, exchange := range methods[float32]() {
			if err := conserved(n, 30, 1e-4, exchange); err != nil { // 5 steps × 3 ranks of float32 rounding
				t.Errorf("%s, %d ranks, float32: %v", name, n, err)
			}
		}
		for name, exchange := range methods[float64]() {
			if err := conserved(n, 30, 1e-12, exchange); err != nil {
				t.Errorf("%s, %d ranks, float64: %v", name, n, err)
			}
		}
	}
}

// TestHalfOfShortVectors: fewer elements than ranks.
func TestHalfOfShortVectors(t *testing.T) {
	for length := 1; length <= 5; length++ {
		err := conserved(4, length, 1e-5, func(g collective.Group, gradient, rest []float32) (int, error) {
			return AverageHalfPrecision(context.Background(), g, BF16, gradient, rest)
		})
		if err != nil {
			t.Errorf("%d elements: %v", length, err)
		}
	}
}
