package record

import (
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// ElapsedTimes maps the number of an epoch in the log to the time at its end, in seconds since the
// start of the run.
type ElapsedTimes map[int]struct{ position, seconds float64 }

// Add stores the time in seconds since the start of the run. position is the position in the
// training, in epochs. A later call for the same epoch replaces the time.
func (l *ElapsedTimes) Add(epoch int, position, seconds float64) {
	if !IsPlausibleTime(seconds) {
		return
	}
	if *l == nil {
		*l = ElapsedTimes{}
	}
	(*l)[epoch] = struct{ position, seconds float64 }{position, seconds}
}

// SetEpochSeconds computes the durations of epochs from the elapsed times, unless an epoch already
// has a duration. shift is the difference between the number of an epoch in epochs and in the log.
func (l ElapsedTimes) SetEpochSeconds(epochs []runs.Epoch, shift int, report *Report) {
	if len(l) == 0 || slices.ContainsFunc(epochs, func(e runs.Epoch) bool { return e.Seconds > 0 }) {
		return
	}
	for i := range epochs {
		if end, ok := l[epochs[i].Epoch-shift]; ok {
			epochs[i].Seconds = end.seconds
		}
	}
	report.AddAssumptionOnce("the times of the epochs are the differences of the time since the start, with everything between the epochs")
	elapsedToDurations(epochs, func(e *runs.Epoch) float64 { return l[e.Epoch-shift].position + float64(shift) }, false, report)
}

// ElapsedToDurations converts Epoch.Seconds from times since the start of the run to durations of
// the epochs. Set maybeResumed if the run may have been resumed, so that its clock started at the
// first of the epochs.
func ElapsedToDurations(epochs []runs.Epoch, maybeResumed bool, report *Report) {
	elapsedToDurations(epochs, func(e *runs.Epoch) float64 { return float64(e.Epoch) }, maybeResumed, report)
}

// elapsedToDurations implements ElapsedToDurations. position returns the end of an epoch, in
// epochs. If epochs are missing in the list, the difference of two times is divided by the number
// of epochs in between. If a time is smaller than the previous one, the clock has started again.
func elapsedToDurations(epochs []runs.Epoch, position func(*runs.Epoch) float64, maybeResumed bool, report *Report) {
	last, lastAt := 0.0, 0.0
	for i := range epochs {
		e := &epochs[i]
		v, at := e.Seconds, position(e)
		if math.IsNaN(v) {
			continue
		}
		if v < last {
			report.AddAssumption("the time starts again in line %d: the run was resumed", e.Line)
			last = 0
		}
		n := at - lastAt // epochs that the time is of
		if lastAt == 0 && i+1 < len(epochs) {
			if interval := position(&epochs[i+1]) - at; n >= interval+1 && maybeResumed {
				n = interval
			} else if n >= interval+1 {
				report.AddAssumptionOnce("epoch %d has no time: the log does not show when the clock started", e.Epoch)
				n = math.NaN()
			}
		}
		if n > 1 {
			report.AddAssumptionOnce("the time of an epoch is that of the epochs up to it, divided by their number: not each epoch is listed")
		}
		e.Seconds, last, lastAt = (v-last)/n, v, at
	}
}

// AddStepTimes gives a curve of step times the name of their field, and converts its unit. A run
// without such a curve gets one from a curve of the time since the start of the run or of a clock.
func AddStepTimes(run *runs.Run, report *Report) {
	stepTimes, clock := "", -1
	for i := range run.Curves {
		c := &run.Curves[i]
		f, factor := fields.LookupColumn(c.Name), 1.0
		if end := strings.LastIndexByte(c.Name, '_'); f == nil && end > 0 { // such as step_time_ms
			f, factor = fields.LookupColumn(c.Name[:end]), scan.SecondsPerUnit([]byte(c.Name[end+1:]))
		}
		switch {
		case f == nil || factor == 0 || len(c.Values) == 0:
		case f.Name == fields.StepSeconds && (stepTimes == "" || stepTimes == c.Name):
			stepTimes, c.Name = c.Name, f.Name
			for k := range c.Values {
				c.Values[k] *= factor
			}
		case f.Name == fields.Elapsed || f.Name == fields.Timestamp && clock < 0 && c.Values[0] < 1e11: // in seconds
			clock = i
		}
	}
	if clock >= 0 && stepTimes == "" {
		AddStepTimesFrom(run, run.Curves[clock].Name, run.Curves[clock], run.Curves[clock].Values, report)
	}
}

// AddStepTimesFrom adds a curve of step times to a run without epochs: the differences of the times
// at the points of c. name is the name of the times. Those of a clock omit pauses, such as until a run was
// resumed: differences of more than 10 times their median.
func AddStepTimesFrom(run *runs.Run, name string, c runs.Curve, times []float64, report *Report) {
	to := runs.Curve{Name: fields.StepSeconds, Rank: c.Rank}
	for i := 1; i < len(times) && len(run.Epochs) == 0; i++ {
		if steps, seconds := c.Steps[i]-c.Steps[i-1], times[i]-times[i-1]; steps > 0 && seconds > 0 {
			to.Steps, to.Values = append(to.Steps, c.Steps[i]), append(to.Values, seconds/float64(steps))
		}
	}
	if len(to.Steps) > 0 && times[0] > 1e8 {
		longest := 10 * slices.Sorted(slices.Values(to.Values))[len(to.Values)/2]
		n := 0
		for i, seconds := range to.Values {
			if seconds <= longest {
				to.Steps[n], to.Values[n], n = to.Steps[i], seconds, n+1
			}
		}
		if n < len(to.Values) {
			report.AddAssumptionOnce("the times of the steps omit pauses in %s", name)
		}
		to.Steps, to.Values = to.Steps[:n], to.Values[:n]
	}
	if len(to.Steps) > 0 {
		run.Curves = append(run.Curves, to)
		report.AddAssumptionOnce("the times of the steps are the differences of %s, divided by the number of steps", name)
	}
}

// EpochRates contains the throughput of each epoch, combined from the rates of its steps. The key
// is the rank and the epoch.
type EpochRates map[[2]int]*StepRates

// Add adds the rate of a step, and returns the rate of all steps of its epoch so far.
func (r *EpochRates) Add(rank, epoch int, rate float64, report *Report) float64 {
	key := [2]int{rank, epoch}
	if (*r)[key] == nil {
		PutInMap((*map[[2]int]*StepRates)(r), key, &StepRates{})
	}
	(*r)[key].Add(rate)
	return (*r)[key].EpochRate(report)
}

// StepRates combines the rates of the steps of an epoch.
type StepRates struct{ n, sum, seconds float64 }

// Add adds the rate of a step, or of several.
func (r *StepRates) Add(rate float64) {
	r.n, r.sum, r.seconds = r.n+1, r.sum+rate, r.seconds+1/rate
}

// EpochRate returns the rate of the epoch: its steps over their time or, if a rate is 0, the mean.
func (r *StepRates) EpochRate(report *Report) float64 {
	if math.IsInf(r.seconds, 0) {
		report.AddAssumptionOnce("the samples per second of an epoch are the mean of those of its steps")
		return r.sum / r.n
	}
	if r.n == 2 {
		report.AddAssumptionOnce("the samples per second of an epoch are its steps over the time that their rates give")
	}
	return r.n / r.seconds
}
