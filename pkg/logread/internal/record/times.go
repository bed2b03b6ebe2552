package record

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// IsPlausibleTime reports whether v can be a duration or a rate: a finite number that is not negative.
func IsPlausibleTime(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

// timeNamePattern matches the names of curves of durations and rates by the unit at their end, as
// in step_seconds, images/s or samples_per_sec.
var timeNamePattern = regexp.MustCompile(`(?i)(^|[_/ ])(seconds|secs?|ms|milliseconds|step_time|epoch_time|iter_time|batch_time)$|(_per_|/)(s|secs?|second)$`)

// RemoveImpossibleTimes removes negative and infinite durations and rates from the run of p, and
// adds a problem for each. In an epoch, NaN means that a value was not measured, so a reader must
// report a logged NaN itself; in a curve, NaN was logged and is removed too.
func (p *Part) RemoveImpossibleTimes() {
	run := &p.Run
	check := func(line int, name string, v *float64, unknown float64) {
		if !math.IsNaN(*v) && !IsPlausibleTime(*v) {
			p.Report.AddProblem(line, "got %s %g, which is no possible value; it is not used", name, *v)
			*v = unknown
		}
	}
	nan := math.NaN()
	for i := range run.Epochs {
		e := &run.Epochs[i]
		check(e.Line, "seconds", &e.Seconds, nan)
		check(e.Line, "val_seconds", &e.ValSeconds, nan)
		if e.SamplesPerSecond < 0 && p.hasProblemAt(e.Line) { // it was computed from the time
			e.SamplesPerSecond = nan
		}
		check(e.Line, "samples_per_second", &e.SamplesPerSecond, nan)
	}
	for i := range run.Trials {
		t := &run.Trials[i]
		check(t.Line, "a rate of "+t.Name, &t.Rate, nan)
		check(t.Line, "a spread of "+t.Name, &t.Spread, nan)
	}
	run.AllReduces = slices.DeleteFunc(run.AllReduces, func(a runs.AllReduce) bool {
		if !IsPlausibleTime(a.Seconds) {
			p.Report.AddProblem(a.Line, "got an all-reduce of %g s, which is no possible value; it is not used", a.Seconds)
		}
		return !IsPlausibleTime(a.Seconds)
	})
	run.Spans = slices.DeleteFunc(run.Spans, func(s runs.Span) bool {
		if !IsPlausibleTime(s.Seconds) {
			p.Report.AddProblem(0, "got the span %.80q of %g s, which is no possible value; it is not used", s.Name, s.Seconds)
		}
		return !IsPlausibleTime(s.Seconds)
	})
	check(p.Line, "wall_seconds", &run.WallSeconds, 0)
	if seconds, ok := run.Info.Config[TrainingSecondsKey].(float64); ok && !IsPlausibleTime(seconds) {
		p.Report.AddProblem(p.Line, "got %s %g, which is no possible value; it is not used", TrainingSecondsKey, seconds)
		delete(run.Info.Config, TrainingSecondsKey)
	}
	for i := range run.Curves {
		p.removeImpossiblePoints(&run.Curves[i])
	}
}

func (p *Part) hasProblemAt(line int) bool {
	return slices.ContainsFunc(p.Report.Problems(), func(x runs.Problem) bool { return x.Line == line })
}

// removeImpossiblePoints removes the points with impossible values from c if c is a curve of
// durations or rates. It adds one problem, which names the first removed point.
func (p *Part) removeImpossiblePoints(c *runs.Curve) {
	if !timeNamePattern.MatchString(c.Name) || !slices.ContainsFunc(c.Values, func(v float64) bool { return !IsPlausibleTime(v) }) {
		return
	}
	var kept runs.Curve
	for i, v := range c.Values {
		if !IsPlausibleTime(v) {
			continue
		}
		kept.Steps, kept.Values = append(kept.Steps, c.Steps[i]), append(kept.Values, v)
		if c.Times != nil {
			kept.Times = append(kept.Times, c.Times[i])
		}
	}
	first := slices.IndexFunc(c.Values, func(v float64) bool { return !IsPlausibleTime(v) })
	p.Report.AddProblem(p.Line, "%s: got %g at step %d, which is no possible value (%d of %d values); these are not used", c.Name, c.Values[first], c.Steps[first], len(c.Values)-len(kept.Values), len(c.Values))
	c.Steps, c.Values, c.Times = kept.Steps, kept.Values, kept.Times
}

// MeanAndStdDev returns the mean of v and its population standard deviation.
func MeanAndStdDev(v []float64) (mean, spread float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		spread += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(spread)
}

// SlurmStatus converts a Slurm job state and exit code to the status of the job's run. why is the
// reason if the job did not complete.
func SlurmStatus(state, exit string) (status, why string) {
	word, _, _ := strings.Cut(state, " ")
	switch word {
	case "COMPLETED":
		return runs.StatusDone, ""
	case "RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "":
		return runs.StatusRunning, ""
	case "CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE":
		status = runs.StatusCanceled
	default:
		status = runs.StatusFailed
	}
	why = "Slurm: " + state
	if exit != "" && exit != "0:0" {
		why += ", exit code " + exit
	}
	return status, why
}

// ParseSlurmDuration parses [days-]hours:minutes:seconds[.fraction] or minutes:seconds into seconds.
func ParseSlurmDuration(text string) (float64, bool) {
	days, rest, hasDays := strings.Cut(text, "-")
	if !hasDays {
		days, rest = "0", text
	}
	d, err := strconv.Atoi(days)
	if n := strings.Count(rest, ":"); err != nil || d < 0 || d > 1<<20 || n < 1 || n > 2 {
		return 0, false
	}
	seconds, ok := scan.ParseClock([]byte(rest))
	return seconds + float64(d)*86400, ok || strings.Trim(rest, "0:.") == ""
}
