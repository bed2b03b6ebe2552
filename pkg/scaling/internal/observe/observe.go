// Package observe extracts from a run the measurements that a study compares: times according to a
// rule, batches, losses and quality.
package observe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/stats"
)

// MeasurementRule determines which epochs of a run count, and how they are combined; see scaling.Rule.
type MeasurementRule struct {
	DropFirst       int
	Epochs          string
	SamplesPerEpoch int
}

// MedianStatistic is the value of Rule.Epochs that selects the median over the epochs.
const MedianStatistic = "median"

// Measurements contains the measurements of one run according to a rule.
type Measurements struct {
	// Seconds is the training time per epoch, Rate the throughput in RateUnit, and Wall the time of
	// the complete job in seconds. Unknown values are NaN.
	Seconds, Rate, Wall float64
	// Job is Wall if the log contains no other measure of the run's speed, otherwise NaN. JobEpochs
	// is the number of epochs of the job, or 0 if unknown. If the samples of an epoch are known
	// too, Rate is computed from them.
	Job, JobEpochs float64
	RateUnit       string // such as "samples/s"; "" if Rate is unknown
	// RateSource describes a rate that was not computed from the samples of the epochs, such as
	// "the mean of the logged values of tps"; it is "" for other rates.
	RateSource string
	Epochs     int // number of counted epochs
	Last       LastValues
	Note       string // what a reader must know to interpret the numbers; "" if nothing
}

// Measure returns the measurements of a run according to the rule. If the epochs have no sample
// counts, Rate is the logged throughput, if any. If their times are unknown too, Rate is computed
// from the time of the training or of the job, provided that the samples and epochs are known.
func (rule MeasurementRule) Measure(r runs.Run) Measurements {
	m, unit := rule.measureEpochs(r), cmp.Or(r.ThroughputUnit, DefaultRateUnit)
	if !math.IsNaN(m.Rate) {
		m.RateUnit = unit
	} else if logged := rule.findLoggedThroughput(&r); logged.rate > 0 {
		m.Rate, m.RateUnit, m.RateSource = logged.rate, logged.unit, logged.source
	}
	if m.Job = math.NaN(); math.IsNaN(m.Rate) && math.IsNaN(m.Seconds) && !HasEpochTimes(r) {
		m.Job, m.JobEpochs = m.Wall, TrainedEpochs(r)
	}
	switch samples, epochs := rule.samplesPerEpoch(r), TrainedEpochs(r); {
	case !math.IsNaN(m.Rate) || HasEpochTimes(r) || samples == 0 || epochs == 0:
	case m.Seconds > 0: // the time of the training, divided by its epochs
		m.Rate, m.RateUnit = samples/m.Seconds, unit
	case m.Job > 0:
		m.Rate, m.RateUnit, m.RateSource = samples*epochs/m.Job, unit, jobRateSource
	}
	return m
}

const jobRateSource = "the samples of all epochs divided by the time of the whole job, which includes start-up and validation"

// samplesPerEpoch returns the number of samples in each epoch of a run, or 0 if unknown.
func (rule MeasurementRule) samplesPerEpoch(r runs.Run) float64 {
	return float64(cmp.Or(SamplesPerEpoch(r), rule.SamplesPerEpoch))
}

// measureEpochs returns the measurements of a run whose rate, if known, is computed from its
// epochs.
func (rule MeasurementRule) measureEpochs(r runs.Run) Measurements {
	var seconds, rates []float64 // of the counted epochs, for their medians
	if rule.Epochs == MedianStatistic {
		seconds, rates = make([]float64, 0, len(r.Epochs)), make([]float64, 0, len(r.Epochs))
	}
	var n int
	var samples, knownSeconds, total float64 // knownSeconds is the time of the epochs with a known number of samples
	counts := rule.CountedEpochFilter(r)
	for i := range r.Epochs {
		e := &r.Epochs[i]
		if !counts(i) || !(e.Seconds > 0) || math.IsInf(e.Seconds, 0) {
			continue
		}
		n, total = n+1, total+e.Seconds
		trained := rule.SamplesInEpoch(e)
		if trained > 0 {
			samples, knownSeconds = samples+trained, knownSeconds+e.Seconds
		}
		if rule.Epochs != MedianStatistic {
			continue
		}
		seconds = append(seconds, e.Seconds)
		if trained > 0 {
			rates = append(rates, trained/e.Seconds)
		}
	}
	m := Measurements{Seconds: math.NaN(), Rate: math.NaN(), Wall: wallSeconds(r), Epochs: n, Last: NewLastValues(r)}
	if m.Epochs == 0 {
		return rule.measureWithoutEpochTimes(r, m)
	}
	m.Seconds = total / float64(n)
	if rule.Epochs == MedianStatistic {
		m.Seconds = stats.Median(seconds)
	}
	switch {
	case samples == 0:
	case rule.Epochs == MedianStatistic:
		m.Rate = stats.Median(rates)
	default: // the mean rate over time, not over epochs
		m.Rate = samples / knownSeconds
	}
	return m
}

