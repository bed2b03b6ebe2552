package logread

import (
	"math"
	"slices"

	"lockstep/pkg/runs"
)

// addMissing adds to run what only other tells.
func addMissing(run *runs.Run, other runs.Run) {
	if len(run.Epochs) == 0 {
		run.Epochs, run.File, run.Kind = other.Epochs, cmpString(run.File, other.File, len(other.Epochs) > 0), cmpString(run.Kind, other.Kind, len(other.Epochs) > 0)
	} else {
		fillEpochs(run.Epochs, other.Epochs)
	}
	for _, c := range other.Curves { // the same values may stand in a CSV and in an event file
		if !slices.ContainsFunc(run.Curves, func(o runs.Curve) bool { return o.Name == c.Name && o.Rank == c.Rank && slices.Equal(o.Steps, c.Steps) }) {
			run.Curves = append(run.Curves, c)
		}
	}
	run.Spans = append(run.Spans, other.Spans...)
	for _, t := range other.Trials {
		if !slices.ContainsFunc(run.Trials, func(o runs.Trial) bool { return o.Name == t.Name && o.Rate == t.Rate }) {
			run.Trials = append(run.Trials, t)
		}
	}
	if run.WallSeconds == 0 {
		run.WallSeconds = other.WallSeconds
	}
	addMissingInfo(&run.Info, other.Info)
}

// cmpString is b if second, else a.
func cmpString(a, b string, second bool) string {
	if second {
		return b
	}
	return a
}

// fillEpochs fills the values that epochs have not from those of other.
func fillEpochs(epochs, other []runs.Epoch) {
	at := make(map[int]int, len(epochs))
	for i, e := range epochs {
		at[e.Epoch] = i
	}
	for _, o := range other {
		i, ok := at[o.Epoch]
		if !ok {
			continue
		}
		e := &epochs[i]
		for _, f := range [][2]*float64{
			{&e.Seconds, &o.Seconds},
			{&e.SamplesPerSecond, &o.SamplesPerSecond},
			{&e.TrainLoss, &o.TrainLoss},
			{&e.ValLoss, &o.ValLoss},
			{&e.IoU, &o.IoU},
			{&e.Dice, &o.Dice},
			{&e.ValSeconds, &o.ValSeconds},
			{&e.LearningRate, &o.LearningRate},
			{&e.Accuracy, &o.Accuracy},
			{&e.ValAccuracy, &o.ValAccuracy},
		} {
			if math.IsNaN(*f[0]) {
				*f[0] = *f[1]
			}
		}
		if e.Samples == 0 {
			e.Samples, e.PaddingSamples = o.Samples, o.PaddingSamples
		}
	}
}

func addMissingInfo(info *runs.Info, other runs.Info) {
	for _, f := range [][2]*string{
		{&info.Series, &other.Series},
		{&info.Error, &other.Error},
		{&info.Engine, &other.Engine},
		{&info.Strategy, &other.Strategy},
		{&info.Accelerator, &other.Accelerator},
		{&info.Study, &other.Study},
		{&info.Host.Name, &other.Host.Name},
	} {
		if *f[0] == "" {
			*f[0] = *f[1]
		}
	}
	for _, f := range [][2]*int{
		{&info.Workers, &other.Workers},
		{&info.Nodes, &other.Nodes},
		{&info.BatchPerWorker, &other.BatchPerWorker},
		{&info.GlobalBatch, &other.GlobalBatch},
		{&info.SamplesPerEpoch, &other.SamplesPerEpoch},
		{&info.Parameters, &other.Parameters},
	} {
		if *f[0] == 0 {
			*f[0] = *f[1]
		}
	}
	if info.EnergyJoules == 0 {
		info.EnergyJoules = other.EnergyJoules
	}
	// A log that simply ends does not know that its job failed.
	if info.Status == "" || info.Status == runs.StatusRunning || info.Status == runs.StatusDone && (other.Status == runs.StatusFailed || other.Status == runs.StatusCanceled) {
		info.Status = cmpString(info.Status, other.Status, other.Status != "")
	}
	if info.Started.IsZero() {
		info.Started = other.Started
	}
	if info.Ended.IsZero() {
		info.Ended = other.Ended
	}
	if len(info.Command) == 0 {
		info.Command = other.Command
	}
	if info.Test == nil {
		info.Test = other.Test
	}
	for k, v := range other.Config {
		if info.Config == nil {
			info.Config = map[string]any{}
		}
		if _, has := info.Config[k]; !has {
			info.Config[k] = v
		}
	}
	for k, v := range other.JobIDs {
		if info.JobIDs == nil {
			info.JobIDs = map[string]string{}
		}
		if info.JobIDs[k] == "" {
			info.JobIDs[k] = v
		}
	}
}

