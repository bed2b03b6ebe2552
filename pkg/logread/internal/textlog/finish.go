package textlog

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/logread/internal/textlog/internal/system"
	"lockstep/pkg/logread/internal/textlog/internal/trainer"
	"lockstep/pkg/runs"
)

func (t *reader) finish() []*record.Part {
	system.FinishRankFailure(t.Log)
	t.AddConfig(t.Config)
	if t.Current.Lines > 0 {
		t.Runs = append(t.Runs, t.Current)
	} else {
		t.formats.formats[logline.Horovod].Finish(t.Current, t.In.Report) // settings at the end that belong to no run
	}
	var parts []*record.Part
	kinds := map[string]bool{}
	n := 0                                  // number of runs
	fromZero := map[logline.FormatID]bool{} // formats that count epochs from 0 in this file
	for _, r := range t.Runs {
		if p := runToPart(r, fromZero, t.In.Report); p != nil {
			if parts = append(parts, p); p.Role == record.Principal {
				if n++; n > 1 {
					p.Run.Dir = fmt.Sprintf("%s#%d", t.In.Path, n)
				} else {
					p.Run.Dir = t.In.Path
				}
			}
			kinds[p.Run.Kind] = true
		}
	}
	for _, job := range system.SeffJobs(t.Log, parts) {
		parts = append(parts, job)
		kinds[job.Run.Kind] = true
	}
	if len(kinds) > 0 {
		t.In.Report.Kind = strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
	}
	return parts
}

// runToPart completes the run and returns it as a part. It returns nil if the run has no values, but
// only a command, for example. fromZero contains the formats in which earlier runs of the file
// count epochs from 0; a resumed run, whose first epoch is missing, then counts from 0 too.
func runToPart(r *logline.Run, fromZero map[logline.FormatID]bool, report *record.Report) *record.Part {
	all := &sharedFormatIndex().formats
	for i := range all {
		if finish := all[i].Finish; finish != nil {
			finish(r, report)
		}
	}
	if r.HasTimes {
		r.Run.Info.Started, r.Run.Info.Ended = time.UnixMilli(r.Started).UTC(), time.UnixMilli(r.Ended).UTC()
	}
	if templateStateOf(r).ratesOfRanks && len(r.Epochs.All) > 1 {
		r.SumRates = true
		report.AddAssumptionOnce("samples and samples per second are those of each rank; the ranks' values are summed")
	}
	trainer.FinishBars(r, report)
	kind := &all[mostUsedFormat(r)]
	templateStateOf(r).reportEpochNumbering(kind.CountsFromZero, &r.Epochs, report)
	first := r.Epochs.FirstEpochNumber()
	fromZero[mostUsedFormat(r)] = fromZero[mostUsedFormat(r)] || first == 0
	r.Run.Epochs = r.Epochs.Merge(r.SumRates, kind.CountsFromZero || fromZero[mostUsedFormat(r)] && first > 1, report)
	slices.SortFunc(r.Curves.All, func(a, b *record.Curve) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Rank-b.Rank) })
	for _, c := range r.Curves.All {
		if c.Points > 0 {
			r.Run.Curves = append(r.Run.Curves, c.Finish(report))
		}
	}
	if len(r.Run.Epochs) > 0 {
		templateStateOf(r).elapsed.SetEpochSeconds(r.Run.Epochs, r.Run.Epochs[0].Epoch-first, report)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Trials)) {
		r.Run.Trials = append(r.Run.Trials, *r.Trials[name])
	}
	finishTrials(r.Run.Trials, report)
	system.FinishResumed(r, report)
	system.FinishOutOfMemory(r, report)
	if !record.HasValues(&r.Run) && r.Run.Info.Status == "" {
		if _, ok := record.ConfigNumber(r.Run.Info.Config, record.BatchSettingKeys()...); !ok || len(r.Run.Info.Command) == 0 {
			return nil
		}
		r.Run.Kind = all[logline.Command].Name
		return &record.Part{Run: r.Run, Role: record.Unfinished, Line: r.Line, Evidence: r.Evidence}
	}
	r.Run.Kind = kind.Name
	p := &record.Part{Run: r.Run, Role: record.Principal, Line: r.Line, SeedKnown: r.SeedKnown, Resumes: r.Resumes, SumRates: r.SumRates, WorkersDerived: r.WorkersDerived, Evidence: r.Evidence}
	addRankEvidence(r, p)
	return p
}

func mostUsedFormat(r *logline.Run) logline.FormatID {
	best := logline.Command
	for f := best + 1; f < logline.MaxFormats; f++ {
		if r.LinesByFormat[f] > 0 && (best == logline.Command || r.LinesByFormat[f] >= r.LinesByFormat[best]) {
			best = f
		}
	}
	return best
}

// addRankEvidence adds the number of workers that the ranks in the lines imply. If all labels contain the
// same rank, it adds the rank of the file.
func addRankEvidence(r *logline.Run, p *record.Part) {
	n, detail := 0, ""
	if len(r.Ranks) > 1 {
		p.Ranks = slices.Sorted(maps.Keys(r.Ranks))
	}
	switch {
	case len(r.Ranks) > 1 && (!r.Ranks[0] || r.LinesByFormat[logline.MLPerf] > 0 && !r.HasAllRanks()): // the log of a second node, or MLLOG, whose lines only some ranks print
		if r.StatedWorkers() > 0 {
			return
		}
		p.RanksProblem = fmt.Sprintf("the lines have %d ranks, but not all from 0 on: the number of workers is not derived from them", len(r.Ranks))
	case len(r.Ranks) > 1:
		n, detail = len(r.Ranks), "the lines have that many ranks"
	case r.Done > 1:
		n, detail = r.Done, fmt.Sprintf("rank %d reported that it was done", r.Done-1)
	case r.Epochs.HaveEqualLengths():
		n, detail = len(r.Epochs.All), "each epoch was logged that many times"
	}
	if n > 0 {
		p.AddEvidence(runs.PropertyWorkers, int64(n), record.AtLeast, runs.SourceContent, detail)
	}
	if d := r.Devices; d.Count > 0 {
		p.AddEvidence(runs.PropertyWorkers, int64(d.Count), record.Devices, runs.SourceContent, fmt.Sprintf("line %d: the devices of the program", d.Line))
	}
	if len(r.Ranks) == 1 {
		for p.Rank = range r.Ranks {
			p.RankKnown = true
		}
	}
}

// finishTrials sorts the trials. A trial without a summary gets the mean of its single rates as its
// rate.
func finishTrials(trials []runs.Trial, report *record.Report) {
	for i := range trials {
		if tr := &trials[i]; math.IsNaN(tr.Rate) && len(tr.Rates) > 0 {
			tr.Rate, tr.Spread = record.MeanAndStdDev(tr.Rates)
			report.AddAssumption("%s: the mean of %d trials, since the log has no summary", tr.Name, len(tr.Rates))
		}
	}
	position := func(t runs.Trial) int { return slices.Index([]string{"IO", "SYNTHETIC", "FULL"}, t.Name) }
	slices.SortStableFunc(trials, func(a, b runs.Trial) int { return position(a) - position(b) })
}
