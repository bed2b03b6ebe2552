// Package merge finds evidence in paths that several files are one run, and merges the values of
// parts that package identity has decided to be one run. It decides nothing.
package merge

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// FillMissingPartValues copies to p the values that p lacks and other has. It also appends the evidence of
// other.
func FillMissingPartValues(p, other *record.Part) {
	FillMissingRunValues(&p.Run, other.Run)
	p.Evidence = append(slices.Clip(p.Evidence), other.Evidence...)
}

// FillMissingRunValues copies to run the values that only other has.
func FillMissingRunValues(run *runs.Run, other runs.Run) {
	if len(run.Epochs) > 0 {
		fillEpochValues(run.Epochs, other.Epochs)
	} else if len(other.Epochs) > 0 {
		run.Epochs, run.File, run.Kind = other.Epochs, other.File, other.Kind
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
	run.WallSeconds = cmp.Or(run.WallSeconds, other.WallSeconds)
	fillMissingInfo(&run.Info, &other.Info)
}

// fillEpochValues replaces the NaN values of epochs by the values of the same epochs in other.
func fillEpochValues(epochs, other []runs.Epoch) {
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
		for _, f := range fields.All() {
			if f.OfEpoch != nil && math.IsNaN(*f.OfEpoch(e)) {
				*f.OfEpoch(e) = *f.OfEpoch(&o)
			}
		}
		if e.Samples == 0 {
			e.Samples, e.PaddingSamples = o.Samples, o.PaddingSamples
		}
	}
}

func fillMissingInfo(info, other *runs.Info) {
	info.Series, info.Study = cmp.Or(info.Series, other.Series), cmp.Or(info.Study, other.Study)
	info.Error, info.Host.Name = cmp.Or(info.Error, other.Error), cmp.Or(info.Host.Name, other.Host.Name)
	info.Engine, info.Strategy, info.Accelerator = cmp.Or(info.Engine, other.Engine), cmp.Or(info.Strategy, other.Strategy), cmp.Or(info.Accelerator, other.Accelerator)
	info.Workers, info.Nodes = cmp.Or(info.Workers, other.Workers), cmp.Or(info.Nodes, other.Nodes)
	info.BatchPerWorker, info.GlobalBatch = cmp.Or(info.BatchPerWorker, other.BatchPerWorker), cmp.Or(info.GlobalBatch, other.GlobalBatch)
	info.SamplesPerEpoch, info.Parameters = cmp.Or(info.SamplesPerEpoch, other.SamplesPerEpoch), cmp.Or(info.Parameters, other.Parameters)
	info.EnergyJoules, info.Test = cmp.Or(info.EnergyJoules, other.EnergyJoules), cmp.Or(info.Test, other.Test)
	// A log without an error may still belong to a job that failed.
	if info.Status == "" || info.Status == runs.StatusRunning || info.Status == runs.StatusDone && (other.Status == runs.StatusFailed || other.Status == runs.StatusCanceled) {
		info.Status = cmp.Or(other.Status, info.Status)
	}
	info.Started, info.Ended = cmp.Or(info.Started, other.Started), cmp.Or(info.Ended, other.Ended)
	if len(info.Command) == 0 {
		info.Command = other.Command
	}
	info.Config, info.JobIDs = addMissingKeys(info.Config, other.Config), addMissingKeys(info.JobIDs, other.JobIDs)
}

func addMissingKeys[V any](m, other map[string]V) map[string]V {
	for k, v := range other {
		if _, has := m[k]; !has {
			record.PutInMap(&m, k, v)
		}
	}
	return m
}

// PrefixCurvesWithSplit returns the folder of the companion p's run. Keras keeps the event files of each
// split of the data set in a folder: for such a file, PrefixCurvesWithSplit prefixes the names of the curves
// with the split and returns the parent folder.
func PrefixCurvesWithSplit(p *record.Part) string {
	folder := filepath.Dir(p.Run.File)
	split := filepath.Base(folder)
	switch split {
	case "train", "validation", "valid", "val", "eval", "test":
		for i := range p.Run.Curves {
			p.Run.Curves[i].Name = split + "/" + p.Run.Curves[i].Name
		}
		return filepath.Dir(folder)
	}
	return folder
}

// AppendResumedPart appends next, a later part of the same run, to p. From the first epoch or step of
// next on, its values replace those of p.
func AppendResumedPart(p, next *record.Part) {
	run, info := &p.Run, &p.Run.Info
	if len(next.Run.Epochs) > 0 {
		start := next.Run.Epochs[0].Epoch
		run.Epochs = slices.DeleteFunc(slices.Clone(run.Epochs), func(e runs.Epoch) bool { return e.Epoch >= start })
		run.Epochs = append(run.Epochs, next.Run.Epochs...)
	}
	for _, c := range next.Run.Curves {
		i := slices.IndexFunc(run.Curves, func(o runs.Curve) bool { return o.Name == c.Name && o.Rank == c.Rank })
		if i < 0 || len(c.Steps) == 0 {
			continue // added below
		}
		to := &run.Curves[i]
		to.Steps, to.Values, to.Times = slices.Clone(to.Steps), slices.Clone(to.Values), slices.Clone(to.Times)
		record.AppendResumedCurve(to, c)
	}
	if !next.Run.Info.Ended.IsZero() {
		info.Ended = next.Run.Info.Ended
	}
	if run.WallSeconds > 0 && next.Run.WallSeconds > 0 {
		run.WallSeconds += next.Run.WallSeconds
	}
	run.OutOfMemory = append(slices.Clip(run.OutOfMemory), next.Run.OutOfMemory...)
	info.Status, info.Error = next.Run.Info.Status, next.Run.Info.Error // a run that was resumed did not end before
	rest := *next
	rest.Run.Epochs = nil // added above
	rest.Run.Curves = slices.DeleteFunc(slices.Clone(next.Run.Curves), func(c runs.Curve) bool {
		return slices.ContainsFunc(run.Curves, func(o runs.Curve) bool { return o.Name == c.Name && o.Rank == c.Rank })
	})
	FillMissingPartValues(p, &rest)
}
