package events

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// groupByRunAndRank groups the event files of a folder by run and then by rank. files are in chronological
// order. Files that were written at the same time belong to the ranks of one run. A later file
// continues the run or begins another one; see [record.ClassifyContinuation].
func groupByRunAndRank(files []*record.Part) (all [][][]*record.Part) {
	var sessions [][]*record.Part // the files that were written at the same time
	for _, f := range files {
		k := len(sessions) - 1
		switch {
		case k >= 0 && slices.ContainsFunc(sessions[k], func(o *record.Part) bool { return haveSameCurves(parserOf(o), parserOf(f)) }):
			f.Report.AddAssumption("a copy of %s", sessions[k][0].Run.File)
		case k >= 0 && slices.ContainsFunc(sessions[k], func(o *record.Part) bool { return areConcurrent(parserOf(o), parserOf(f)) }):
			sessions[k] = append(sessions[k], f)
		default:
			sessions = append(sessions, []*record.Part{f})
		}
	}
	for i, session := range sessions {
		slices.SortStableFunc(session, func(a, b *record.Part) int { return runs.NaturalCompare(hostAndProcess(a), hostAndProcess(b)) })
		if i == 0 || startsNewRun(sessions[i-1], session) {
			all = append(all, nil)
		}
		run := &all[len(all)-1]
		for rank, f := range session {
			if rank == len(*run) {
				*run = append(*run, nil)
			}
			(*run)[rank] = append((*run)[rank], f)
		}
	}
	return all
}

// startsNewRun reports whether session belongs to another run than the earlier session before,
// because its steps do not continue that run.
func startsNewRun(before, session []*record.Part) bool {
	a, b := parserOf(before[0]), parserOf(session[0])
	for _, c := range a.curves.All {
		next := b.curves.Find(c.Name, -1)
		if next == nil || len(c.Steps) < 2 || len(next.Steps) == 0 || b.restarted {
			continue
		}
		return record.ClassifyContinuation(slices.Min(c.Steps), slices.Max(c.Steps), 1, slices.Min(next.Steps), false) == record.AnotherRun
	}
	return false
}

func haveSameCurves(a, b *Parser) bool {
	return len(a.curves.All) > 0 && slices.EqualFunc(a.curves.All, b.curves.All, func(x, y *record.Curve) bool {
		return x.Name == y.Name && slices.Equal(x.Steps, y.Steps) && slices.Equal(x.Values, y.Values) && slices.Equal(x.Times, y.Times)
	})
}

// hostAndProcess returns the host and the process of an event file from its name,
// events.out.tfevents.<seconds>.<host>.<process>.<number>.
func hostAndProcess(p *record.Part) string {
	name := strings.TrimPrefix(filepath.Base(p.Run.File), "events.out.tfevents.")
	_, writer, _ := strings.Cut(name, ".")
	return writer
}

// areConcurrent reports whether two files have values of the same tags and steps and overlap in
// time by at least half of the shorter file's time.
func areConcurrent(a, b *Parser) bool {
	fromA, toA := a.timeRange()
	fromB, toB := b.timeRange()
	shared := math.Min(toA, toB) - math.Max(fromA, fromB)
	if !(shared > 0 && shared >= math.Min(toA-fromA, toB-fromB)/2) {
		return false
	}
	for _, c := range a.curves.All {
		other := b.curves.Find(c.Name, -1)
		if other == nil {
			continue
		}
		steps := map[int64]bool{}
		for _, step := range c.Steps {
			steps[step] = true
		}
		if slices.ContainsFunc(other.Steps, func(step int64) bool { return steps[step] }) {
			return true
		}
	}
	return false
}

// timeRange returns the times of the first and the last value of the file, or NaN if it has none.
func (r *Parser) timeRange() (from, to float64) {
	from, to = math.NaN(), math.NaN()
	for _, c := range r.curves.All {
		if n := len(c.Times); n > 0 {
			if first := slices.Min(c.Times); from != from || first < from {
				from = first
			}
			if last := slices.Max(c.Times); to != to || last > to {
				to = last
			}
		}
	}
	return from, to
}

// joinRankFiles stores the curves of all ranks, and the epochs derived from them, in the run of into.
// validation is set if the files describe the validation.
func joinRankFiles(into *record.Part, ranks [][]*record.Part, validation bool) {
	into.Run.Curves = nil
	var by [][]runs.Epoch
	for rank, files := range ranks {
		slices.SortStableFunc(files, func(a, b *record.Part) int { return cmp.Compare(parserOf(a).began, parserOf(b).began) })
		curves := joinCurves(files)
		for i := range curves {
			curves[i].Rank = rank
		}
		into.Run.Curves = append(into.Run.Curves, curves...)
		by = append(by, epochsFromCurves(curves, validation))
		for _, f := range files {
			if f != into {
				f.Report.AddAssumption("rank %d of the run in %s", rank, into.Run.File)
			}
		}
	}
	into.Run.Epochs = record.MergeEpochs(by, false, into.Report)
	if len(into.Run.Epochs) == 0 {
		into.Run.Epochs = nil
	}
	into.Report.AddAssumption("the event files of %s were written at the same time; the ranks are numbered in the order of host and process", english.FormatCount(len(ranks), "rank"))
	into.AddEvidence(runs.PropertyWorkers, int64(len(ranks)), record.AtLeast, runs.SourceContent, "event files that were written at the same time")
}
