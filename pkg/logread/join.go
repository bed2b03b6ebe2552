package logread

import (
	"math"
	"slices"

	"lockstep/pkg/runs"
)

// addMissing adds to run what only other has.
func addMissing(run *runs.Run, other runs.Run) {
	if len(run.Epochs) == 0 {
		run.Epochs, run.File, run.Kind = other.Epochs, choose(run.File, other.File, len(other.Epochs) > 0), choose(run.Kind, other.Kind, len(other.Epochs) > 0)
	} else {
		fillEpochs(run.Epochs, other.Epochs)
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
	if run.WallSeconds == 0 {
		run.WallSeconds = other.WallSeconds
	}
	addMissingInfo(&run.Info, other.Info)
}

// choose returns b if second is true, otherwise a.
func choose(a, b string, second bool) string {
	if second {
		return b
	}
	return a
}

// fillEpochs replaces values of epochs that are NaN by those of other.
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

// addMissingInfo adds to info what only other has.
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
	// A log that simply ends does not show that its job failed.
	if info.Status == "" || info.Status == runs.StatusRunning || info.Status == runs.StatusDone && (other.Status == runs.StatusFailed || other.Status == runs.StatusCanceled) {
		info.Status = choose(info.Status, other.Status, other.Status != "")
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
