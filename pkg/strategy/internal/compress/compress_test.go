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
func conserved[T number](n, length int, tolerance float64, exchange func(g collective.Group, gradient, rest []T) (int, error)) error {
	const steps = 5
	var mu sync.Mutex
	results := make([][]float64, steps)
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
				results[step] = toFloat64(gradient)
			}
			equal := slices.Equal(results[step], toFloat64(gradient))
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

// methods are the exchanges of a vector of 30 elements, powersgd as a matrix of 5 × 6.
func methods[T number]() map[string]func(g collective.Group, gradient, rest []T) (int, error) {
	ctx := context.Background()
	var mu sync.Mutex
	factors := map[collective.Group][]float64{}
	return map[string]func(g collective.Group, gradient, rest []T) (int, error){
		FP16: func(g collective.Group, gradient, rest []T) (int, error) { return Half(ctx, g, FP16, gradient, rest) },
		BF16: func(g collective.Group, gradient, rest []T) (int, error) { return Half(ctx, g, BF16, gradient, rest) },
		TopK: func(g collective.Group, gradient, rest []T) (int, error) { return Largest(ctx, g, 0.1, gradient, rest) },
		PowerSGD: func(g collective.Group, gradient, rest []T) (int, error) {
			for i := range gradient {
				gradient[i] += rest[i]
			}
			mu.Lock()
			m := &Matrix{Rows: 5, Columns: 6, Values: toFloat64(gradient), Factor: factors[g]}
			mu.Unlock()
			if m.Factor == nil {
				m.Factor = InitialFactor(6, 2, 1)
			}
			n, err := FactorGradients[T](ctx, g, 2, []*Matrix{m}, nil)
			copy(gradient, appendAs([]T(nil), m.Values))
			copy(rest, appendAs([]T(nil), m.Rest))
			mu.Lock()
			factors[g] = m.Factor
			mu.Unlock()
			return n, err
		},
	}
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
			return Half(context.Background(), g, BF16, gradient, rest)
		})
		if err != nil {
			t.Errorf("%d elements: %v", length, err)
		}
	}
}

// TestLargest checks the choice, with ties, zeros and NaN.
func TestLargest(t *testing.T) {
	v := []float32{0, -3, 2, 3, -3, 1e-40, 0, 2}
	for k, want := range [][]int{1: {1}, 2: {1, 3}, 3: {1, 3, 4}, 4: {1, 2, 3, 4}, 5: {1, 2, 3, 4, 7}, 6: {1, 2, 3, 4, 5, 7}, 7: {0, 1, 2, 3, 4, 5, 7}} {
		if got := largest(v, k); k > 0 && !slices.Equal(got, want) {
			t.Errorf("%d of %v: got %v, want %v", k, v, got, want)
		}
	}
	if got := largest([]float64{1, math.NaN(), 3}, 1); !slices.Equal(got, []int{1}) {
		t.Errorf("with NaN: got %v", got)
	}
	random := rand.New(rand.NewPCG(1, 2))
	many := make([]float64, 1000)
	for i := range many {
		many[i] = float64(float32(random.NormFloat64()))
	}
	order := make([]int, len(many))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return -cmpAbs(many[a], many[b]) })
	for _, k := range []int{1, 10, 999, 1000} {
		want := slices.Sorted(slices.Values(order[:k]))
		if got := largest(many, k); !slices.Equal(got, want) {
			t.Errorf("%d of 1000: got %v, want %v", k, got, want)
		}
	}
}

// cmpAbs compares magnitudes.
func cmpAbs(a, b float64) int {
	switch a, b = math.Abs(a), math.Abs(b); {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestInitialFactor: a checkpoint before the first step stores it as float32.
func TestInitialFactor(t *testing.T) {
	a, b := InitialFactor(50, 2, 1), InitialFactor(50, 2, 2)
	if len(a) != 100 || slices.Equal(a, b) || !slices.Equal(a, InitialFactor(50, 2, 1)) {
		t.Errorf("got %d numbers, want 100 that depend on the matrix only", len(a))
	}
	for _, v := range a {
		if float64(float32(v)) != v {
			t.Fatalf("%v is no float32", v)
		}
	}
}

// TestFactorsOfLowRank: after some steps, the product equals a matrix of the same rank, and the rest
// is zero. A gradient that is zero for one step does no harm.
func TestFactorsOfLowRank(t *testing.T) {
	err := together(2, func(g collective.Group) error {
		m := &Matrix{Rows: 7, Columns: 9, Factor: InitialFactor(9, 2, 3)}
		want := make([]float64, 63)
		for step := range 8 {
			m.Values = make([]float64, 63)
			for i := range m.Values {
				row, column := float64(i/9), float64(i%9)
				want[i] = math.Sin(row)*column + row*math.Cos(column) // a sum of two products
				if step != 3 {
					m.Values[i] = want[i] * float64(1+g.Rank()) * 2 / 3 // whose mean is want
				}
			}
			if _, err := FactorGradients[float64](context.Background(), g, 2, []*Matrix{m}, nil); err != nil {
				return err
			}
		}
		for i, v := range m.Values {
			if math.Abs(v-want[i]) > 1e-9 || math.Abs(m.Rest[i]) > 1e-9 {
				return fmt.Errorf("element %d is %v with rest %v, want %v", i, v, m.Rest[i], want[i])
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