// SamplesInEpoch returns the number of samples of an epoch without padding, or 0 if unknown.
func (rule MeasurementRule) SamplesInEpoch(e *runs.Epoch) float64 {
	if n := e.Samples - e.PaddingSamples; n > 0 {
		return float64(n)
	}
	if e.SamplesPerSecond > 0 && e.Seconds > 0 && IsFinite(e.SamplesPerSecond) {
		return e.SamplesPerSecond * e.Seconds // seconds × samples/s is the epoch's samples
	}
	return float64(rule.SamplesPerEpoch)
}

// measureWithoutEpochTimes completes m for a run whose epochs have no times. If the log has the
// total training time, the seconds per epoch are its mean. If the log has only a throughput, as in
// synthetic benchmarks, only the rate is set.
func (rule MeasurementRule) measureWithoutEpochTimes(r runs.Run, m Measurements) Measurements {
	if HasEpochTimes(r) {
		return m
	}
	var rates []float64
	counts := rule.CountedEpochFilter(r)
	for i := range r.Epochs {
		if e := &r.Epochs[i]; e.SamplesPerSecond > 0 && IsFinite(e.SamplesPerSecond) && counts(i) {
			rates = append(rates, e.SamplesPerSecond)
		}
	}
	if len(rates) > 0 {
		m.Rate, m.Epochs = stats.Mean(rates), len(rates)
		if rule.Epochs == MedianStatistic {
			m.Rate = stats.Median(rates)
		}
	}
	whole, ok := r.Info.Config[logread.TrainingSecondsKey].(float64)
	switch epochs := epochsInTrainingTime(r); {
	case !ok || !(whole > 0):
	case epochs > 0:
		m.Note = fmt.Sprintf("the logs contain only the total training time; their seconds per epoch are this time divided by their %s, including the first", describeTrainedEpochs(r))
		m.Epochs, m.Seconds = max(len(r.Epochs), int(epochs)), whole/epochs
		if rule.SamplesPerEpoch > 0 {
			m.Rate = float64(rule.SamplesPerEpoch) / m.Seconds
		}
	case math.IsNaN(m.Wall):
		m.Wall, m.Note = whole, "the logs contain the total training time, but no number of epochs; this time is given as that of the whole job"
	}
	return m
}

// epochsInTrainingTime returns the number of epochs in a run's total training time: TrainedEpochs
// or, if that is unknown, the number of rows that contain values of epochs. It returns 0 if the only
// row is not an epoch.
func epochsInTrainingTime(r runs.Run) float64 {
	if n := len(r.Epochs); n != 1 || r.Epochs[0].Epoch > 0 {
		return cmp.Or(TrainedEpochs(r), float64(n))
	}
	return TrainedEpochs(r)
}

// TrainedEpochs returns the number of epochs that a run trained. It is the number stated in the
// log, or the number of logged epochs if they are complete from the first on. For a run that is
// done and has at most one logged epoch, it is the planned number. It returns 0 if the number is
// unknown, as for a table with one epoch of each run.
func TrainedEpochs(r runs.Run) float64 {
	if n, ok := r.Info.Config[logread.TrainingEpochsKey].(float64); ok && n > 0 && IsFinite(n) {
		return n
	}
	n := len(r.Epochs)
	if n > 0 && r.Epochs[0].Epoch == 1 && r.Epochs[n-1].Epoch == n {
		return float64(n)
	}
	if planned, ok := logread.PlannedEpochs(r); ok && n < 2 && r.Info.Status == runs.StatusDone {
		return planned
	}
	return 0
}

func describeTrainedEpochs(r runs.Run) string {
	if n := epochsInTrainingTime(r); n != math.Trunc(n) {
		return fmt.Sprintf("%.4g epochs", n)
	}
	return english.FormatCount(int(epochsInTrainingTime(r)), "epoch")
}

// HasEpochTimes reports whether the run has at least one epoch with a time.
func HasEpochTimes(r runs.Run) bool {
	return slices.ContainsFunc(r.Epochs, func(e runs.Epoch) bool { return e.Seconds > 0 })
}

// DistinctTexts is like Distinct, but omits empty strings.
func DistinctTexts[T any](items []T, value func(T) string) []string {
	return slices.DeleteFunc(Distinct(items, value), func(text string) bool { return text == "" })
}

// Distinct returns the distinct results of value for the items, in the order of their first
// occurrence.
func Distinct[T any, V comparable](items []T, value func(T) V) []V {
	var found []V
	for _, item := range items {
		if v := value(item); !slices.Contains(found, v) {
			found = append(found, v)
		}
	}
	return found
}

// CountedEpochFilter returns a function that reports whether the i-th epoch of a run counts. DropFirst
// refers to epoch numbers, not to indexes, because a log may omit the first epochs. It does not
// apply to a run whose only row is not an epoch, such as the throughput in a benchmark's summary or
// a row of a results table without an epoch number.
func (rule MeasurementRule) CountedEpochFilter(r runs.Run) func(i int) bool {
	if len(r.Epochs) == 1 && (!HasEpochTimes(r) || r.Epochs[0].Epoch < 1) {
		return func(int) bool { return true }
	}
	only, err := strconv.Atoi(rule.Epochs)
	return func(i int) bool {
		number := r.Epochs[i].Epoch
		if number < 1 {
			number = i + 1
		}
		if err == nil {
			return number == only
		}
		return number > rule.DropFirst
	}
}
