package identity

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/merge"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/repeats"
	"lockstep/pkg/runs"
)

// joinResumedRuns joins parts that belong to one resumed run. Readers begin a new part where the
// numbers of epochs or steps go back. The parts of one file are ordered by their position, and
// those of different files by their time stamps; files without time stamps are not joined. Parts
// with a differing identity are never joined, and parts with equal values are copies. Otherwise
// [record.ClassifyContinuation] decides.
func joinResumedRuns(parts []*record.Part) []*record.Part {
	gone := map[*record.Part]bool{}
	last := map[string]*record.Part{} // the part before: of a file, and of a run in a table
	for _, p := range parts {
		info := &p.Run.Info
		key := fmt.Sprint(p.Run.File, "\x00", info.Series, info.Workers, info.Nodes, info.Seed, info.GlobalBatch, info.Config["run"])
		before, same := last[p.Run.File], last[key]
		gone[p] = before != nil && joinIfResumed(before, p) || same != nil && same != before && joinIfResumed(same, p)
		if !gone[p] {
			last[p.Run.File], last[key] = p, p
		}
	}
	kept := slices.DeleteFunc(slices.Clone(parts), func(p *record.Part) bool { return gone[p] })
	byName := map[string][]*record.Part{}
	for _, p := range kept {
		if !p.Run.Info.Started.IsZero() && !p.Run.Info.Ended.IsZero() && p.Role == record.Principal {
			name := resumeKey(p.Run.File)
			byName[name] = append(byName[name], p)
		}
	}
	for _, files := range byName {
		slices.SortStableFunc(files, func(a, b *record.Part) int { return a.Run.Info.Started.Compare(b.Run.Info.Started) })
		for i, p := range files {
			var before *record.Part // the latest part that ended before, of another file
			for _, o := range files[:i] {
				if !gone[o] && o.Run.File != p.Run.File && !o.Run.Info.Ended.After(p.Run.Info.Started) {
					before = o
				}
			}
			if before != nil && joinIfResumed(before, p) {
				gone[p] = true
			}
		}
	}
	return slices.DeleteFunc(kept, func(p *record.Part) bool { return gone[p] })
}

var numbersInName = regexp.MustCompile(`[0-9]+`)

// resumeKey returns what is the same in the paths of all files of a resumed run: the folder and, in the file's name,
// the words, settings, workers, nodes and seed. Other numbers in the name may differ: they count jobs, parts or
// attempts, or are times.
func resumeKey(path string) string {
	base := filepath.Base(path)
	name := names.ParsePath(path)[0]
	key := []any{filepath.Dir(path), name.Workers, name.Nodes, numbersInName.ReplaceAllString(strings.TrimPrefix(base, name.Text), "#")}
	if strings.Contains(strings.ToLower(base), "seed") { // and not only the number of a repeat
		key = append(key, name.Seed)
	}
	for _, l := range names.PathLabels([]string{name.Text}) {
		if !l.MayCount {
			key = append(key, l.Key, l.Text)
		}
	}
	return fmt.Sprintf("%q", key)
}

// joinIfResumed joins next, the part after p, to p if both are one run, and reports whether it did.
func joinIfResumed(p, next *record.Part) bool {
	first, last, interval, start := epochOrStepRange(&p.Run, &next.Run)
	if start < 0 || p.Run.Kind != next.Run.Kind || statedWorkers(p) != statedWorkers(next) && statedWorkers(p) > 0 && statedWorkers(next) > 0 || settingsDiffer([]*record.Part{p, next}) || commandsDiffer(p.Run.Info.Command, next.Run.Info.Command) {
		return false
	}
	if p.SeedKnown && next.SeedKnown && p.Run.Info.Seed != next.Run.Info.Seed || fmt.Sprint(p.Run.Info.Config["run"]) != fmt.Sprint(next.Run.Info.Config["run"]) {
		return false
	}
	sameFile := p.Run.File == next.Run.File
	if sameFile && next.Line == 0 { // the outputs of a notebook's cells
		return false
	}
	if sameFile && isCopy(&p.Run, &next.Run) {
		next.Report.AddAssumption("%s: a copy of the values before it", describeLocation(next))
		next.Report.Repetitions++
		return true
	}
	resumes := next.Resumes || slices.ContainsFunc(next.Run.Info.Command, func(w string) bool { return strings.HasPrefix(strings.TrimLeft(w, "-"), "resume") })
	what := "epoch"
	if len(p.Run.Epochs) == 0 {
		what = "step"
	}
	switch record.ClassifyContinuation(first, last, interval, start, resumes) {
	case record.AnotherRun:
		if sameFile && len(next.Report.Assumed) < maxListedProperties {
			next.Report.AddAssumption("%s: the numbers start again: another run", describeLocation(next))
		}
		return false
	case record.Resumed:
		next.Report.AddAssumption("%s: the run was resumed at %s %d, and the later values count", describeLocation(next), what, start)
	case record.Continued:
		next.Report.AddAssumption("%s: the run was resumed at %s %d", describeLocation(next), what, start)
	case record.AfterGap:
		next.Report.AddAssumption("%s: the run was resumed at %s %d; the values after %s %d up to it are missing", describeLocation(next), what, start, what, last)
	}
	if !sameFile {
		next.Report.AddAssumption("it continues the run in %s", p.Run.File)
	}
	next.Report.Resumptions++
	merge.AppendResumedPart(p, next)
	return true
}

