package train

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestBisect: for every largest batch up to 40 the search finds it, tries each
// batch once, and first powers of 2.
func TestBisect(t *testing.T) {
	for most := 1; most <= 40; most++ {
		for limit := 0; limit <= most+1; limit++ {
			seen := map[int]bool{}
			got, err := bisect(most, func(b int) (bool, error) {
				if seen[b] || b < 1 || b > most {
					t.Fatalf("most %d, limit %d: batch %d is tried again or is none", most, limit, b)
				}
				seen[b] = true
				return b <= limit, nil
			})
			if err != nil || got != min(limit, most) {
				t.Errorf("most %d, limit %d: %d, %v", most, limit, got, err)
			}
			if len(seen) > 12 { // 6 powers, 6 halves
				t.Errorf("most %d, limit %d: %d tries", most, limit, len(seen))
			}
		}
	}
	boom := errors.New("boom")
	if _, err := bisect(8, func(b int) (bool, error) { return true, map[bool]error{true: boom}[b == 4] }); !errors.Is(err, boom) {
		t.Errorf("error is lost: %v", err)
	}
}

// TestLargestBatch: what is found fits as the engine loads it, one more does not
// by the plan, workers share the memory, and the evidence says so.
func TestLargestBatch(t *testing.T) {
	cfg := tiny()
	cfg.Data.Count = 205
	search := func(memory int64, workers int) *BatchSearch {
		t.Helper()
		tried := 0
		s, err := LargestBatch(t.Context(), cfg, BatchOptions{Memory: memory, Workers: workers, Tried: func(BatchTest) { tried++ }})
		if err != nil {
			t.Fatal(err)
		}
		if tried != len(s.Tests) {
			t.Errorf("%d of %d tests were told", tried, len(s.Tests))
		}
		return s
	}
	s := search(8<<20, 1)
	text := s.String()
	last := s.Tests[len(s.Tests)-1]
	if s.Largest < 8 || s.Bound != "memory" || last.Batch != s.Largest || !last.Fits || last.Bytes > 8<<20 || last.How != "engine that loaded it" {
		t.Errorf("%s", text)
	}
	for _, want := range []string{"batch 1: ", "batch 8: ", "does not fit", fmt.Sprintf("largest batch: %d a worker", s.Largest), "8.0 MiB"} {
		if !strings.Contains(text, want) {
			t.Errorf("the evidence lacks %q:\n%s", want, text)
		}
	}
	if two := search(16<<20, 2); two.Largest != s.Largest || !strings.Contains(two.Verdict(), fmt.Sprintf("%d with 2", 2*s.Largest)) {
		t.Errorf("two workers with twice the memory: %d, one: %d; %s", two.Largest, s.Largest, two.Verdict())
	}
	if most := search(1<<40, 3); most.Largest != 66 || most.Bound != "samples" { // 200 samples for 3
		t.Errorf("without a bound by memory: %s", most.Verdict())
	}
	if none := search(1<<10, 1); none.Largest != 0 || !strings.Contains(none.Verdict(), "no batch fits") {
		t.Errorf("in 1 KiB: %s", none.Verdict())
	}
	cfg.Batch = 0
	if _, err := LargestBatch(t.Context(), cfg, BatchOptions{Memory: 1}); err == nil || !strings.Contains(err.Error(), "batch is 0") {
		t.Errorf("a wrong config: %v", err)
	}
}
