package logread

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/trace"
	"lockstep/pkg/runs"
)

// splitNames returns the names of folders in which Keras keeps the files of one
// part of the data.
func splitNames() []string { return []string{"train", "validation", "valid", "val", "eval", "test"} }

// merger makes runs of parts. Several files may describe one run. The rules, in
// this order:
//
//   - A run folder of this project is a run; the traces in it are its spans.
//   - Files that differ only in the {rank} of a pattern are one run.
//   - Of several states of one run (trainer_state.json of each checkpoint) the
//     last counts.
//   - Two logs with the same start and the same epochs are one run (out.log and
//     the job's stdout). What only the second has is added to the first.
//   - A companion (TensorBoard files, traces) belongs to the only run of its
//     folder, of the folder above, or of the one above that. But a folder whose
//     name has a worker count or a repeat number is a run of its own. The
//     companions of a folder without such a run make one run together, as do
//     those in train/ and validation/ next to each other.
//   - A configuration file adds what the runs of its folder do not say.
//   - The accounting of a job belongs to the run whose file name has the job's
//     number; without such a run it is a run of its own.
type merger struct {
	options    Options
	names      *identifier
	root       string                      // the path that is read; folders above it are ignored
	folders    map[string][]*record.Part   // principal runs by their folder
	runFolders map[string]*record.Part     // run folders
	matched    map[*record.Part]nameFields // what a pattern says about the file
}

// nameOf returns what a pattern says about the file. Numbers that it does not
// give are -1.
func (m *merger) nameOf(p *record.Part) nameFields {
	if t, ok := m.matched[p]; ok {
		return t
	}
	return nameFields{workers: -1, seed: -1, rank: -1}
}

// merge returns the runs in the order of their first parts.
func (m *merger) merge(parts []*record.Part) []runs.Run {
	m.names = identifiers()
	m.runFolders, m.matched = map[string]*record.Part{}, map[*record.Part]nameFields{}
	for _, p := range parts {
		if p.Role == record.RunFolder {
			m.runFolders[filepath.Clean(p.Report.Path)] = p
		}
		if p.Role != record.RunFolder {
			m.apply(p)
		}
	}
	of := func(r record.Role) []*record.Part {
		var found []*record.Part
		for _, p := range parts {
			if p.Role == r {
				found = append(found, p)
			}
		}
		return found
	}
	mains := m.joinRanks(of(record.Principal))
	mains = lastStates(mains)
	mains = joinCopies(mains)
	mains = append(mains, m.joinCompanions(trace.Join(events.Join(of(record.Companion))), mains)...)
	joinConfig(of(record.Config), mains)
	jobs := of(record.Accounting)
	known := map[string]bool{}
	for _, p := range jobs {
		known[p.Run.Info.JobIDs[record.SlurmJob]] = true
	}
	for _, p := range mains {
		jobOf(p, known)
	}
	mains = append(mains, joinAccounting(jobs, mains)...)
	for _, p := range mains {
		m.names.run(p, m.nameOf(p))
	}
	joinStudies(mains)
	attachProblems(mains)
	isMain := map[*record.Part]bool{}
	for _, p := range mains {
		isMain[p] = true
	}
	var found []runs.Run
	for _, p := range parts {
		if p.Role == record.RunFolder || isMain[p] {
			found = append(found, p.Run)
		}
	}
	return found
}

// apply applies the first pattern that matches.
func (m *merger) apply(p *record.Part) {
	for _, pattern := range m.options.As {
		if t, ok := pattern.match(p.Run.File); ok {
			m.matched[p] = t
			p.Report.Assume("the pattern %q matches", pattern)
			return
		}
	}
}

// joinRanks merges files that differ only in their rank.
func (m *merger) joinRanks(mains []*record.Part) []*record.Part {
	type group struct {
		rest string
		line int // the n-th run of each file
	}
	groups := map[group][]*record.Part{}
	var kept []*record.Part
	nth := map[string]int{}
	for _, p := range mains {
		name := m.nameOf(p)
		if name.rank < 0 {
			kept = append(kept, p)
			continue
		}
		nth[p.Run.File]++
		g := group{name.rest, nth[p.Run.File]}
		if groups[g] == nil {
			kept = append(kept, p)
		}
		groups[g] = append(groups[g], p)
	}
	for _, ranks := range groups {
		if len(ranks) == 1 {
			continue
		}
		first := ranks[0]
		by := make([][]runs.Epoch, len(ranks))
		for i, p := range ranks {
			by[i] = p.Run.Epochs
			if i > 0 {
				p.Report.Assume("a rank of the run in %s", first.Run.File)
				addMissing(&first.Run, p.Run)
			}
		}
		first.Run.Epochs = record.JoinEpochs(by, first.SumRates)
		if first.Run.Info.Workers == 0 {
			first.Run.Info.Workers = len(ranks)
			first.Report.Assume("%s: a file a rank", english.Count(len(ranks), "worker"))
		}
	}
	return kept
}

