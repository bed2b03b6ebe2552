package scaling

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// measured is what the rule makes of one run.
type measured struct {
	seconds, rate, wall float64 // NaN where unknown
	epochs              int     // counted
	last                lastValues
}

// measure applies the rule to a run.
func (s *Study) measure(r runs.Run) measured {
	var seconds, rates []float64 // of the counted epochs, for their medians
	if s.Rule.Epochs == Median {
		seconds, rates = make([]float64, 0, len(r.Epochs)), make([]float64, 0, len(r.Epochs))
	}
	var n int
	var samples, told, total float64 // told: the seconds of the epochs whose samples are known
	counts := s.counting(r)
	for i := range r.Epochs {
		e := &r.Epochs[i]
		if !counts(i) || !(e.Seconds > 0) || math.IsInf(e.Seconds, 0) {
			continue
		}
		n, total = n+1, total+e.Seconds
		trained := s.samplesIn(e)
		if trained > 0 {
			samples, told = samples+trained, told+e.Seconds
		}
		if s.Rule.Epochs != Median {
			continue
		}
		seconds = append(seconds, e.Seconds)
		if trained > 0 {
			rates = append(rates, trained/e.Seconds)
		}
	}
	m := measured{seconds: math.NaN(), rate: math.NaN(), wall: wallSeconds(r), epochs: n, last: lastOf(r)}
	if m.epochs == 0 {
		return s.measureWhole(r, m)
	}
	m.seconds = total / float64(n)
	if s.Rule.Epochs == Median {
		m.seconds = median(seconds)
	}
	switch {
	case samples == 0:
	case s.Rule.Epochs == Median:
		m.rate = median(rates)
	default: // the mean rate over time, not over epochs
		m.rate = samples / told
	}
	return m
}

// samplesIn are the samples of an epoch, 0 where nothing tells them.
func (s *Study) samplesIn(e *runs.Epoch) float64 {
	if e.Samples > 0 {
		return float64(e.Samples)
	}
	if e.SamplesPerSecond > 0 && e.Seconds > 0 && finite(e.SamplesPerSecond) {
		return e.SamplesPerSecond * e.Seconds // seconds × samples/s is the epoch's samples
	}
	return float64(s.Rule.SamplesPerEpoch)
}

// measureWhole takes the mean of the training time over all epochs where the
// log tells that time alone, or the throughput of a log that tells no epochs'
// times (a synthetic benchmark's).
func (s *Study) measureWhole(r runs.Run, m measured) measured {
	if timed(r) {
		return m
	}
	var rates []float64
	counts := s.counting(r)
	for i := range r.Epochs {
		if e := &r.Epochs[i]; e.SamplesPerSecond > 0 && finite(e.SamplesPerSecond) && counts(i) {
			rates = append(rates, e.SamplesPerSecond)
		}
	}
	if len(rates) > 0 {
		m.rate, m.epochs = meanOf(rates), len(rates)
		if s.Rule.Epochs == Median {
			m.rate = median(rates)
		}
	}
	whole, ok := r.Info.Config[logread.TrainingSeconds].(float64)
	if !ok || !(whole > 0) || len(r.Epochs) == 0 {
		return m
	}
	s.note("%s tells only the whole training time; its seconds per epoch are that over its %s, the first included", r.Dir, english.Count(len(r.Epochs), "epoch"))
	m.epochs, m.seconds = len(r.Epochs), whole/float64(len(r.Epochs))
	if s.Rule.SamplesPerEpoch > 0 {
		m.rate = float64(s.Rule.SamplesPerEpoch) / m.seconds
	}
	return m
}

// timed says whether a run has the time of any epoch.
func timed(r runs.Run) bool {
	for i := range r.Epochs {
		if r.Epochs[i].Seconds > 0 {
			return true
		}
	}
	return false
}

// wholeJob says whether the run's only row is the time of a whole program that
// is not ours.
func wholeJob(r runs.Run) bool { return len(r.Info.Command) > 0 && len(r.Epochs) == 1 }

// counting says of each epoch of a run whether the rule counts it. A run's only
// row that is the time of a whole program, a throughput without a time (the
// summary of a benchmark), or a measurement of no epoch's number (a row of a
// results table), is no first epoch that is to be left out. Epochs are
// told by their number, not by their place: a table that has epoch 5 alone has
// left out the first already.
func (s *Study) counting(r runs.Run) func(i int) bool {
	if wholeJob(r) || len(r.Epochs) == 1 && (!timed(r) || r.Epochs[0].Epoch < 1) {
		return func(int) bool { return true }
	}
	only, err := strconv.Atoi(s.Rule.Epochs)
	return func(i int) bool {
		number := r.Epochs[i].Epoch
		if number < 1 {
			number = i + 1
		}
		if err == nil {
			return number == only
		}
		return number > s.Rule.DropFirst
	}
}

// wallSeconds is the time of the whole job, NaN where unknown.
func wallSeconds(r runs.Run) float64 {
	switch {
	case r.WallSeconds > 0:
		return r.WallSeconds
	case wholeJob(r) && r.Epochs[0].Seconds > 0:
		return r.Epochs[0].Seconds
	}
	return math.NaN()
}

// trainSeconds is the training time of a whole run: as the log tells it, or
// the sum over its epochs where each has a time.
func trainSeconds(r runs.Run) float64 {
	if v, ok := r.Info.Config[logread.TrainingSeconds].(float64); ok && v > 0 {
		return v
	}
	if len(r.Epochs) == 0 {
		return math.NaN()
	}
	total := 0.0
	for _, e := range r.Epochs {
		total += e.Seconds // NaN where one is unknown
	}
	return total
}

