package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// run executes a schedule symbolically and returns the terms that each rank has in each chunk
// at the end, such as "(0+1)". It checks the rules that Schedule documents.
func run(t *testing.T, s *Schedule) [][]string {
	t.Helper()
	values := make([][]string, s.Ranks)
	for r := range values {
		for range s.Chunks {
			values[r] = append(values[r], fmt.Sprint(r))
		}
	}
	for step := range s.Steps() {
		before := make([][]string, s.Ranks)
		for r := range values {
			before[r] = slices.Clone(values[r])
		}
		sends := map[[2]int]bool{} // rank and chunk
		for _, one := range s.Transfers {
			for c := one.Lo; one.Step == step && c < one.Hi; c++ {
				sends[[2]int{one.From, c}] = true
			}
		}
		for _, one := range s.Transfers {
			if one.Step != step {
				continue
			}
			if one.From == one.To || one.Lo < 0 || one.Hi > s.Chunks || one.Lo >= one.Hi {
				t.Fatalf("%s, %d ranks: invalid transfer %+v", s.Algorithm, s.Ranks, one)
			}
			for c := one.Lo; c < one.Hi; c++ {
				if sends[[2]int{one.To, c}] {
					t.Fatalf("%s, %d ranks, step %d: rank %d receives chunk %d, which it sends", s.Algorithm, s.Ranks, step, one.To, c)
				}
				if v := before[one.From][c]; one.Add {
					values[one.To][c] = "(" + v + "+" + values[one.To][c] + ")"
				} else {
					values[one.To][c] = v
				}
			}
		}
	}
	return values
}

// forAll calls f for every algorithm, 1 to 17 ranks, 1 to 5 pieces, and several topologies.
func forAll(t *testing.T, f func(s *Schedule, topology Topology)) {
	t.Helper()
	for _, name := range Names() {
		for ranks := 1; ranks <= 17; ranks++ {
			for _, perNode := range []int{0, 1, 2, 3, 8, 20} {
				for _, pieces := range []int{1, 2, 5} {
					topology := Topology{ranks, perNode}
					s, err := New(name, topology, pieces)
					if err != nil {
						t.Fatal(err)
					}
					f(s, topology)
				}
			}
		}
	}
}

// TestSchedulesAddUp checks that at the end each chunk of each rank is the sum of every rank's
// chunk, each once, and that all ranks have added in the same order, so that they have the
// same bits.
func TestSchedulesAddUp(t *testing.T) {
	forAll(t, func(s *Schedule, topology Topology) {
		values := run(t, s)
		for c := range s.Chunks {
			terms := strings.FieldsFunc(values[0][c], func(r rune) bool { return strings.ContainsRune("(+)", r) })
			slices.Sort(terms)
			if len(terms) != s.Ranks || len(slices.Compact(terms)) != s.Ranks {
				t.Fatalf("%s, %+v, chunk %d: the sum is %s", s.Algorithm, topology, c, values[0][c])
			}
			for r := range s.Ranks {
				if values[r][c] != values[0][c] {
					t.Fatalf("%s, %+v, chunk %d: rank 0 has %s, rank %d has %s", s.Algorithm, topology, c, values[0][c], r, values[r][c])
				}
			}
		}
	})
}

// TestSchedulesSendWhatTheirFormulasSay compares the chunks that ranks send with the formulas of
// the algorithms' comments.
func TestSchedulesSendWhatTheirFormulasSay(t *testing.T) {
	forAll(t, func(s *Schedule, topology Topology) {
		n, sent := s.Ranks, s.Sent()
		total := 0
		for _, k := range sent {
			total += k
		}
		wrong := func(what string, got, want int) {
			if got != want {
				t.Fatalf("%s, %+v: %s: got %d chunks of 1/%d buffer, want %d", s.Algorithm, topology, what, got, s.Chunks, want)
			}
		}
		// Every algorithm reduces n buffers to one and copies it back: 2(n−1) buffers.
		wrong("all ranks", total, 2*(n-1)*s.Chunks)
		powerOfTwo := n&(n-1) == 0
		switch s.Algorithm {
		case Ring:
			wrong("most of one rank", slices.Max(sent), 2*(n-1)) // 2(n−1)/n buffers
			wrong("steps", s.Steps(), 2*(n-1))
		case Halving:
			if powerOfTwo {
				wrong("most of one rank", slices.Max(sent), 2*(n-1))
			}
		case Tree:
			if n > 1 && s.Chunks == 1 {
				wrong("steps", s.Steps(), 2*treeDepth(n))
			}
		case Hierarchical:
			perNode := topology.PerNode
			if perNode == 0 {
				perNode = n
			}
			between := 0
			for _, one := range s.Transfers {
				if one.From/perNode != one.To/perNode {
					between += one.Hi - one.Lo
				}
			}
			wrong("between nodes", between, 2*((n+perNode-1)/perNode-1)*s.Chunks)
		}
	})
}

// TestOfIsOneRanksPart checks that the parts of all ranks contain each transfer twice.
func TestOfIsOneRanksPart(t *testing.T) {
	s, err := New(Halving, Topology{Ranks: 6}, 1)
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for r := range s.Ranks {
		parts += len(s.Of(r))
	}
	if parts != 2*len(s.Transfers) {
		t.Errorf("the ranks have %d transfers, want 2×%d", parts, len(s.Transfers))
	}
}

func TestInvalidSchedules(t *testing.T) {
	for _, tt := range []struct {
		name   string
		t      Topology
		pieces int
		want   string
	}{
		{"rings", Topology{Ranks: 2}, 1, `unknown algorithm "rings": use ring, halving, tree, hierarchical`},
		{Ring, Topology{}, 1, "got 0 ranks"},
		{Tree, Topology{Ranks: 2}, 0, "0 pieces"},
		{Tree, Topology{Ranks: 2, PerNode: -1}, 1, "-1 per node"},
	} {
		if _, err := New(tt.name, tt.t, tt.pieces); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v", tt, err)
		}
	}
}

// Two ranks in a ring: each sends one half, adds, and sends the sum of the other half.
func ExampleNew() {
	s, err := New(Ring, Topology{Ranks: 2}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range s.Transfers {
		fmt.Printf("step %d: rank %d sends chunk %d to rank %d, which adds it: %v\n", t.Step, t.From, t.Lo, t.To, t.Add)
	}
	// Output:
	// step 0: rank 0 sends chunk 1 to rank 1, which adds it: true
	// step 0: rank 1 sends chunk 0 to rank 0, which adds it: true
	// step 1: rank 0 sends chunk 0 to rank 1, which adds it: false
	// step 1: rank 1 sends chunk 1 to rank 0, which adds it: false
}