// lastStates removes the earlier states of a run.
func lastStates(mains []*record.Part) []*record.Part {
	last := map[string]*record.Part{}
	for _, p := range mains {
		if l := last[p.StateOf]; p.StateOf != "" && (l == nil || l.State < p.State) {
			last[p.StateOf] = p
		}
	}
	return slices.DeleteFunc(mains, func(p *record.Part) bool {
		earlier := p.StateOf != "" && last[p.StateOf] != p
		if earlier {
			p.Report.Assume("an earlier state of the run in %s, which counts", last[p.StateOf].Run.File)
		}
		return earlier
	})
}

// joinCopies merges logs that describe the same run.
func joinCopies(mains []*record.Part) []*record.Part {
	var kept []*record.Part
	started := map[time.Time][]*record.Part{}
	for _, p := range mains {
		same := started[p.Run.Info.Started]
		i := slices.IndexFunc(same, func(k *record.Part) bool { return sameRun(k.Run, p.Run) })
		if i >= 0 {
			p.Report.Assume("the same start and the same epochs as in %s: one run", same[i].Run.File)
			addMissing(&same[i].Run, p.Run)
			continue
		}
		kept = append(kept, p)
		if !p.Run.Info.Started.IsZero() && len(p.Run.Epochs) > 0 {
			started[p.Run.Info.Started] = append(same, p)
		}
	}
	return kept
}

// sameRun reports whether two runs that started at the same time have the same
// epochs.
func sameRun(a, b runs.Run) bool {
	return len(a.Epochs) > 0 && slices.EqualFunc(a.Epochs, b.Epochs, func(x, y runs.Epoch) bool { return x.Epoch == y.Epoch && x.Seconds == y.Seconds })
}

// joinCompanions adds companions to the runs to which they belong, and returns
// the others as runs.
func (m *merger) joinCompanions(companions, mains []*record.Part) []*record.Part {
	groups := map[string]*record.Part{}
	var own []*record.Part
	for _, p := range companions {
		folder := filepath.Dir(p.Run.File)
		if slices.Contains(splitNames(), filepath.Base(folder)) {
			for i := range p.Run.Curves {
				p.Run.Curves[i].Name = filepath.Base(folder) + "/" + p.Run.Curves[i].Name
			}
			folder = filepath.Dir(folder)
		}
		if to := m.runFolders[folder]; to != nil {
			p.Report.Assume("belongs to the run in %s", folder)
			to.Run.Spans = append(to.Run.Spans, p.Run.Spans...)
			continue
		}
		to, why := m.runOf(folder, mains)
		if to == nil && groups[folder] != nil {
			to, why = groups[folder], "of the same folder"
		}
		if to == nil {
			p.Run.Dir = folder
			groups[folder] = p
			own = append(own, p)
			if why != "" {
				p.Report.Assume("%s", why)
			}
			continue
		}
		p.Report.Assume("belongs to the run in %s (%s)", to.Run.File, why)
		addMissing(&to.Run, p.Run)
	}
	return own
}

// runOf returns the only run whose file is in folder or up to two folders
// above. If there is none or several, it returns nil and, for several, the
// reason.
func (m *merger) runOf(folder string, mains []*record.Part) (to *record.Part, why string) {
	if m.folders == nil {
		m.folders = map[string][]*record.Part{}
		for _, p := range mains {
			m.folders[filepath.Dir(p.Run.File)] = append(m.folders[filepath.Dir(p.Run.File)], p)
		}
	}
	for range 3 {
		here := m.folders[folder]
		switch {
		case len(here) == 1:
			return here[0], "the only run of " + folder
		case len(here) > 1:
			return nil, fmt.Sprintf("%s holds %d runs, and nothing says to which this belongs; it is a run by itself", folder, len(here))
		case folder == filepath.Clean(m.root), m.names.namesRun(filepath.Base(folder)):
			return nil, "" // the folder is named for a run of its own
		}
		folder = filepath.Dir(folder)
	}
	return nil, ""
}