// statedWorkers returns the number of workers that the content or the command of p states, or 0.
func statedWorkers(p *record.Part) int64 {
	e, ok := strongestEvidence(p.Evidence, runs.PropertyWorkers)
	if !ok || !e.Kind.IsStated() {
		return 0
	}
	return e.Number
}

// commandsDiffer reports whether two commands start different programs or give them different
// options. Only one of them may have options that resume a run or name a place.
func commandsDiffer(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := launchline.ParseCommand(a), launchline.ParseCommand(b)
	if x.Script != y.Script || x.Workers != y.Workers || x.Nodes != y.Nodes {
		return true
	}
	options, others := launchline.ProgramOptions(a), launchline.ProgramOptions(b)
	for name, v := range options {
		if other, ok := others[name]; ok && other != v {
			return true
		}
	}
	return !maps.Equal(repeats.DistinguishingOptions(a), repeats.DistinguishingOptions(b))
}

// epochOrStepRange returns the first and last number of the epochs of run, or else of its steps,
// and the usual interval between them. start is the number at which next starts, or -1 if the two
// runs cannot be compared by their numbers.
func epochOrStepRange(run, next *runs.Run) (first, last, interval, start int64) {
	if len(run.Epochs) > 0 && len(next.Epochs) > 0 {
		order := func(a, b runs.Epoch) int { return cmp.Compare(a.Epoch, b.Epoch) }
		a, b := slices.MinFunc(run.Epochs, order), slices.MaxFunc(run.Epochs, order)
		if len(run.Epochs)+len(next.Epochs) == 2 { // rows of a table, each of which is a run
			return 0, 0, 0, -1
		}
		return int64(a.Epoch), int64(b.Epoch), 1, int64(slices.MinFunc(next.Epochs, order).Epoch)
	}
	for _, c := range run.Curves {
		i := slices.IndexFunc(next.Curves, func(o runs.Curve) bool { return o.Name == c.Name && o.Rank == c.Rank && len(o.Steps) > 0 })
		if i < 0 || len(c.Steps) == 0 || len(run.Epochs)+len(next.Epochs) > 0 {
			continue
		}
		first, last = slices.Min(c.Steps), slices.Max(c.Steps)
		return first, last, (last - first) / max(int64(len(c.Steps)-1), 1), slices.Min(next.Curves[i].Steps)
	}
	return 0, 0, 0, -1
}

// isCopy reports whether run contains all values of next.
func isCopy(run, next *runs.Run) bool {
	equal := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
	for _, e := range next.Epochs {
		i := slices.IndexFunc(run.Epochs, func(o runs.Epoch) bool { return o.Epoch == e.Epoch })
		if i < 0 {
			return false
		}
		o := run.Epochs[i]
		if slices.ContainsFunc(fields.All(), func(f fields.Field) bool { return f.OfEpoch != nil && !equal(*f.OfEpoch(&e), *f.OfEpoch(&o)) }) {
			return false
		}
	}
	for _, c := range next.Curves {
		if !slices.ContainsFunc(run.Curves, func(o runs.Curve) bool {
			return o.Name == c.Name && o.Rank == c.Rank && slices.Equal(o.Steps, c.Steps) && slices.EqualFunc(o.Values, c.Values, equal)
		}) {
			return false
		}
	}
	return len(next.Trials) == 0
}

func describeLocation(p *record.Part) string {
	if p.Line == 0 {
		return filepath.Base(p.Run.File)
	}
	return fmt.Sprintf("line %d", p.Line)
}
