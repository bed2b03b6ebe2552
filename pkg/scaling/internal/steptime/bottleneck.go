package steptime

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/stats"
)

// Names of the trials from which FindBottleneck determines a bottleneck.
const (
	TrialIO        = "IO"
	TrialSynthetic = "SYNTHETIC"
	TrialFull      = "FULL"
)

// Values of Bottleneck.Bound: what limits the throughput.
const (
	BoundInput   = "input"
	BoundCompute = "compute"
	BoundUnclear = "unclear" // the ranges of the IO and SYNTHETIC trials overlap, or FULL is faster than the slower of them
)

// Bottleneck describes what limits the throughput of one run; see scaling.BottleneckRow.
type Bottleneck struct {
	Series              string
	Workers             int
	Run                 string
	IO, Synthetic, Full stats.Estimate
	Bound               string
	Share               float64
	Overlap             float64
	Headroom            float64
	Sentence            string
}

// FindBottleneck determines what limits the throughput of a run. It returns false unless the run
// has the trials IO, SYNTHETIC and FULL.
func FindBottleneck(series string, r runs.Run) (Bottleneck, bool) {
	row := Bottleneck{Series: series, Workers: r.Info.Workers, Run: r.Dir}
	for name, into := range map[string]*stats.Estimate{TrialIO: &row.IO, TrialSynthetic: &row.Synthetic, TrialFull: &row.Full} {
		i := slices.IndexFunc(r.Trials, func(t runs.Trial) bool { return strings.EqualFold(t.Name, name) })
		if i < 0 || !(r.Trials[i].Rate > 0) {
			return row, false
		}
		*into = trialEstimate(r.Trials[i])
	}
	io, synthetic, full := row.IO.Value, row.Synthetic.Value, row.Full.Value
	slower, faster := min(io, synthetic), max(io, synthetic)
	switch {
	case !trialRatesDiffer(row.IO, row.Synthetic):
		row.Bound = BoundUnclear
	case io < synthetic:
		row.Bound = BoundInput
	default:
		row.Bound = BoundCompute
	}
	row.Share, row.Headroom = full/slower, faster/full
	if slowest := row.slowerTrialRate(); row.Share > 1 && trialRatesDiffer(row.Full, slowest) {
		row.Bound = BoundUnclear
	}
	serial, best := 1/io+1/synthetic, 1/slower
	row.Overlap = min(1, max(0, (serial-1/full)/(serial-best)))
	row.Sentence = row.summarize()
	return row, true
}

// trialEstimate returns a trial's rate. Its interval is the rate ± the spread in the log, or NaN if
// the log has no spread.
func trialEstimate(t runs.Trial) stats.Estimate {
	s := stats.Estimate{Value: t.Rate, Min: t.Rate, Max: t.Rate, Low: math.NaN(), High: math.NaN(), N: 1}
	if len(t.Rates) > 0 {
		s.Min, s.Max, s.N = slices.Min(t.Rates), slices.Max(t.Rates), len(t.Rates)
	}
	if t.Spread >= 0 {
		s.Low, s.High = t.Rate-t.Spread, t.Rate+t.Spread
	}
	return s
}

// trialRatesDiffer reports whether two rates differ by more than their trials vary: all trials of one
// are faster than all trials of the other. If a log has only the spread, the intervals rate ±
// spread must not overlap.
func trialRatesDiffer(a, b stats.Estimate) bool {
	if a.N > 1 && b.N > 1 {
		return a.Max < b.Min || b.Max < a.Min
	}
	low, high := func(s stats.Estimate) float64 { return s.Low }, func(s stats.Estimate) float64 { return s.High }
	return intervalBoundOrValue(a, high) < intervalBoundOrValue(b, low) || intervalBoundOrValue(b, high) < intervalBoundOrValue(a, low)
}

// intervalBoundOrValue returns the bound of s that the function end gets (Low or High). If s has no
// interval, it returns the value.
func intervalBoundOrValue(s stats.Estimate, end func(stats.Estimate) float64) float64 {
	if v := end(s); !math.IsNaN(v) {
		return v
	}
	return s.Value
}

// minShareOfSlowerRate is the fraction of the slower rate (of IO and SYNTHETIC) that FULL must
// reach to count as limited by this rate alone.
const minShareOfSlowerRate = 0.9

// slowerTrialRate returns the lower of the rates of loading alone (IO) and computing alone (SYNTHETIC).
func (r Bottleneck) slowerTrialRate() stats.Estimate {
	if r.IO.Value < r.Synthetic.Value {
		return r.IO
	}
	return r.Synthetic
}

func (r Bottleneck) summarize() string {
	head := fmt.Sprintf("%s at %s: ", r.Series, english.FormatCount(r.Workers, "worker"))
	slower, what, cure := r.slowerTrialRate(), "the computation", "a faster loader gains nothing"
	if r.IO.Value < r.Synthetic.Value {
		what, cure = "the input", "faster computation gains nothing"
	}
	switch {
	case r.Share > 1 && trialRatesDiffer(r.Full, slower):
		return head + fmt.Sprintf("FULL (%s samples/s) is faster than %s alone (%s), which is impossible: measure the three trials again under equal conditions.",
			english.FormatNumber(r.Full.Value), what, english.FormatNumber(slower.Value))
	case r.Bound == BoundUnclear:
		return head + fmt.Sprintf("the input alone (%s) and the computation alone (%s samples/s) differ by no more than the variation of their trials, so neither is clearly the limit; FULL is %s; measure again with more trials, on an otherwise idle machine.",
			english.FormatNumber(r.IO.Value), english.FormatNumber(r.Synthetic.Value), english.FormatNumber(r.Full.Value))
	}
	text := head + fmt.Sprintf("%s is the limit: FULL reaches %s of the %s samples/s that %s alone allows", what, english.FormatPercent(r.Share), english.FormatNumber(slower.Value), what)
	switch {
	case r.Share >= minShareOfSlowerRate:
		text += "; " + cure
	case !trialRatesDiffer(r.Full, slower):
		text += "; " + cure + "; the rest is within the variation of the trials"
	default:
		text += fmt.Sprintf(", because loading and computing interfere with each other (%s of the possible overlap): give the loader its own cores, threads or memory", english.FormatPercent(r.Overlap))
	}
	if r.Headroom > 1 {
		text += fmt.Sprintf("; without this limit, training would be at most %s times as fast", english.FormatNumber(r.Headroom))
	}
	return text + "."
}
