package autotune

import (
	"errors"
	"slices"
	"testing"
	"time"

	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
)

// script is a Runner that plays back times and results; a time of 0 is a plan that fails.
type script struct {
	times   map[int64]float64 // by engine
	results map[int64][]float32
	asked   []int64
	lost    bool
}

func (s *script) Time(c Candidate, _ float64) (float64, error) {
	s.asked = append(s.asked, c.Plan.Engine)
	if ms := s.times[c.Plan.Engine]; ms > 0 {
		return ms, nil
	}
	return 0, errors.New("it does not run")
}

func (s *script) FillOperandsWithNoise() error          { return nil }
func (s *script) Result(c Candidate) ([]float32, error) { return s.results[c.Plan.Engine], nil }
func (s *script) IsLost() bool                          { return s.lost }

// engines are candidates of the engines with these numbers.
func engines(numbers ...int64) (all []Candidate) {
	for _, n := range numbers {
		all = append(all, Candidate{Plan: &cudnn.Plan{Engine: n}})
	}
	return all
}

// TestFastest: the fastest plan is taken, those that fail or want too much memory are passed
// over, and a budget that is over keeps the best so far.
func TestFastest(t *testing.T) {
	times := map[int64]float64{1: 3, 2: 0, 3: 1, 4: 2, 5: 0.5}
	huge := engines(1, 2, 3, 4, 5)
	huge[4].Plan.Workspace = MaxWorkspaceBytes + 1
	for _, c := range []struct {
		name   string
		all    []Candidate
		budget time.Duration
		best   int
		asked  []int64
	}{
		{"all", engines(1, 2, 3, 4), time.Hour, 2, []int64{1, 2, 3, 4}},
		{"too much memory", huge, time.Hour, 2, []int64{1, 2, 3, 4}},
		{"no time", engines(2, 1, 3), -1, 1, []int64{2, 1}}, // one that runs is needed
	} {
		r := &script{times: times}
		best, _, err := (&Tuner{Budget: c.budget}).findFastest(c.all, r)
		if err != nil || best != c.best || !slices.Equal(r.asked, c.asked) {
			t.Errorf("%s: candidate %d, asked %v, %v; want %d, %v", c.name, best, r.asked, err, c.best, c.asked)
		}
	}
	if _, _, err := (&Tuner{Budget: time.Hour}).findFastest(engines(2), &script{}); err == nil {
		t.Error("no plan runs, and no error says so")
	}
}

// TestConfirmed: the fastest plan whose result another engine gives too is taken; if no two
// agree, the fastest stays with a notice.
func TestConfirmed(t *testing.T) {
	right, wrong, other := []float32{1, -2, 3}, []float32{1, -2, 4}, []float32{0, 1, 0}
	for _, c := range []struct {
		name    string
		all     []Candidate
		results map[int64][]float32
		best    int
		notices int
	}{
		{"all right", engines(1, 2, 3), map[int64][]float32{1: right, 2: right, 3: right}, 0, 0},
		{"the fastest is wrong", engines(1, 2, 3), map[int64][]float32{1: wrong, 2: right, 3: right}, 1, 0},
		{"the same engine confirms nothing", engines(1, 1, 2, 3), map[int64][]float32{1: wrong, 2: right, 3: right}, 2, 0},
		{"none agree", engines(1, 2, 3), map[int64][]float32{1: wrong, 2: right, 3: other}, 0, 1},
		{"one engine", engines(1, 1), map[int64][]float32{1: wrong}, 0, 0},
	} {
		notices := 0
		tuner := &Tuner{Notice: func(string) { notices++ }}
		times := make([]float64, len(c.all))
		for i := range times {
			times[i] = float64(i + 1)
		}
		best, err := tuner.confirmFastest(Convolution{Type: device.F32}, c.all, 0, times, &script{results: c.results})
		if err != nil || best != c.best || notices != c.notices {
			t.Errorf("%s: candidate %d with %d notices, %v; want %d with %d", c.name, best, notices, err, c.best, c.notices)
		}
	}
}
