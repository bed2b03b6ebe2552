package record

import (
	"math"
	"slices"

	"lockstep/pkg/runs"
)

// MergeEpochs merges the lists of epochs that the ranks logged into one list.
// The duration of an epoch is its duration on the slowest rank. Losses and
// accuracies are means over the ranks. Rates and sample counts are summed if
// sumRates is set, because each rank logged its own share; otherwise the values
// of the first rank are kept. The sum over some of the ranks would be too small:
// it is not used, and MergeEpochs adds a problem to report.
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

// mergeEpoch sets e to the merged values of one epoch. all contains the epoch
// of each rank. withRates is the number of ranks that
// log rates.
func mergeEpoch(e *runs.Epoch, all []*runs.Epoch, sumRates bool, withRates int, report *Report) {
	seconds, valSeconds, rate := math.NaN(), math.NaN(), 0.0
	var trainLoss, valLoss, accuracy, valAccuracy, iou, dice MeanOfKnown
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

// MeanOfKnown accumulates the mean of the values that are not NaN.
type MeanOfKnown struct{ N, sum float64 } // N is the number of values

// Add adds a value unless it is NaN.
func (m *MeanOfKnown) Add(v float64) {
	if v == v {
		m.N++
		m.sum += v
	}
}

// Value returns the mean, or NaN if no value was added.
func (m MeanOfKnown) Value() float64 { return m.sum / m.N } // 0/0 is NaN

// NewUnmeasuredEpoch returns epoch number n with all measurements set to NaN.
// line is the number of the line in the log that describes the epoch, or 0.
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