// testSeconds is the time of the test after training.
func testSeconds(r runs.Run) float64 {
	if v, ok := r.Info.Config["test_seconds"].(float64); ok && v > 0 {
		return v
	}
	if r.Info.Test != nil && r.Info.Test.Seconds > 0 {
		return r.Info.Test.Seconds
	}
	return math.NaN()
}

func energyOf(r runs.Run) float64 {
	if r.Info.EnergyJoules > 0 {
		return r.Info.EnergyJoules
	}
	return math.NaN()
}

// nodesOf is the number of machines, from the log or from what the ranks say
// of their hosts; 0 where unknown.
func nodesOf(r runs.Run) int {
	if r.Info.Nodes > 0 {
		return r.Info.Nodes
	}
	hosts := map[string]bool{}
	for _, w := range r.Workers {
		if w.Host == "" {
			return 0
		}
		hosts[w.Host] = true
	}
	if len(r.Workers) < r.Info.Workers { // some ranks left nothing
		return 0
	}
	return len(hosts)
}

// batches are the batch per worker and the global one, 0 where unknown.
func batches(r runs.Run) (perWorker, global int) {
	perWorker, global = r.Info.BatchPerWorker, r.Info.GlobalBatch
	n := r.Info.Workers
	if global == 0 {
		global = perWorker * n
	}
	if perWorker == 0 && n > 0 && global%n == 0 {
		perWorker = global / n
	}
	return perWorker, global
}

// samplesOf are the samples of an epoch: those that the run tells, or that its
// last epoch had.
func samplesOf(r runs.Run) int {
	for i := len(r.Epochs) - 1; i >= 0; i-- {
		if n := r.Epochs[i].Samples; n > 0 {
			return n
		}
	}
	return r.Info.SamplesPerEpoch
}

// lastValues are what the epochs of a run end with: of each column the last
// value that is not NaN, NaN where there is none.
type lastValues struct {
	trainLoss, valLoss, iou, dice, accuracy, valAccuracy float64

	// diverged names the first place where the run's loss is no finite number
	// any more, empty where there is none. The loss of a run that diverged is
	// none: the last finite one would flatter it.
	diverged string
}

// lastOf reads the epochs of a run, which may be many, once.
func lastOf(r runs.Run) lastValues {
	l := lastValues{diverged: diverged(r)}
	values := []*float64{&l.trainLoss, &l.valLoss, &l.iou, &l.dice, &l.accuracy, &l.valAccuracy}
	for _, v := range values {
		*v = math.NaN()
	}
	for missing, i := len(values), len(r.Epochs)-1; i >= 0 && missing > 0; i-- {
		e := &r.Epochs[i]
		for k, v := range [...]float64{e.TrainLoss, e.ValLoss, e.IoU, e.Dice, e.Accuracy, e.ValAccuracy} {
			if math.IsNaN(*values[k]) && !math.IsNaN(v) {
				*values[k] = v
				missing--
			}
		}
	}
	if l.diverged != "" {
		l.trainLoss, l.valLoss = math.NaN(), math.NaN()
	}
	return l
}

// diverged names the first place where a run's loss is no finite number any
// more, empty where there is none. A loss that was never logged is none.
func diverged(r runs.Run) string {
	// These log their loss always: even a run that starts with NaN has one.
	ours := len(r.Info.Command) == 0 && slices.Contains([]string{"", "run folder", "study CSV"}, r.Kind)
	seen := ours // a NaN in every epoch is a loss, not one that was not logged
	val := 0
	for i := range r.Epochs {
		e := &r.Epochs[i]
		switch {
		case finite(e.TrainLoss):
			seen = true
		case seen || math.IsInf(e.TrainLoss, 0):
			return fmt.Sprintf("the training loss of epoch %d", e.Epoch)
		}
		if val == 0 && math.IsInf(e.ValLoss, 0) { // it is not computed in every epoch
			val = i + 1
		}
	}
	if val > 0 {
		return fmt.Sprintf("the validation loss of epoch %d", r.Epochs[val-1].Epoch)
	}
	for _, c := range r.Curves {
		if !strings.Contains(strings.ToLower(c.Name), "loss") {
			continue
		}
		for i, v := range c.Values {
			if !finite(v) && i < len(c.Steps) {
				return fmt.Sprintf("%s of step %d", c.Name, c.Steps[i])
			}
		}
	}
	return ""
}

func finalIoU(r runs.Run) float64 { return lastOf(r).final(r, testIoU, lastIoU) }

func finalDice(r runs.Run) float64 { return lastOf(r).final(r, testDice, lastDice) }

func testIoU(t runs.Test) float64  { return t.IoU }
func testDice(t runs.Test) float64 { return t.Dice }

func lastIoU(l lastValues) float64  { return l.iou }
func lastDice(l lastValues) float64 { return l.dice }

// finalTrainLoss is that of the last epoch that has one.
func finalTrainLoss(r runs.Run) float64 { return lastOf(r).trainLoss }

func finalValLoss(r runs.Run) float64 { return lastOf(r).valLoss }

// final is a value of the test after training, or of the last epoch that has it.
func (l lastValues) final(r runs.Run, test func(runs.Test) float64, epoch func(lastValues) float64) float64 {
	if v := ofTest(r, test); !math.IsNaN(v) {
		return v
	}
	return epoch(l)
}

func ofTest(r runs.Run, value func(runs.Test) float64) float64 {
	if r.Info.Test == nil {
		return math.NaN()
	}
	return value(*r.Info.Test)
}

// ofLast is a value of the last epoch that has it.
func ofLast(r runs.Run, value func(runs.Epoch) float64) float64 {
	for _, e := range slices.Backward(r.Epochs) {
		if v := value(e); !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}
