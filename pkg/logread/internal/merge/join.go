package merge

import (
	"cmp"
	"math"
	"slices"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// addMissingPart copies to p the values that only other has, and what other's
// sources state about the run.
func addMissingPart(p, other *record.Part) {
	addMissingValues(&p.Run, other.Run)
	p.Claims = append(slices.Clip(p.Claims), other.Claims...)
}

// addMissingValues copies to run the values that only other has.
func addMissingValues(run *runs.Run, other runs.Run) {
	if len(run.Epochs) == 0 {
		if len(other.Epochs) > 0 {
			run.Epochs, run.File, run.Kind = other.Epochs, other.File, other.Kind
		}
	} else {
		fillMissingEpochValues(run.Epochs, other.Epochs)
	}
	for _, c := range other.Curves { // a CSV and an event file may have the same values
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
	run.ThroughputUnit = cmp.Or(run.ThroughputUnit, other.ThroughputUnit)
	if len(run.AllReduces) == 0 {
		run.AllReduces = other.AllReduces
	}
	if run.WallSeconds == 0 {
		run.WallSeconds = other.WallSeconds
	}
	addMissingInfo(&run.Info, other.Info)
}

// fillMissingEpochValues replaces the NaN values of epochs by the values of the
// same epochs in other.
func fillMissingEpochValues(epochs, other []runs.Epoch) {
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

// addMissingInfo copies to info the values that only other has.
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
	// A log without an error may still belong to a job that failed.
	if info.Status == "" || info.Status == runs.StatusRunning || info.Status == runs.StatusDone && (other.Status == runs.StatusFailed || other.Status == runs.StatusCanceled) {
		info.Status = cmp.Or(other.Status, info.Status)
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
