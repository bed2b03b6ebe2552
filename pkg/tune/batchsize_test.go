package tune

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
	"lockstep/pkg/train/traintest"
)

// TestBisect checks for every largest batch up to 40 that the search finds it, tries each batch
// at most once, and starts with powers of 2.
func TestBisect(t *testing.T) {
	for most := 1; most <= 40; most++ {
		for limit := 0; limit <= most+1; limit++ {
			seen := map[int]bool{}
			got, err := findLargestFitting(1, most, func(b int) (bool, error) {
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
	// With a smallest batch of 2, batch 1 is not tried.
	for limit := range 12 {
		got, err := findLargestFitting(2, 9, func(b int) (bool, error) {
			if b < 2 {
				t.Errorf("batch %d is tried", b)
			}
			return b <= limit, nil
		})
		if want := min(limit, 9); err != nil || got != want && (limit >= 2 || got != 0) {
			t.Errorf("least 2, limit %d: %d, %v", limit, got, err)
		}
	}
	boom := errors.New("boom")
	if _, err := findLargestFitting(1, 8, func(b int) (bool, error) { return true, map[bool]error{true: boom}[b == 4] }); !errors.Is(err, boom) {
		t.Errorf("error is lost: %v", err)
	}
}

// TestSearchByLoading checks for several dependences of the memory on the batch, and several
// start values, that the search finds the largest batch that fits, loads few batches and none
// twice, and has loaded the next larger batch, which does not fit.
func TestSearchByLoading(t *testing.T) {
	for name, bytes := range map[string]func(int) int64{
		"straight": func(b int) int64 { return 1000 + 100*int64(b) },
		"less":     func(b int) int64 { return 1000 + 100*int64(b) - 40*int64(max(0, b-6)) },
		"more":     func(b int) int64 { return 1000 + 100*int64(b) + 70*int64(max(0, b-6)) },
		"steps":    func(b int) int64 { return 1000 + 100*int64(b) + 500*int64(b/16) },
	} {
		for _, least := range []int{1, 2} {
			for limit := least - 1; limit <= 60; limit++ {
				memory := bytes(limit) + 50
				const most = 50
				for _, estimated := range []int{least, 10, most} {
					seen := map[int]bool{}
					got, err := findLargestByLoading(estimated, most, memory, measuredBatch{least, bytes(least)}, func(b int) (int64, bool, error) {
						if seen[b] || b < least || b > most {
							t.Fatalf("%s, limit %d: batch %d is loaded twice or is out of range", name, limit, b)
						}
						seen[b] = true
						return bytes(b), bytes(b) <= memory, nil
					})
					want := min(limit, most)
					if want < least {
						want = 0
					}
					if err != nil || got != want || got > 0 && !seen[got] || got < most && !seen[max(got, least-1)+1] || len(seen) > 8 {
						t.Errorf("%s, least %d, limit %d, from %d: %d, %v after loading %v", name, least, limit, estimated, got, err, seen)
					}
				}
			}
		}
	}
	boom := errors.New("boom")
	if _, err := findLargestByLoading(4, 8, 1, measuredBatch{1, 1}, func(int) (int64, bool, error) { return 0, false, boom }); !errors.Is(err, boom) {
		t.Errorf("error is lost: %v", err)
	}
}

// TestLargestBatch checks that the engine can load the largest batch, but not the next larger
// one, that workers share the memory, and that the text contains the tests.
func TestLargestBatch(t *testing.T) {
	cfg := traintest.Config()
	cfg.Data.Count = 205
	search := func(memory int64, workers int) *BatchSearch {
		t.Helper()
		tried := 0
		s, err := FindLargestBatch(t.Context(), cfg, BatchOptions{Memory: memory, Workers: workers, Tried: func(BatchTest) { tried++ }})
		if err != nil {
			t.Fatal(err)
		}
		if tried != len(s.Tests) {
			t.Errorf("Tried was called for %d of %d tests", tried, len(s.Tests))
		}
		return s
	}
	s := search(8<<20, 1)
	text := s.String()
	loaded := map[int]BatchTest{}
	for _, x := range s.Tests {
		if x.How == "engine that loaded it" {
			loaded[x.Batch] = x
		}
	}
	best, next := loaded[s.Largest], loaded[s.Largest+1]
	if s.Largest < 8 || s.Bound != "memory" || !best.Fits || best.Bytes > 8<<20 || next.Fits || next.Bytes <= 8<<20 {
		t.Errorf("%s", text)
	}
	for _, want := range []string{"batch 1: ", "batch 8: ", "does not fit", fmt.Sprintf("largest batch: %d per worker", s.Largest), "8.0 MiB"} {
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
	// One sample with a feature map of 1×1 has no variance for batch norm.
	small := traintest.Config()
	small.Data = train.DataConfig{Kind: data.KindShapes, Count: 45, Edge: 16, Classes: 4, TestImages: 11, Augment: data.Augment{Flip: true}}
	small.Model = train.ModelConfig{Kind: "resnet", Base: 4, Blocks: []int{1, 1, 1}, Classes: 4}
	if s, err := FindLargestBatch(t.Context(), small, BatchOptions{Memory: 1 << 40}); err != nil || s.Largest != 34 || s.Tests[0].Batch != 2 {
		t.Errorf("a network that needs a batch of 2: %+v, %v", s, err)
	}
	cfg.Batch = 0
	if _, err := FindLargestBatch(t.Context(), cfg, BatchOptions{Memory: 1}); err == nil || !strings.Contains(err.Error(), "batch is 0") {
		t.Errorf("a wrong config: %v", err)
	}
}
