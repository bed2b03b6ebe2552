// Package bench measures Lockstep beside what it is compared with, in one run,
// and reports in one form: a table for people, or JSON.
//
// EngineRuns compares training steps with PyTorch's, AllReduceRuns sums over
// workers with gloo's, AblationRuns the engine with itself without one of its
// optimisations, ScalingRuns several workers with one. Both sides of a
// comparison are processes of their own that answer one request at a time and
// are measured in turns, so that a machine that changes does so for both, and
// the median of the repeats' ratios counts:
//
//	records, err := bench.EngineRuns(ctx, bench.EngineOptions{
//		Shape: bench.DefaultShape(), Threads: []int{1, 2}, Workers: 2, Repeats: 5,
//	})
//	if err != nil {
//		return err
//	}
//	return bench.Write(os.Stdout, records, false)
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Record is one measured comparison.
type Record struct {
	Name      string     `json:"name"`
	Value     float64    `json:"value"` // ours: the median over the repeats
	Unit      string     `json:"unit"`  // of Value and PeerValue
	Peer      string     `json:"peer"`  // what it is compared with
	PeerValue float64    `json:"peer_value"`
	Ratio     float64    `json:"ratio"`   // over 1: we are better; the median of the repeats' ratios
	Target    float64    `json:"target"`  // what Ratio must reach; 0: none is set
	Repeats   int        `json:"repeats"` // interleaved measurements of each side
	Spread    [2]float64 `json:"spread"`  // lowest and highest ratio of the repeats
	// Within is the interval in which Value must be, in place of a target; nil: none is set.
	Within *[2]float64 `json:"within,omitempty"`

	Machine string `json:"machine"`
	Commit  string `json:"commit"`
}

// Met reports whether the target is reached, and the value is within its interval.
func (r Record) Met() bool {
	if w := r.Within; w != nil && !(r.Value >= w[0] && r.Value <= w[1]) {
		return false
	}
	return r.Ratio >= r.Target
}

// Write writes records as a table, or as JSON.
func Write(w io.Writer, records []Record, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(records)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\tours\tpeer\t\tratio (median)\tlowest … highest\ttarget\trepeats")
	for _, r := range records {
		target := "none"
		if r.Target > 0 {
			target = fmt.Sprintf("≥ %.2f, missed", r.Target)
			if r.Met() {
				target = fmt.Sprintf("≥ %.2f, reached", r.Target)
			}
		}
		if w := r.Within; w != nil {
			target = fmt.Sprintf("%.4g … %.4g, missed", w[0], w[1])
			if r.Met() {
				target = fmt.Sprintf("%.4g … %.4g, reached", w[0], w[1])
			}
		}
		fmt.Fprintf(t, "%s\t%.4g %s\t%s\t%.4g %s\t%.3f\t%.3f … %.3f\t%s\t%d\n",
			r.Name, r.Value, r.Unit, r.Peer, r.PeerValue, r.Unit, r.Ratio, r.Spread[0], r.Spread[1], target, r.Repeats)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(records) > 0 {
		_, err := fmt.Fprintf(w, "machine: %s; commit %s\n", records[0].Machine, records[0].Commit)
		return err
	}
	return nil
}

// compared fills the numbers of a record from interleaved repeats: ours[i] and
// peers[i] were measured next to each other, and more is better.
func compared(r Record, ours, peers []float64) Record {
	return r.filled(ours, peers, func(ours, peers float64) float64 { return ours / peers })
}

// comparedCost is compared where less is better, such as memory.
func comparedCost(r Record, ours, peers []float64) Record {
	return r.filled(ours, peers, func(ours, peers float64) float64 { return peers / ours })
}

func (r Record) filled(ours, peers []float64, ratio func(ours, peers float64) float64) Record {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ratio(ours[i], peers[i])
	}
	r.Value, r.PeerValue, r.Ratio = median(ours), median(peers), median(ratios)
	r.Repeats = len(ours)
	r.Spread = [2]float64{slices.Min(ratios), slices.Max(ratios)}
	return r
}

// median of v, NaN for nothing.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}