// joinConfig adds configurations to the runs of their folders.
func joinConfig(configs, mains []*record.Part) {
	for _, c := range configs {
		n := 0
		for _, p := range mains {
			if filepath.Dir(p.Run.File) == filepath.Dir(c.Run.File) || p.Run.Dir == filepath.Dir(c.Run.File) {
				addMissing(&p.Run, runs.Run{Info: runs.Info{Config: c.Run.Info.Config}})
				n++
			}
		}
		c.Report.Assume("a configuration, of %s of its folder", english.Count(n, "run"))
	}
}

// joinAccounting adds a job's accounting to the job's run, and returns jobs
// without a log as runs. If a job has several runs, its time and energy belong
// to none of them, and its status is that of the last.
func joinAccounting(jobs, mains []*record.Part) []*record.Part {
	var own []*record.Part
	for _, job := range jobs {
		id := job.Run.Info.JobIDs[record.SlurmJob]
		var all, measured []*record.Part
		for _, p := range mains {
			if id == "" || p.Run.Info.JobIDs[record.SlurmJob] != id {
				continue
			}
			all = append(all, p)
			if len(p.Run.Epochs)+len(p.Run.Curves)+len(p.Run.Trials)+len(p.Run.Spans) > 0 || p.Run.WallSeconds > 0 {
				measured = append(measured, p)
			}
		}
		if len(all) == 0 {
			own = append(own, job)
			continue
		}
		if len(measured) == 0 { // they only say how the job ended
			measured = all
		}
		for _, p := range all {
			p.Report.AssumeOnce("job %s is accounted in %s", id, job.Run.File)
		}
		if len(measured) == 1 {
			addMissing(&measured[0].Run, job.Run)
			continue
		}
		common := runs.Info{Series: job.Run.Info.Series} // what holds for each run
		if job.Run.Info.Nodes == 1 {
			common.Nodes = 1
		}
		if job.Run.Info.Workers == 1 {
			common.Workers = 1
		}
		last := measured[len(measured)-1]
		addMissing(&last.Run, runs.Run{Info: runs.Info{Status: job.Run.Info.Status, Error: job.Run.Info.Error}})
		for _, p := range measured {
			addMissing(&p.Run, runs.Run{Info: common})
			p.Report.AssumeOnce("job %s holds %d runs; its time and energy are of all of them, and of none", id, len(measured))
			if job.Run.Info.Error != "" {
				p.Report.AssumeOnce("job %s ended as the last of its %d runs did, the one of %s", id, len(measured), last.Run.Dir)
			}
		}
	}
	return own
}

// joinStudies puts a run whose series comes from its path into the study of the
// runs in the same folder that state that series themselves. The study is a
// folder above that is not named for the series, which the path alone does not
// show.
func joinStudies(mains []*record.Part) {
	type place struct{ folder, series string }
	studies := map[place]string{}
	for _, p := range mains {
		if !p.SeriesFromPath {
			studies[place{filepath.Dir(p.Run.File), p.Run.Info.Series}] = p.Run.Info.Study
		}
	}
	for _, p := range mains {
		if study := studies[place{filepath.Dir(p.Run.File), p.Run.Info.Series}]; p.SeriesFromPath && study != "" && study != p.Run.Info.Study {
			p.Run.Info.Study = study
			p.Report.Assume("study %q: that of series %q in the same folder", study, p.Run.Info.Series)
		}
	}
}

// attachProblems gives each run the problems of its file, by line if the file
// has several runs.
func attachProblems(mains []*record.Part) {
	byFile := map[*record.Report][]*record.Part{}
	for _, p := range mains {
		byFile[p.Report] = append(byFile[p.Report], p)
	}
	for report, parts := range byFile {
		for _, problem := range report.Problems() {
			to := parts[0]
			for _, p := range parts {
				if problem.Line >= p.Line && strings.HasPrefix(p.Run.File, problem.File) {
					to = p
				}
			}
			to.Run.Problems = append(to.Run.Problems, problem)
		}
	}
}
