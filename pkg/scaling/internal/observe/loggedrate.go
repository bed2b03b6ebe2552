package observe

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/stats"
)

// DefaultRateUnit is the unit of a throughput if the log does not state one.
const DefaultRateUnit = "samples/s"

// loggedThroughput is a throughput that a log contains apart from its epochs, as a trial or as a curve.
// The zero value means that the log has none.
type loggedThroughput struct {
	rate   float64     // of all workers together
	unit   string      // such as "tokens/s"
	source string      // where it comes from, without numbers, so that several runs share it
	input  ResultInput // the value as logged
}

type throughputCurve struct {
	unit      string
	perWorker bool // each value is the rate of one worker
	seconds   bool // each value is the time of a step
	rank      int  // precedence among the curves of a run; the lowest counts
}

// perSecondPattern matches the names of curves that state their unit, such as
// train_samples_per_second, tokens/s and images_per_sec_per_gpu. It does not match names that begin
// with another word, such as eval_samples_per_second.
var perSecondPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:train[/_ ])?(samples?|examples?|images?|imgs?|tokens?|tok)(?:/|_per_|_| per )(?:seconds?|secs?|s)((?:/|_per_| per )(?:gpu|device|worker|rank))?$`)
})

// newThroughputCurve describes the throughput in the named curve of a run. ok is false if the curve is
// not known to contain a throughput.
func newThroughputCurve(r *runs.Run, name string) (c throughputCurve, ok bool) {
	switch {
	case r.Kind == "torchtitan" && name == "tps": // tokens per second and device
		return throughputCurve{unit: "tokens/s", perWorker: true, rank: 3}, true
	case r.Kind == "MLPerf log" && name == "throughput":
		return throughputCurve{unit: cmp.Or(r.ThroughputUnit, DefaultRateUnit), rank: 4}, true
	}
	if name == "step_seconds" {
		return throughputCurve{unit: "steps/s", seconds: true, rank: 5}, true
	}
	m := perSecondPattern().FindStringSubmatch(name)
	if m == nil {
		return c, false
	}
	c.perWorker = m[2] != ""
	switch strings.ToLower(m[1][:1]) {
	case "i":
		c.unit, c.rank = "images/s", 2
	case "t":
		c.unit, c.rank = "tokens/s", 3
	default:
		c.unit, c.rank = cmp.Or(r.ThroughputUnit, DefaultRateUnit), 1
	}
	return c, true
}

// findLoggedThroughput returns the throughput that a run's log contains apart from its epochs. In order
// of precedence, it is the mean of a curve, the rate of the trial FULL (training with the loader),
// or the rate of the trial SYNTHETIC (training on data in memory). Trials are ignored if the log
// also has epochs with times, because the trials measured something else.
func (rule MeasurementRule) findLoggedThroughput(r *runs.Run) loggedThroughput {
	if out := rule.findCurveThroughput(r); out.rate > 0 || HasEpochTimes(*r) {
		return out
	}
	if out := findTrialThroughput(r, "FULL", "training with the loader"); out.rate > 0 {
		return out
	}
	return findTrialThroughput(r, "SYNTHETIC", "training on data in memory")
}

func findTrialThroughput(r *runs.Run, name, meaning string) loggedThroughput {
	i := slices.IndexFunc(r.Trials, func(t runs.Trial) bool { return strings.EqualFold(t.Name, name) })
	if i < 0 || !(r.Trials[i].Rate > 0) || !IsFinite(r.Trials[i].Rate) {
		return loggedThroughput{}
	}
	t, unit := r.Trials[i], cmp.Or(r.ThroughputUnit, DefaultRateUnit)
	return loggedThroughput{
		rate: t.Rate, unit: unit, source: fmt.Sprintf("the logged rate of the trial %s (%s)", t.Name, meaning),
		input: ResultInput{Name: t.Name, Value: t.Rate, Unit: unit, Line: t.Line, Counted: true, Why: meaning},
	}
}

// findCurveThroughput returns the throughput in the run's curves: the mean of the logged values, or their
// median if Rule.Epochs is "median". Rule.DropFirst also drops the first values of a curve that has
// more, because they include start-up.
func (rule MeasurementRule) findCurveThroughput(r *runs.Run) loggedThroughput {
	var best throughputCurve
	var name string
	var byRank []float64 // the mean rate of each curve of this name
	values := 0
	_, batch := BatchSizes(*r)
	onlySteps := batch == 0 && HasEpochTimes(*r) // the times of epochs say more, because the workers share the steps
	for i := range r.Curves {
		c, ok := newThroughputCurve(r, r.Curves[i].Name)
		if !ok || c.seconds && onlySteps || name != "" && (c.rank > best.rank || c.rank == best.rank && r.Curves[i].Name != name) {
			continue
		}
		v := rule.countedThroughputs(r.Curves[i].Values)
		if len(v) == 0 {
			continue
		}
		if r.Curves[i].Name != name {
			best, name, byRank, values = c, r.Curves[i].Name, nil, 0
		}
		mean := stats.Mean(v)
		if rule.Epochs == MedianStatistic {
			mean = stats.Median(v)
		}
		byRank, values = append(byRank, mean), values+len(v)
	}
	if name == "" {
		return loggedThroughput{}
	}
	statistic := "mean"
	if rule.Epochs == MedianStatistic {
		statistic = "median"
	}
	rate := stats.Mean(byRank)
	source := fmt.Sprintf("the %s of the logged values of %s", statistic, name)
	input := ResultInput{Name: name, Value: rate, Unit: best.unit, Counted: true, Why: fmt.Sprintf("%s of %s", statistic, english.FormatCount(values, "logged value"))}
	if best.seconds {
		rate, source = 1/rate, fmt.Sprintf("the reciprocal of the %s of the logged times of a step", statistic)
		if batch == 0 {
			source += ", as if the workers shared the samples of a step; if each has a batch of its own, state it with --as 'NAME=batch:N'"
		} else {
			rate, best.unit, source = rate*float64(batch), cmp.Or(r.ThroughputUnit, DefaultRateUnit), source+", times the global batch"
		}
	}
	if best.perWorker {
		rate *= float64(r.Info.Workers)
		source += ", which are per worker, times the workers"
		input.Why += fmt.Sprintf("; per worker, times %s", english.FormatCount(r.Info.Workers, "worker"))
	}
	if !(rate > 0) || math.IsInf(rate, 0) {
		return loggedThroughput{}
	}
	return loggedThroughput{rate: rate, unit: best.unit, source: source, input: input}
}

// countedThroughputs returns the positive, finite values of a curve that remain after Rule.DropFirst.
func (rule MeasurementRule) countedThroughputs(values []float64) []float64 {
	if len(values) > rule.DropFirst {
		values = values[rule.DropFirst:]
	}
	return slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
}