// joinEpochs makes one list of epochs of those that each rank logged: an epoch
// took as long as its slowest rank; losses and accuracies are means over the
// ranks; a rank's rate is added up where it is of its own samples alone. The
// first rank's list may be overwritten.
func joinEpochs(ranks [][]runs.Epoch, rateSums bool) []runs.Epoch {
	ranks = slices.Clone(ranks)
	longest := 0
	for i, epochs := range ranks {
		if !slices.IsSortedFunc(epochs, byNumber) {
			ranks[i] = slices.Clone(epochs)
			slices.SortStableFunc(ranks[i], byNumber)
		}
		longest = max(longest, len(epochs))
	}
	all := make([]*runs.Epoch, len(ranks)) // of one number
	k := 0
	for ; inStep(ranks, k, all); k++ { // mostly every rank logs every epoch
		joinEpoch(all[0], all, rateSums)
	}
	if k == longest && k == len(ranks[0]) {
		return ranks[0]
	}
	joined := append(make([]runs.Epoch, 0, longest), ranks[0][:k]...)
	for i := range ranks {
		ranks[i] = ranks[i][k:]
	}
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
		joinEpoch(&e, all, rateSums)
		joined = append(joined, e)
	}
}

// inStep says whether the k-th epoch of each rank is the same, and that number's
// last; it puts them into all.
func inStep(ranks [][]runs.Epoch, k int, all []*runs.Epoch) bool {
	for i, epochs := range ranks {
		if k >= len(epochs) {
			return false
		}
		e := &epochs[k]
		if i > 0 && e.Epoch != all[0].Epoch || k+1 < len(epochs) && epochs[k+1].Epoch == e.Epoch {
			return false
		}
		all[i] = e
	}
	return len(ranks) > 0
}

// byNumber orders epochs.
func byNumber(a, b runs.Epoch) int { return a.Epoch - b.Epoch }

// joinEpoch sets e, which is the first of all, to what the ranks logged of one
// epoch.
func joinEpoch(e *runs.Epoch, all []*runs.Epoch, rateSums bool) {
	seconds, valSeconds, rate := nan(), nan(), 0.0
	var trainLoss, valLoss, accuracy, valAccuracy, iou, dice mean
	rates, samples := 0, 0
	for _, o := range all {
		if v := o.Seconds; v > seconds || seconds != seconds {
			seconds = v
		}
		if v := o.ValSeconds; v > valSeconds || valSeconds != valSeconds {
			valSeconds = v
		}
		trainLoss.add(o.TrainLoss)
		valLoss.add(o.ValLoss)
		accuracy.add(o.Accuracy)
		valAccuracy.add(o.ValAccuracy)
		iou.add(o.IoU)
		dice.add(o.Dice)
		if v := o.SamplesPerSecond; v == v {
			rate += v
			rates++
		}
		samples += o.Samples
	}
	e.Seconds, e.ValSeconds = seconds, valSeconds
	e.TrainLoss, e.ValLoss, e.Accuracy, e.ValAccuracy = trainLoss.value(), valLoss.value(), accuracy.value(), valAccuracy.value()
	e.IoU, e.Dice = iou.value(), dice.value()
	if rateSums {
		if e.SamplesPerSecond, e.Samples = rate, samples; rates == 0 {
			e.SamplesPerSecond = nan()
		}
	}
}

// mean is that of the values of those ranks that logged one; of none it is NaN.
type mean struct{ n, sum float64 }

func (m *mean) add(v float64) {
	if v == v {
		m.n++
		m.sum += v
	}
}

func (m mean) value() float64 { return m.sum / m.n } // 0/0 is NaN
