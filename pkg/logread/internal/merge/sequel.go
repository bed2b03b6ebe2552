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
		to.Steps, to.Values, to.Times = slices.Clone(to.Steps), slices.Clone(to.Values), slices.Clone(to.Times)
		record.Continue(to, c)
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
