package engine_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
)

// alone is a GradSync that exchanges gradients alone.
type alone struct{}

func (alone) ReduceBucket(int, device.Buffer, device.Stream) error { return nil }
func (alone) Wait() error                                          { return nil }
func (alone) Capabilities() engine.SyncCapabilities                { return engine.SyncCapabilities{} }

// shared is a NormSync among workers of which the others have given theirs.
type shared struct {
	alone
	before, after []float64
	err           error
}

func (s shared) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{ShareStatistics: s.share}
}

func (s shared) share(own []float64) ([]float64, error) {
	return slices.Concat(s.before, own, s.after), s.err
}

func TestStatisticsMoments(t *testing.T) {
	// The elements of two channels on three workers. A mean that is 10⁸ times the
	// distances from it leaves nothing of them in a sum of squares.
	workers := [][2][]float64{
		{{1e8 + 1, 1e8 + 2, 1e8 + 4}, {1, 1, 1}},
		{{1e8 - 5}, {2}},
		{{1e8 + 3, 1e8 - 1}, {0, 5}},
	}
	moments := func(v []float64) (mean, squares float64) {
		for _, x := range v {
			mean += x / float64(len(v))
		}
		for _, x := range v {
			squares += (x - mean) * (x - mean)
		}
		return mean, squares
	}
	vector := func(worker int) []float64 {
		v := []float64{float64(len(workers[worker][0])), 0, 0, 0, 0}
		for c := range 2 {
			v[1+c], v[3+c] = moments(workers[worker][c])
		}
		return v
	}
	var all [2][]float64
	for _, w := range workers {
		for c := range all {
			all[c] = append(all[c], w[c]...)
		}
	}
	var first []float64
	for worker := range workers {
		sync := shared{}
		for other := range workers {
			if other < worker {
				sync.before = append(sync.before, vector(other)...)
			} else if other > worker {
				sync.after = append(sync.after, vector(other)...)
			}
		}
		var s engine.NormExchange
		if err := s.BeginStep(sync); err != nil {
			t.Fatal(err)
		}
		own := vector(worker)
		mean, squares := own[1:3], own[3:]
		total, err := s.CombineMoments(own[0], mean, squares)
		if err != nil || total != 6 {
			t.Fatalf("worker %d: %v elements, error %v, want 6", worker, total, err)
		}
		for c := range all {
			m, q := moments(all[c])
			if math.Abs(mean[c]-m) > 1e-7 || math.Abs(squares[c]-q) > 1e-5 {
				t.Errorf("worker %d, channel %d: mean %v and squares %v, want %v and %v", worker, c, mean[c], squares[c], m, q)
			}
		}
		if first == nil {
			first = slices.Clone(own)
		} else if !slices.Equal(first[1:], own[1:]) {
			t.Errorf("worker %d has %v, worker 0 has %v", worker, own, first)
		}
		if s.TakeExchangeTime() < 0 || s.TakeExchangeTime() != 0 {
			t.Error("the time spent does not begin anew")
		}
	}
}

func TestStatisticsSums(t *testing.T) {
	var s engine.NormExchange
	if err := s.BeginStep(shared{before: []float64{3, 1, 2, 10, 20}, after: []float64{1, 7, 8, 70, 80}}); err != nil {
		t.Fatal(err)
	}
	a, b := []float64{4, 5}, []float64{40, 50}
	total, err := s.CombineSums(2, a, b)
	if err != nil || total != 6 || !slices.Equal(a, []float64{12, 15}) || !slices.Equal(b, []float64{120, 150}) { // 1+4+7, 2+5+8
		t.Errorf("%v elements, sums %v and %v, error %v", total, a, b, err)
	}
	if err := s.BeginStep(nil); err != nil {
		t.Fatal(err)
	}
	if total, err = s.CombineSums(2, a, b); err != nil || total != 2 || a[0] != 12 || b[1] != 150 {
		t.Errorf("alone: %v elements, sums %v and %v, error %v", total, a, b, err)
	}
	if total, err = s.CombineMoments(2, a, b); err != nil || total != 2 || a[0] != 12 || b[1] != 150 {
		t.Errorf("alone: %v elements, moments %v and %v, error %v", total, a, b, err)
	}
}

func TestStatisticsErrors(t *testing.T) {
	var s engine.NormExchange
	if err := s.BeginStep(alone{}); err == nil || !strings.Contains(err.Error(), "synchronize batch norms: engine_test.alone exchanges only gradients: use sync_batchnorm=false") {
		t.Errorf("error %v", err)
	}
	for want, sync := range map[string]shared{
		"exchange statistics: peer is gone": {err: errors.New("peer is gone")},
		"exchange statistics: the workers passed different numbers of statistics: all workers must run the same program": {after: []float64{1, 2}},
	} {
		if err := s.BeginStep(sync); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CombineMoments(1, []float64{1}, []float64{1}); err == nil || err.Error() != want {
			t.Errorf("moments: error %v, want %q", err, want)
		}
		if _, err := s.CombineSums(1, []float64{1}, []float64{1}); err == nil || err.Error() != want {
			t.Errorf("sums: error %v, want %q", err, want)
		}
	}
}
