package observe

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// ResultInput is a number that a result was computed from; see scaling.Input.
type ResultInput struct {
	Role    string
	Run     string
	File    string
	Line    int
	Epoch   int
	Name    string
	Value   float64
	Unit    string
	Counted bool
	Why     string
}

// NewResultInput returns an Input for the named column, which must have one value per run. Its value is
// NaN if the run has none.
func NewResultInput(name string, r runs.Run, m Measurements) ResultInput {
	in := ResultInput{Name: name, File: r.File, Unit: metricUnit(name), Value: math.NaN()}
	switch name {
	case "wall_seconds":
		in.Value, in.File, in.Why = m.Wall, runInfoPath(r), "of the whole job, start-up included"
	case "train_seconds":
		in.Value, in.Why = TrainSeconds(r), "the sum over all epochs, or the time in the log"
	case "test_seconds":
		in.Value, in.File = TestSeconds(r), runInfoPath(r)
	case "energy_joules":
		in.Value, in.File = EnergyJoules(r), runInfoPath(r)
	}
	all := Metrics()
	k := slices.IndexFunc(all, func(x Metric) bool { return x.Name == name })
	if k < 0 {
		return in
	}
	metric := all[k]
	if v := metric.TestValue(r); !math.IsNaN(v) {
		in.Value, in.File, in.Why = v, runInfoPath(r), "on the test set after training"
		if r.Info.EvaluatedPart() == runs.ValidationPart {
			in.Why = "on the validation set after training"
		}
	} else if i := metric.LastEpoch(r); i >= 0 {
		e := r.Epochs[i]
		in.Value, in.Epoch, in.Line, in.Why = metric.Epoch(e), e.Epoch, e.Line, "of the last epoch that has it"
	}
	if m.Last.Diverged != "" && (name == "train_loss" || name == "val_loss") {
		in.Value, in.Why = math.NaN(), m.Last.Diverged+" is not a finite number: the run diverged"
	}
	return in
}

// SpeedInputs returns the values of all epochs of the runs in c that enter a measure of speed,
// including epochs that do not count.
func (rule MeasurementRule) SpeedInputs(c RunGroup, measureName string) []ResultInput {
	var out []ResultInput
	for k, r := range c.Runs {
		add := func(in ResultInput) {
			in.Run, in.File = r.Dir, cmp.Or(in.File, r.File)
			out = append(out, in)
		}
		if measureName == "wall_seconds" {
			add(ResultInput{File: runInfoPath(r), Name: "wall_seconds", Value: c.Measured[k].Wall, Unit: "s", Counted: true, Why: "of the whole job"})
			continue
		}
		if measureName == "throughput" && c.Measured[k].RateSource == jobRateSource {
			for _, in := range rule.jobTimeInputs(r, c.Measured[k]) {
				add(in)
			}
			continue
		}
		if measureName == "throughput" && c.Measured[k].RateSource != "" {
			add(rule.findLoggedThroughput(&r).input)
			continue
		}
		counts, hasTimes := rule.CountedEpochFilter(r), HasEpochTimes(r)
		rateUnit := cmp.Or(c.Measured[k].RateUnit, DefaultRateUnit)
		for j := range r.Epochs {
			e := &r.Epochs[j]
			in := ResultInput{Line: e.Line, Epoch: e.Epoch, Name: "seconds", Value: e.Seconds, Unit: "s", Counted: counts(j) && e.Seconds > 0, Why: rule.epochExclusionReason(r, j)}
			n := rule.SamplesInEpoch(e)
			if measureName == "throughput" && hasTimes && n == 0 && in.Why == "" {
				in.Counted, in.Why = false, "the log does not contain its samples"
			}
			if hasTimes {
				add(in)
			}
			if measureName != "throughput" || n == 0 && (hasTimes || !(e.SamplesPerSecond > 0)) {
				continue
			}
			switch {
			case !hasTimes && e.SamplesPerSecond > 0:
				in.Name, in.Value, in.Unit, in.Counted = "samples_per_second", e.SamplesPerSecond, rateUnit, counts(j)
			case e.Samples == 0 && e.SamplesPerSecond > 0:
				in.Name, in.Value, in.Unit = "samples_per_second", e.SamplesPerSecond, rateUnit
			case e.Samples == 0:
				in.Name, in.Value, in.Unit, in.Line, in.Why = "samples", n, "samples", 0, "given by --samples-per-epoch"
			default:
				in.Name, in.Value, in.Unit = "samples", n, "samples"
				if e.PaddingSamples > 0 && in.Why == "" {
					in.Why = fmt.Sprintf("without %d that repeat others", e.PaddingSamples)
				}
			}
			add(in)
		}
		if whole, ok := r.Info.Config[logread.TrainingSecondsKey].(float64); ok && !HasEpochTimes(r) && epochsInTrainingTime(r) > 0 {
			add(ResultInput{Name: logread.TrainingSecondsKey, Value: whole, Unit: "s", Counted: true, Why: "over " + describeTrainedEpochs(r)})
			if n := r.Info.SamplesPerEpoch; measureName == "throughput" && n > 0 && !slices.ContainsFunc(r.Epochs, func(e runs.Epoch) bool { return e.Samples > 0 }) {
				add(ResultInput{Name: "samples", Value: float64(n), Unit: "samples", Counted: true, Why: "per epoch"})
			}
		}
	}
	return out
}

// jobTimeInputs returns the inputs of a throughput that is computed from the run time of the complete
// job.
func (rule MeasurementRule) jobTimeInputs(r runs.Run, m Measurements) []ResultInput {
	samples := ResultInput{Name: "samples", Value: rule.samplesPerEpoch(r), Unit: "samples", Counted: true, Why: "per epoch"}
	if SamplesPerEpoch(r) == 0 {
		samples.Why += ", given by --samples-per-epoch"
	}
	return []ResultInput{
		{File: runInfoPath(r), Name: "wall_seconds", Value: m.Job, Unit: "s", Counted: true, Why: "of the whole job, start-up and validation included"},
		samples,
		{Name: "epochs", Value: m.JobEpochs, Counted: true, Why: "that the job trained"},
	}
}

// epochExclusionReason returns why the i-th epoch of a run does not count, or "" if it does.
func (rule MeasurementRule) epochExclusionReason(r runs.Run, i int) string {
	switch _, err := strconv.Atoi(rule.Epochs); {
	case !(r.Epochs[i].Seconds > 0) && HasEpochTimes(r):
		return "it has no time"
	case rule.CountedEpochFilter(r)(i):
		return ""
	case err == nil:
		return "the rule counts only epoch " + rule.Epochs
	case rule.DropFirst == 1:
		return "the rule excludes the first epoch"
	}
	return fmt.Sprintf("the rule excludes the first %d epochs", rule.DropFirst)
}

// runInfoPath returns the path of the file with the totals of a run: run.json in a run folder, else
// the log.
func runInfoPath(r runs.Run) string {
	if r.Kind == "" || r.Kind == "run folder" || r.Info.Schema > 0 {
		return filepath.Join(r.Dir, "run.json")
	}
	return r.File
}

// metricUnit returns the unit of a metric: "s", "J" or "" for none.
func metricUnit(metric string) string {
	switch {
	case strings.HasSuffix(metric, "_seconds"):
		return "s"
	case metric == "energy_joules":
		return "J"
	}
	return ""
}
