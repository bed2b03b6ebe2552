package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/device"
)

// TestAlgorithmsAddUp compares random all-reduces by each algorithm over each transport with a
// naive sum of whole numbers, which is exact in any order of the additions. All ranks must get
// the same bits of other numbers, and other operations and messages run between and beside.
func TestAlgorithmsAddUp(t *testing.T) {
	for name, create := range allGroups() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				algorithm := rapid.SampledFrom(schedule.Names()).Draw(t, "algorithm")
				n := rapid.IntRange(1, 6).Draw(t, "ranks")
				chunk := rapid.SampledFrom([]int{1, 640, 4096, 1 << 20}).Draw(t, "chunk")
				perNode := rapid.IntRange(0, 3).Draw(t, "per node")
				groups, err := create(n, Options{ChunkBytes: chunk, Timeout: 20 * time.Second, Algorithm: algorithm, RanksPerNode: perNode})
				if err != nil {
					t.Fatal(err)
				}
				for range rapid.IntRange(1, 4).Draw(t, "operations") {
					checkAllReduce(t, groups)
					if rapid.Bool().Draw(t, "barrier") {
						if err := together(groups, func(g Group) error { return g.Barrier(context.Background()) }); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := closeAll(groups); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// checkAllReduce adds up a buffer of whole numbers and one of any numbers, while ranks 0 and 1
// exchange messages.
func checkAllReduce(t *rapid.T, groups []Group) {
	ctx, n := context.Background(), len(groups)
	length := rapid.OneOf(rapid.IntRange(0, 7), rapid.IntRange(0, 5000)).Draw(t, "length")
	f64 := rapid.Bool().Draw(t, "float64")
	seed := rapid.Uint64().Draw(t, "seed")
	values := make([][]float64, n)
	for r := range values {
		values[r] = make([]float64, 2*length)
		for i := range length {
			values[r][i], values[r][length+i] = float64(i%97+r), noise(seed, r, i)
		}
	}
	bs := buffers(f64, values)
	err := together(groups, func(g Group) error {
		fs := []func() error{func() error { return g.AllReduce(ctx, bs[g.Rank()]) }}
		if other := 1 - g.Rank(); n > 1 && other >= 0 {
			lengths := []int{length, 3}
			fs = append(fs, func() error { return sendTo(ctx, g, other, lengths) }, func() error { return receiveFrom(ctx, g, other, lengths) })
		}
		return concurrently(fs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range groups {
		for i := range 2 * length {
			if want := float64(n*(i%97) + n*(n-1)/2); i < length && at(bs[r], i) != want {
				t.Fatalf("rank %d, element %d of %d: got %v, want %v", r, i, length, at(bs[r], i), want)
			}
			if !same(at(bs[r], i), at(bs[0], i)) {
				t.Fatalf("element %d of %d: rank 0 has %v, rank %d has %v", i, length, at(bs[0], i), r, at(bs[r], i))
			}
		}
	}
}

// TestAlgorithmsOfLargeBuffers sends more than fits into queues and sockets, in several pieces.
func TestAlgorithmsOfLargeBuffers(t *testing.T) {
	for name, create := range allGroups() {
		for _, algorithm := range schedule.Names() {
			t.Run(name+" "+algorithm, func(t *testing.T) {
				groups, err := create(3, Options{Algorithm: algorithm, RanksPerNode: 2})
				if err != nil {
					t.Fatal(err)
				}
				err = together(groups, func(g Group) error { return addUp(g, 1_000_003, 2) })
				if err := errors.Join(err, closeAll(groups)); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestAlgorithmNamesTheMissingRank checks that the errors of all ranks name a rank that does not
// call, and that the ranks then are notified.
func TestAlgorithmNamesTheMissingRank(t *testing.T) {
	for name, create := range allGroups() {
		for _, algorithm := range schedule.Names() {
			t.Run(name+" "+algorithm, func(t *testing.T) {
				t.Parallel() // most of it waits for the time-out
				groups, err := create(4, Options{Timeout: time.Second, Algorithm: algorithm, RanksPerNode: 2})
				if err != nil {
					t.Fatal(err)
				}
				one := func(g Group) error { return g.AllReduce(context.Background(), device.Buffer{F32: make32(100, 1)}) }
				if err := together(groups, one); err != nil {
					t.Fatal(err)
				}
				// Through memory, and in the ring of sockets, a rank may be notified first of another
				// rank that has failed because of the missing one.
				mayHearOfAnother := name == "in-process" || name == "shared memory" || algorithm == schedule.Ring
				errs := make([]error, 4)
				_ = together(groups[:3], func(g Group) error { errs[g.Rank()] = one(g); return nil })
				for r, err := range errs[:3] {
					if !containsAny(err, "all-reduce 2: rank 3 (last seen in all-reduce 1) did not arrive within", "all-reduce 2: rank 3 is missing (last seen in all-reduce 1)") &&
						!(mayHearOfAnother && r != 0 && containsAny(err, "failed (last seen in all-reduce 2)")) {
						t.Errorf("error of rank %d: %v", r, err)
					}
				}
				wantError(t, one(groups[3]), "all-reduce 2: rank ")
				if err := closeAll(groups); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestAlgorithmsNoticeARankThatLeft checks the errors of all ranks when one closes its group.
func TestAlgorithmsNoticeARankThatLeft(t *testing.T) {
	for name, create := range allGroups() {
		for _, algorithm := range schedule.Names() {
			t.Run(name+" "+algorithm, func(t *testing.T) {
				groups, err := create(4, Options{Timeout: time.Minute, Algorithm: algorithm, RanksPerNode: 2})
				if err != nil {
					t.Fatal(err)
				}
				if err := groups[2].Close(); err != nil {
					t.Fatal(err)
				}
				errs := make([]error, 4)
				_ = together([]Group{groups[0], groups[1], groups[3]}, func(g Group) error {
					errs[g.Rank()] = g.AllReduce(context.Background(), device.Buffer{F32: make32(100, 1)})
					return nil
				})
				for _, r := range []int{0, 1, 3} {
					if !containsAny(errs[r], "rank 2 has left the group", "failed (") {
						t.Errorf("error of rank %d: %v", r, errs[r])
					}
				}
				if err := closeAll(groups); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestAlgorithmsRefuseDifferentCalls checks that different lengths, and different algorithms, are
// an error.
func TestAlgorithmsRefuseDifferentCalls(t *testing.T) {
	ctx := context.Background()
	for name, create := range allGroups() {
		groups, err := create(2, Options{Algorithm: schedule.Tree, Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		err = together(groups, func(g Group) error { return g.AllReduce(ctx, device.Buffer{F32: make32(5+g.Rank(), 0)}) })
		if !containsAny(err, "rank 0 calls all-reduce of 5 float32 by algorithm tree, rank 1 calls all-reduce of 6 float32 by algorithm tree") {
			t.Errorf("%s: error %v", name, err)
		}
		if err := closeAll(groups); err != nil {
			t.Fatal(err)
		}
	}
	groups := newInProcessGroups(2, Options{})
	groups[1].(*memoryGroup).algorithm.name = schedule.Halving
	err := together(groups, func(g Group) error { return g.AllReduce(ctx, device.Buffer{F32: make32(5, 0)}) })
	wantError(t, err, "rank 0 calls all-reduce of 5 float32, rank 1 calls all-reduce of 5 float32 by algorithm halving")
}

// TestTune checks that after Tune all ranks have the same algorithm for each size, that Name
// lists them, and that all-reduces then work in all sizes.
func TestTune(t *testing.T) {
	for name, create := range allGroups() {
		t.Run(name, func(t *testing.T) {
			groups, err := create(3, Options{Algorithm: AlgorithmAuto, RanksPerNode: 2})
			if err != nil {
				t.Fatal(err)
			}
			if err := together(groups, func(g Group) error { return Tune(context.Background(), g) }); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				if g.Name() != groups[0].Name() || !strings.Contains(g.Name(), ", auto: ") || !strings.Contains(g.Name(), " near 1024 B") {
					t.Errorf("rank %d has %q", g.Rank(), g.Name())
				}
			}
			t.Log(groups[0].Name())
			for _, n := range []int{0, 1, 300, 70_000, 1_300_000} {
				if err := together(groups, func(g Group) error { return addUp(g, n, 2) }); err != nil {
					t.Fatal(err)
				}
			}
			if err := closeAll(groups); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestChoiceBySize checks that the algorithm of the nearest measured size is chosen, on a scale
// of logarithms.
func TestChoiceBySize(t *testing.T) {
	a := newAlgorithmSelector(Options{Algorithm: AlgorithmAuto, RanksPerNode: 2}, AlgorithmDirect, 0, 4)
	if got := a.chooseForSize(100); got != AlgorithmDirect {
		t.Errorf("before Tune: %s", got)
	}
	if want := []string{"direct", "ring", "halving", "tree", "hierarchical"}; !slices.Equal(a.candidates, want) {
		t.Errorf("candidates %v", a.candidates)
	}
	a.bySize = []string{"tree", "halving", "halving", "ring"}
	for n, want := range map[int]string{0: "tree", 1000: "tree", 4095: "tree", 4097: "halving", 1 << 18: "halving", 1<<20 + 1: "ring", 1 << 30: "ring"} {
		if got := a.chooseForSize(n); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
	if got, want := a.nameWithAlgorithm("shared memory"), "shared memory, auto: tree near 1024 B, halving near 16384 B, ring near 4194304 B"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAlgorithmOptions(t *testing.T) {
	wantError(t, Options{Algorithm: "rings"}.Validate(), `unknown algorithm "rings" of all-reduce (did you mean ring?): use auto, direct, ring, halving, tree or hierarchical`)
	wantError(t, Options{RanksPerNode: -1}.Validate(), "invalid number of ranks per node -1")
	_, err := NewRing("tcp ring", 0, 2, Connections{}, Options{Algorithm: AlgorithmDirect})
	wantError(t, err, `all-reduce algorithm "direct" needs shared memory`)
	for algorithm, want := range map[string]string{"": "in-process", AlgorithmDirect: "in-process", schedule.Tree: "in-process, tree", AlgorithmAuto: "in-process, auto"} {
		if got := newInProcessGroups(2, Options{Algorithm: algorithm})[0].Name(); got != want {
			t.Errorf("algorithm %q: name %q, want %q", algorithm, got, want)
		}
	}
	for algorithm, want := range map[string]string{"": "tcp ring, TLS", schedule.Ring: "tcp ring, TLS", schedule.Halving: "tcp, TLS, halving", AlgorithmAuto: "tcp, TLS, auto"} {
		a := newAlgorithmSelector(Options{Algorithm: algorithm}, schedule.Ring, 0, 4)
		if got := a.nameWithAlgorithm("tcp ring, TLS"); got != want {
			t.Errorf("algorithm %q over sockets: name %q, want %q", algorithm, got, want)
		}
	}
	if got := fmt.Sprint(newAlgorithmSelector(Options{}, schedule.Ring, 0, 4).candidates); got != "[ring halving tree]" {
		t.Errorf("candidates of a ring: %s", got)
	}
}

// addUp calls AllReduce the given number of times on n numbers, which are all rank+1 at first,
// and checks the result.
func addUp(g Group, n, times int) error {
	b := device.Buffer{F32: make32(n, float32(g.Rank()+1))}
	for range times {
		if err := g.AllReduce(context.Background(), b); err != nil {
			return err
		}
	}
	// The first sum is 1 + 2 + …. Each further call multiplies it by the number of ranks; the
	// result may overflow to infinity.
	ranks := float64(g.Size())
	want := float32(ranks * (ranks + 1) / 2 * math.Pow(ranks, float64(times-1)))
	for i, v := range b.F32 {
		if v != want {
			return fmt.Errorf("element %d is %v, want %v", i, v, want)
		}
	}
	return nil
}
