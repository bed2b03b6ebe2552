package scaling

import (
	"cmp"
	"fmt"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/observe"
)

// Values of Rule.Epochs and Rule.Repeats.
const (
	Mean   = "mean"
	Median = observe.MedianStatistic
)

// Values of Rule.Baseline, which may be a number as well.
const (
	BaselineSmallest = "smallest"
	BaselineOne      = "one"
)

// Values of Rule.Per.
const (
	PerWorker = "worker"
	PerNode   = "node"
)

// Rule determines which measurements count, and how several of them are combined into one number.
type Rule struct {
	// DropFirst is the number of epochs at the start of a run that do not count for time and
	// throughput, because the first epoch also includes start-up and cold caches.
	DropFirst int
	// Epochs selects how the counted epochs of a run are combined: "mean", "median", or the number
	// (from 1) of the only epoch that counts, such as "5". In the last case, DropFirst is ignored.
	// Empty means "mean".
	Epochs string
	// Repeats selects how the runs of a series at one worker count (different seeds) are combined:
	// "median" or "mean". Empty means "median".
	Repeats string
	// SamplesPerEpoch is the number of samples per epoch in runs whose logs lack it. If it is 0,
	// the throughput of these runs is unknown.
	SamplesPerEpoch int
	// Baseline is the size against which speed-up is computed: "smallest" (the fewest workers of
	// the series), "one", or a number such as "4". Empty means "smallest".
	Baseline string
	// Per is the unit of sizes: "worker" (one GPU if each worker has one) or "node". Empty means
	// "worker". If several worker counts use the same number of nodes, the largest one is the
	// baseline, because it uses all workers of its nodes.
	Per string
	// Confidence is the confidence level of intervals; 0 means 0.95.
	Confidence float64
}

// DefaultRule returns a rule that drops the first epoch, takes the mean over the other epochs of a
// run, and takes the median over repeated runs.
func DefaultRule() Rule { return Rule{DropFirst: 1, Epochs: Mean, Repeats: Median} }

func (r Rule) withDefaults() Rule {
	r.Epochs, r.Repeats = cmp.Or(r.Epochs, Mean), r.statisticOverRuns()
	r.Baseline, r.Per, r.Confidence = cmp.Or(r.Baseline, BaselineSmallest), r.sizeUnit(), r.confidenceLevel()
	return r
}

// Validate returns an error if a field is invalid. The error names the field by its command-line
// flag, such as --drop-first for DropFirst.
func (r Rule) Validate() error {
	n, err := strconv.Atoi(r.Epochs)
	base, baseErr := strconv.Atoi(r.Baseline)
	switch {
	case r.DropFirst < 0:
		return fmt.Errorf("invalid --drop-first %d: use 0 or more", r.DropFirst)
	case r.Epochs != "" && r.Epochs != Mean && r.Epochs != Median && (err != nil || n < 1):
		return fmt.Errorf("invalid --epochs %q: use %q, %q or the number of an epoch from 1", r.Epochs, Mean, Median)
	case r.Repeats != "" && r.Repeats != Mean && r.Repeats != Median:
		return fmt.Errorf("invalid --repeats %q: use %q or %q", r.Repeats, Mean, Median)
	case r.SamplesPerEpoch < 0:
		return fmt.Errorf("invalid --samples-per-epoch %d: use 0 (unknown) or more", r.SamplesPerEpoch)
	case r.Baseline != "" && r.Baseline != BaselineSmallest && r.Baseline != BaselineOne && (baseErr != nil || base < 1):
		return fmt.Errorf("invalid --baseline %q: use %q, %q or a number from 1", r.Baseline, BaselineSmallest, BaselineOne)
	case r.Per != "" && r.Per != PerWorker && r.Per != PerNode:
		return fmt.Errorf("invalid --per %q: use %q or %q", r.Per, PerWorker, PerNode)
	case r.Confidence != 0 && !(r.Confidence > 0 && r.Confidence < 1):
		return fmt.Errorf("invalid --confidence %g: use a level between 0 and 1, such as 0.95", r.Confidence)
	}
	return nil
}

// String describes the rule in words.
func (r Rule) String() string { return r.describeCountedEpochs() + "; " + r.describeBaseline() }

// describeCountedEpochs says which epochs count and how they are combined, without the baseline.
func (r Rule) describeCountedEpochs() string {
	s := fmt.Sprintf("epoch %s of each run", r.Epochs)
	switch how := cmp.Or(r.Epochs, Mean); how {
	case Mean, Median:
		s = how + " over the epochs of a run"
		switch r.DropFirst {
		case 0:
		case 1:
			s += ", the first left out"
		default:
			s += fmt.Sprintf(", the first %d left out", r.DropFirst)
		}
		s += ";"
	default:
		s += ","
	}
	return fmt.Sprintf("%s %s over repeated runs", s, r.statisticOverRuns())
}

func (r Rule) describeBaseline() string {
	unit := r.sizeUnit()
	switch r.Baseline {
	case "", BaselineSmallest:
		return fmt.Sprintf("baseline: the fewest %ss of a series", unit)
	case BaselineOne, "1":
		return "baseline: 1 " + unit
	}
	return fmt.Sprintf("baseline: %s %ss", r.Baseline, unit)
}

func (r Rule) sizeUnit() string {
	return cmp.Or(r.Per, PerWorker)
}

func (r Rule) formatSize(n int) string { return english.FormatCount(n, r.sizeUnit()) }

// confidenceLevel returns Confidence or, if it is 0, 0.95.
func (r Rule) confidenceLevel() float64 {
	return cmp.Or(r.Confidence, 0.95)
}

func (r Rule) toMeasurementRule() observe.MeasurementRule {
	return observe.MeasurementRule{DropFirst: r.DropFirst, Epochs: r.Epochs, SamplesPerEpoch: r.SamplesPerEpoch}
}
