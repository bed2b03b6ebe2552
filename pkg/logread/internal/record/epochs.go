package record

import (
	"math"
	"slices"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// MergeEpochs merges the epochs that each rank logged into one list. The duration of an epoch is
// the duration on the slowest rank. Losses and accuracies are means over the ranks. If sumRates is
// set, each rank logged only its own share of the samples, so rates and sample counts are summed;
// otherwise the values of the first rank are kept. A sum over only some of the ranks would be too
// small and becomes a problem in report.
func MergeEpochs(ranks [][]runs.Epoch, sumRates bool, report *Report) []runs.Epoch {
	ranks = slices.Clone(ranks)
	withRates := 0 // number of ranks to sum; 0 if the rates are not summed
	for _, epochs := range ranks {
		if sumRates && slices.ContainsFunc(epochs, func(e runs.Epoch) bool { return e.SamplesPerSecond == e.SamplesPerSecond }) {
			withRates++
		}
	}
	longest := 0
	for i, epochs := range ranks {
		if !slices.IsSortedFunc(epochs, CompareEpochs) {
			ranks[i] = slices.Clone(epochs)
			slices.SortStableFunc(ranks[i], CompareEpochs)
		}
		longest = max(longest, len(epochs))
	}
	joined := make([]runs.Epoch, 0, longest)
	all := make([]*runs.Epoch, len(ranks)) // the ranks' values of one epoch
	for {
		n, some := 0, false
		for _, epochs := range ranks {
			if len(epochs) > 0 && (!some || epochs[0].Epoch < n) {
				n, some = epochs[0].Epoch, true
			}
		}
		if !some {
			return joined
		}
		all = all[:0]
		for i := range ranks {
			for len(ranks[i]) > 0 && ranks[i][0].Epoch == n {
				all = append(all, &ranks[i][0])
				ranks[i] = ranks[i][1:]
			}
		}
		e := *all[0]
		mergeEpoch(&e, all, sumRates, withRates, report)
		joined = append(joined, e)
	}
}

// CompareEpochs orders epochs by their numbers.
func CompareEpochs(a, b runs.Epoch) int { return a.Epoch - b.Epoch }

// mergeEpoch sets e to the merged values of one epoch. all has the epoch of each rank;
// withRates is the number of ranks that log rates.
func mergeEpoch(e *runs.Epoch, all []*runs.Epoch, sumRates bool, withRates int, report *Report) {
	seconds, valSeconds, rate := math.NaN(), math.NaN(), 0.0
	var trainLoss, valLoss, accuracy, valAccuracy, iou, dice MeanIgnoringNaN
	rates, samples := 0, 0
	for _, o := range all {
		if v := o.Seconds; v > seconds || seconds != seconds {
			seconds = v
		}
		if v := o.ValSeconds; v > valSeconds || valSeconds != valSeconds {
			valSeconds = v
		}
		trainLoss.Add(o.TrainLoss)
		valLoss.Add(o.ValLoss)
		accuracy.Add(o.Accuracy)
		valAccuracy.Add(o.ValAccuracy)
		iou.Add(o.IoU)
		dice.Add(o.Dice)
		if v := o.SamplesPerSecond; v == v {
			rate += v
			rates++
		}
		samples += o.Samples
	}
	e.Seconds, e.ValSeconds = seconds, valSeconds
	e.TrainLoss, e.ValLoss, e.Accuracy, e.ValAccuracy = trainLoss.Value(), valLoss.Value(), accuracy.Value(), valAccuracy.Value()
	e.IoU, e.Dice = iou.Value(), dice.Value()
	if sumRates {
		if e.SamplesPerSecond, e.Samples = rate, samples; rates == 0 {
			e.SamplesPerSecond = math.NaN()
		} else if rates < withRates {
			report.AddProblem(0, "%d of %d ranks logged the throughput of epoch %d, which is the sum over all of them; it is not used", rates, withRates, e.Epoch)
			e.SamplesPerSecond, e.Samples = math.NaN(), 0
		}
	}
}

// MeanIgnoringNaN accumulates the mean of the values that are not NaN.
type MeanIgnoringNaN struct{ N, sum float64 } // N is the number of values

// Add adds a value unless it is NaN.
func (m *MeanIgnoringNaN) Add(v float64) {
	if v == v {
		m.N++
		m.sum += v
	}
}

// Value returns the mean, or NaN if no value was added.
func (m MeanIgnoringNaN) Value() float64 { return m.sum / m.N } // 0/0 is NaN

// NewUnmeasuredEpoch returns epoch n with all measurements NaN. line is the line in the log
// that describes it, or 0.
func NewUnmeasuredEpoch(n, line int) runs.Epoch {
	x := math.NaN()
	return runs.Epoch{
		Epoch: n, Line: line, Seconds: x, SamplesPerSecond: x, TrainLoss: x, ValLoss: x, IoU: x, Dice: x,
		ValSeconds: x, LearningRate: x, Accuracy: x, ValAccuracy: x,
	}
}

// NewUnmeasuredTest returns a test without results.
func NewUnmeasuredTest() *runs.Test {
	x := math.NaN()
	return &runs.Test{Loss: x, IoU: x, Dice: x, IoUConstant: x, DiceConstant: x, IoUUntrained: x, DiceUntrained: x, Seconds: x}
}

// Continuation states how a sequence of epoch or step numbers relates to the numbers before it.
type Continuation int

// The possible continuations.
const (
	AnotherRun Continuation = iota // the numbers start again
	Resumed                        // the numbers go back: the later values replace the earlier ones
	Continued                      // the numbers follow those before
	AfterGap                       // the numbers follow, but some are missing
)

// ClassifyContinuation returns how numbers that start at next relate to numbers from first to last, which usually
// differ by interval. resumes is set if the log states that the run resumes an earlier one. All
// formats use this rule.
func ClassifyContinuation(first, last, interval, next int64, resumes bool) Continuation {
	switch {
	case next <= first && !resumes:
		return AnotherRun
	case next <= last:
		return Resumed
	case next <= last+max(interval, 1):
		return Continued
	}
	return AfterGap
}

// RankEpochs contains the epochs that one rank logged.
type RankEpochs struct {
	Epochs []runs.Epoch
	Index  map[int]int // index in Epochs of each epoch number; nil while Epochs is sorted
}

// Find returns epoch n, or nil if r is nil or has no such epoch. The pointer is valid until an
// epoch is added.
func (r *RankEpochs) Find(n int) *runs.Epoch {
	if r == nil || len(r.Epochs) == 0 {
		return nil
	}
	k := len(r.Epochs)
	if r.Index != nil {
		if i, ok := r.Index[n]; ok {
			return &r.Epochs[i]
		}
		return nil
	}
	switch last := &r.Epochs[k-1]; {
	case n == last.Epoch:
		return last
	case n > last.Epoch:
		return nil
	}
	if k > 1 && r.Epochs[k-2].Epoch == n { // for example, the validation of the previous epoch was logged late
		return &r.Epochs[k-2]
	}
	if i, ok := slices.BinarySearchFunc(r.Epochs, n, func(e runs.Epoch, n int) int { return e.Epoch - n }); ok {
		return &r.Epochs[i]
	}
	return nil
}

// FindOrAdd returns epoch n, and adds it if it is new. If l, the reader of the log, is not nil,
// FindOrAdd estimates from the part already read for how many epochs to allocate memory.
func (r *RankEpochs) FindOrAdd(n int, l *scan.LineReader) *runs.Epoch {
	if e := r.Find(n); e != nil {
		return e
	}
	k := len(r.Epochs)
	if r.Index == nil && k > 0 && n < r.Epochs[k-1].Epoch {
		r.Index = make(map[int]int, k+1)
		for i, e := range r.Epochs {
			r.Index[e.Epoch] = i
		}
	}
	if r.Index != nil {
		r.Index[n] = k
	}
	line := 0
	if l != nil {
		line = l.Number
		if k == cap(r.Epochs) {
			r.Epochs = Grow(r.Epochs, l.EstimateRemainingValues(k))
		}
	}
	r.Epochs = append(r.Epochs, NewUnmeasuredEpoch(n, line))
	return &r.Epochs[k]
}

// Remove removes the epochs with the numbers from first to last.
func (r *RankEpochs) Remove(first, last int) {
	r.Epochs = slices.DeleteFunc(r.Epochs, func(e runs.Epoch) bool { return first <= e.Epoch && e.Epoch <= last })
	if r.Index == nil {
		return
	}
	r.Index = map[int]int{}
	for i := range r.Epochs {
		r.Index[r.Epochs[i].Epoch] = i
	}
}
