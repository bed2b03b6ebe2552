package comparison

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat/distuv"
)

// Record is the result of a comparison between Lockstep and a peer.
type Record struct {
	Name      string     `json:"name"`
	Value     float64    `json:"value"` // Lockstep's median over the repeats
	Unit      string     `json:"unit"`  // of Value and PeerValue
	Peer      string     `json:"peer"`  // name of the peer
	PeerValue float64    `json:"peer_value"`
	Ratio     float64    `json:"ratio"`   // median of the repeats' ratios; over 1: Lockstep is better
	Target    float64    `json:"target"`  // least Ratio that is required; 0: no target
	Repeats   int        `json:"repeats"` // interleaved measurements of each side
	Spread    [2]float64 `json:"spread"`  // lowest and highest ratio of the repeats
	// Interval is the 95 % confidence interval of Ratio; nil if there are fewer than 6 repeats.
	Interval *[2]float64 `json:"interval,omitempty"`

	Machine string `json:"machine"`
	Commit  string `json:"commit"`
}

// MeetsTarget reports whether the ratio reaches the target.
func (r Record) MeetsTarget() bool { return r.Ratio >= r.Target }

// WriteRecords writes records as a table, or as JSON.
func WriteRecords(w io.Writer, records []Record, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(records)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\tours\tpeer\t\tratio (median)\t95 % interval\tlowest … highest\ttarget\trepeats")
	for _, r := range records {
		target := "none"
		if r.Target > 0 {
			target = fmt.Sprintf("≥ %.2f, missed", r.Target)
			if r.MeetsTarget() {
				target = fmt.Sprintf("≥ %.2f, reached", r.Target)
			}
		}
		interval := "-"
		if i := r.Interval; i != nil {
			interval = fmt.Sprintf("%.3f … %.3f", i[0], i[1])
		}
		fmt.Fprintf(t, "%s\t%.4g %s\t%s\t%.4g %s\t%.3f\t%s\t%.3f … %.3f\t%s\t%d\n",
			r.Name, r.Value, r.Unit, r.Peer, r.PeerValue, r.Unit, r.Ratio, interval, r.Spread[0], r.Spread[1], target, r.Repeats)
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

// CompareRates returns r with the statistics of the values filled in. Higher values are better. ours[i]
// and peers[i] must be from the same repeat.
func CompareRates(r Record, ours, peers []float64) Record {
	return r.withStatistics(ours, peers, func(ours, peers float64) float64 { return ours / peers })
}

// CompareCosts is like Compare, but lower values are better, as with memory.
func CompareCosts(r Record, ours, peers []float64) Record {
	return r.withStatistics(ours, peers, func(ours, peers float64) float64 { return peers / ours })
}

// withStatistics returns r with medians, spread and number of repeats. ratio must be greater than 1 if
// Lockstep is better.
func (r Record) withStatistics(ours, peers []float64, ratio func(ours, peers float64) float64) Record {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ratio(ours[i], peers[i])
	}
	r.Value, r.PeerValue, r.Ratio = Median(ours), Median(peers), Median(ratios)
	r.Repeats = len(ours)
	r.Spread = [2]float64{slices.Min(ratios), slices.Max(ratios)}
	r.Interval = medianConfidenceInterval(ratios)
	return r
}

// medianConfidenceInterval returns the 95 % confidence interval of the median of the distribution of v. It
// uses order statistics: the number of values below the median is binomial, whatever the
// distribution. With fewer than 6 values, even their whole range has less confidence, and
// medianConfidenceInterval returns nil.
func medianConfidenceInterval(v []float64) *[2]float64 {
	below := distuv.Binomial{N: float64(len(v)), P: 0.5}
	left := 0 // values to leave out on each side
	for below.CDF(float64(left)) <= 0.025 {
		left++
	}
	if left == 0 {
		return nil
	}
	s := slices.Sorted(slices.Values(v))
	return &[2]float64{s[left-1], s[len(s)-left]}
}

// PerSecond converts the seconds that n items took in each repeat to items per second.
func PerSecond(n float64, seconds []float64) []float64 {
	v := make([]float64, len(seconds))
	for i, s := range seconds {
		v[i] = n / s
	}
	return v
}

// Median returns the median of v, or NaN if v is empty.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}
