package merge

import (
	"slices"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Sequel adds to p the values of next, the later part of the same run. Later values replace earlier ones
// from the first number of next on.
func Sequel(p, next *record.Part) {
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
		start := slices.Min(c.Steps)
		kept := runs.Curve{Name: c.Name, Rank: c.Rank}
		for k, step := range to.Steps {
			if step >= start {
				continue
			}
			kept.Steps, kept.Values = append(kept.Steps, step), append(kept.Values, to.Values[k])
			if k < len(to.Times) {
				kept.Times = append(kept.Times, to.Times[k])
			}
		}
		kept.Steps, kept.Values, kept.Times = append(kept.Steps, c.Steps...), append(kept.Values, c.Values...), append(kept.Times, c.Times...)
		*to = kept
	}
	if !next.Run.Info.Ended.IsZero() {
		info.Ended = next.Run.Info.Ended
	}
	if run.WallSeconds > 0 && next.Run.WallSeconds > 0 {
		run.WallSeconds += next.Run.WallSeconds
	}
	run.OutOfMemory = append(slices.Clip(run.OutOfMemory), next.Run.OutOfMemory...)
	if next.Run.Info.Status != "" {
		info.Status, info.Error = next.Run.Info.Status, next.Run.Info.Error
	}
	rest := *next
	rest.Run.Epochs = nil // added above
	rest.Run.Curves = slices.DeleteFunc(slices.Clone(next.Run.Curves), func(c runs.Curve) bool {
		return slices.ContainsFunc(run.Curves, func(o runs.Curve) bool { return o.Name == c.Name && o.Rank == c.Rank })
	})
	Missing(p, &rest)
}
