package plan_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/plan"
)

// TestArena: buffers alive at once never overlap, and the arena is no smaller
// than what is alive at once and no larger than all of it.
func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(rapid.Custom(func(t *rapid.T) plan.BufferLifetime {
			first := rapid.IntRange(0, 20).Draw(t, "first")
			return plan.BufferLifetime{Size: 8 * rapid.IntRange(1, 100).Draw(t, "size"), First: first, Last: first + rapid.IntRange(0, 10).Draw(t, "length")}
		})).Draw(t, "list")
		offsets, total := plan.LayOutArena(list)
		alive, sum := make([]int, 32), 0
		for i, a := range list {
			sum += a.Size
			if offsets[i] < 0 || offsets[i]+a.Size > total || offsets[i]%8 != 0 {
				t.Fatalf("buffer %d at %d leaves the arena of %d or its alignment", i, offsets[i], total)
			}
			for s := a.First; s <= a.Last; s++ {
				alive[s] += a.Size
			}
			for j, b := range list[:i] {
				if a.First <= b.Last && b.First <= a.Last && offsets[i] < offsets[j]+b.Size && offsets[j] < offsets[i]+a.Size {
					t.Fatalf("buffers %d and %d overlap", j, i)
				}
			}
		}
		if least := slices.Max(alive); total < least || total > sum {
			t.Fatalf("the arena has %d: at least %d and at most %d make sense", total, least, sum)
		}
	})
}

// TestArenaReuses: a chain of equal buffers, each read by the next, needs two.
func TestArenaReuses(t *testing.T) {
	var list []plan.BufferLifetime
	for i := range 10 {
		list = append(list, plan.BufferLifetime{Size: 64, First: i, Last: i + 1})
	}
	if _, total := plan.LayOutArena(list); total != 128 {
		t.Errorf("a chain of 64 needs %d, not 128", total)
	}
}
