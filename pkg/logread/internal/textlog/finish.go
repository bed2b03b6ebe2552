package textlog

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// finish ends the last run and returns the parts of the file.
func (t *reader) finish() []*record.Part {
	t.finishFailure()
	if len(t.config) > 0 {
		t.addConfig(t.config)
	}
	if t.cur.lines > 0 {
		t.runs = append(t.runs, t.cur)
	} else {
		t.cur.finishHorovod(t.in.Report) // settings at the end that belong to no run
	}
	var parts []*record.Part
	kinds := map[string]bool{}
	for _, r := range t.runs {
		if p := r.toPart(t.in.Report); p != nil {
			if len(parts) > 0 {
				p.Run.Dir = fmt.Sprintf("%s#%d", t.in.Path, len(parts)+1)
			}
			parts = append(parts, p)
			kinds[p.Run.Kind] = true
		}
	}
	n := len(parts)
	if parts = t.addSeffJobs(parts); len(parts) > n {
		kinds[seffKind] = true
	}
	if len(kinds) > 0 {
		t.in.Report.Kind = strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
	}
	return parts
}

// toPart completes the run and returns it as a part. It returns nil if the run
// has no values, for example if it consists only of a command.
func (r *textRun) toPart(report *record.Report) *record.Part {
	all := &sharedFormatIndex().formats
	for i := range all {
		if finish := all[i].finish; finish != nil {
			finish(r, report)
		}
	}
	if r.hasTimes {
		r.run.Info.Started, r.run.Info.Ended = time.UnixMilli(r.started).UTC(), time.UnixMilli(r.ended).UTC()
	}
	if r.ratesOfRanks && len(r.epochs.all) > 1 {
		r.sumRates = true
		report.AddAssumptionOnce("samples and samples per second are those of each rank; the ranks' values are summed")
	}
	r.finishBars(report)
	kind := &all[r.mainFormat()]
	templatesOf(r).reportCounts(kind.countsFromZero, &r.epochs, report)
	r.run.Epochs = r.epochs.merge(r.sumRates, kind.countsFromZero, report)
	for _, name := range slices.Sorted(maps.Keys(r.curves)) {
		first := len(r.run.Curves)
		for c := r.curves[name]; c != nil; c = c.otherRank {
			if c.Points > 0 {
				r.run.Curves = append(r.run.Curves, c.Finish(report))
			}
		}
		slices.SortStableFunc(r.run.Curves[first:], func(a, b runs.Curve) int { return a.Rank - b.Rank })
	}
	for _, name := range slices.Sorted(maps.Keys(r.trials)) {
		r.run.Trials = append(r.run.Trials, *r.trials[name])
	}
	finishTrials(r.run.Trials, report)
	r.finishOutOfMemory(report)
	if len(r.run.Epochs) == 0 && len(r.run.Curves) == 0 && len(r.run.Trials) == 0 && len(r.run.AllReduces) == 0 && r.run.WallSeconds == 0 && r.run.Info.Status == "" {
		return nil
	}
	r.run.Kind = kind.name
	p := &record.Part{Run: r.run, Role: record.Principal, Line: r.line, SeedKnown: r.seedKnown, Claims: r.claims}
	r.claimRanks(p, report)
	return p
}

// mainFormat returns the format with the most lines, not counting commands.
func (r *textRun) mainFormat() formatID {
	best := formatCommand
	for f := best + 1; f < maxFormats; f++ {
		if r.linesByFormat[f] > 0 && (best == formatCommand || r.linesByFormat[f] >= r.linesByFormat[best]) {
			best = f
		}
	}
	return best
}

// hasAllRanks reports whether the ranks in the lines are 0, 1, 2, … on each node.
// If a rank is missing, only some of the ranks have printed lines.
func (r *textRun) hasAllRanks() bool {
	for rank := range r.ranks {
		if rank%ranksPerNode != 0 && !r.ranks[rank-1] {
			return false
		}
	}
	return true
}

// claimRanks adds the number of workers that follows from the ranks in the
// lines, and the rank of the file if all labels have the same.
func (r *textRun) claimRanks(p *record.Part, report *record.Report) {
	n, detail := 0, ""
	switch {
	case r.linesByFormat[formatMLPerf] > 0 && len(r.ranks) > 1 && !r.hasAllRanks(): // only some ranks of a run print lines of MLLOG
		if r.statedWorkers() > 0 {
			return
		}
		report.AddProblem(r.line, "the lines have %d ranks, but not all from 0 on: the number of workers is not derived from them", len(r.ranks))
	case len(r.ranks) > 1:
		n, detail = len(r.ranks), "the lines have that many ranks"
	case r.done > 1:
		n, detail = r.done, fmt.Sprintf("rank %d reported that it was done", r.done-1)
	case len(r.epochs.all) > 1:
		n, detail = len(r.epochs.all), "each epoch was logged that many times"
	}
	if n > 0 {
		p.AddClaim(runs.PropertyWorkers, int64(n), runs.SourceContent, detail)
		p.Claims[len(p.Claims)-1].AtLeast = true
	}
	if len(r.ranks) == 1 {
		for p.Rank = range r.ranks {
			p.RankKnown = true
		}
	}
}

// finishTrials sets the rate of each trial without a summary to the mean of its
// single rates, and sorts the trials.
func finishTrials(trials []runs.Trial, report *record.Report) {
	for i := range trials {
		if tr := &trials[i]; math.IsNaN(tr.Rate) && len(tr.Rates) > 0 {
			tr.Rate, tr.Spread = record.MeanAndSpread(tr.Rates)
			report.AddAssumption("%s: the mean of %d trials, since the log has no summary", tr.Name, len(tr.Rates))
		}
	}
	slices.SortStableFunc(trials, func(a, b runs.Trial) int { return trialPosition(a.Name) - trialPosition(b.Name) })
}

// trialPosition returns the position of a measurement in the sorted list of
// trials, or -1 if the name is unknown.
func trialPosition(name string) int { return slices.Index([]string{"IO", "SYNTHETIC", "FULL"}, name) }
