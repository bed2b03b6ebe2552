package logread

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// Several files may tell of one run. The rules, in this order:
//
//   - A run folder of ours stands for itself; the traces in it are its spans.
//   - Files that differ in the {rank} of a pattern alone are one run.
//   - Of several states of one run (trainer_state.json of each checkpoint) the
//     last counts.
//   - Two logs with the same start and the same epochs are one run (out.log and
//     the job's stdout): what the second has more is added to the first.
//   - A companion (TensorBoard files, traces) belongs to the one run of its
//     folder, else of the folder above, else of the one above that; but a folder
//     whose name tells workers or a repeat is a run's own. Companions
//     without such a run make one by themselves, all those of a folder
//     together; so do those in train/ and validation/ beside each other.
//   - A configuration file adds to the runs of its folder what they do not say.
//   - A job's accounting belongs to the run whose file is named by the job's id;
//     without such a run it is one by itself.
type role int

const (
	complete   role = iota // a run folder: nothing but spans is added to it
	principal              // a run by itself
	companion              // adds to a run, or is one with its like
	config                 // adds Info.Config to runs; never one by itself
	accounting             // adds to the run of the job Info.JobIDs["slurm"]
)

// part is what one file tells of one run.
type part struct {
	run        runs.Run
	role       role
	line       int  // where the run begins in its file; 0 for the whole of it
	seedTold   bool // run.Info.Seed is what the content says
	pathSeries bool // run.Info.Series is what the path says
	rateSums   bool // Epoch.SamplesPerSecond is of one rank: that of all is the sum
	// state and stateOf order several files that hold states of one run.
	state   int64
	stateOf string
	report  *Report
	events  *eventReader // of an event file: joinEvents makes the run of it
	trace   *trace       // of a trace: joinTraces makes the run of it

	told told // by a pattern; workers, seed and rank -1 where it does not say
}

// splitNames are folders in which Keras keeps a file for each part of the data.
func splitNames() []string { return []string{"train", "validation", "valid", "val", "eval", "test"} }

// merger makes runs of parts.
type merger struct {
	options Options
	names   *identifier
	root    string             // what was read: folders above it are not looked at
	folders map[string][]*part // principal runs by their folder
	ours    map[string]*part   // run folders
}

// merge gives the runs in the order of their first parts.
func (m *merger) merge(parts []*part) []runs.Run {
	m.names = identifiers()
	m.ours = map[string]*part{}
	for _, p := range parts {
		if p.role == complete {
			m.ours[filepath.Clean(p.report.Path)] = p
		}
		p.told = told{workers: -1, seed: -1, rank: -1}
		if p.role != complete {
			m.apply(p)
		}
	}
	of := func(r role) []*part {
		var found []*part
		for _, p := range parts {
			if p.role == r {
				found = append(found, p)
			}
		}
		return found
	}
	mains := m.joinRanks(of(principal))
	mains = lastStates(mains)
	mains = joinCopies(mains)
	mains = append(mains, m.joinCompanions(joinTraces(joinEvents(of(companion))), mains)...)
	joinConfig(of(config), mains)
	jobs := of(accounting)
	known := map[string]bool{}
	for _, p := range jobs {
		known[p.run.Info.JobIDs[slurmJob]] = true
	}
	for _, p := range mains {
		jobOf(p, known)
	}
	mains = append(mains, joinAccounting(jobs, mains)...)
	for _, p := range mains {
		m.names.run(p)
	}
	joinStudies(mains)
	attachProblems(mains)
	isMain := map[*part]bool{}
	for _, p := range mains {
		isMain[p] = true
	}
	var found []runs.Run
	for _, p := range parts {
		if p.role == complete || isMain[p] {
			found = append(found, p.run)
		}
	}
	return found
}

// apply applies the first pattern that matches.
func (m *merger) apply(p *part) {
	for _, pattern := range m.options.As {
		if t, ok := pattern.match(p.run.File); ok {
			p.told = t
			p.report.assume("the pattern %q matches", pattern)
			return
		}
	}
}

// joinRanks makes one run of the files that differ in their rank alone.
func (m *merger) joinRanks(mains []*part) []*part {
	type group struct {
		rest string
		line int // of the order in the file: the n-th run of each
	}
	groups := map[group][]*part{}
	var kept []*part
	nth := map[string]int{}
	for _, p := range mains {
		if p.told.rank < 0 {
			kept = append(kept, p)
			continue
		}
		nth[p.run.File]++
		g := group{p.told.rest, nth[p.run.File]}
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
			by[i] = p.run.Epochs
			if i > 0 {
				p.report.assume("a rank of the run in %s", first.run.File)
				addMissing(&first.run, p.run)
			}
		}
		first.run.Epochs = joinEpochs(by, first.rateSums)
		if first.run.Info.Workers == 0 {
			first.run.Info.Workers = len(ranks)
			first.report.assume("%s: a file a rank", english.Count(len(ranks), "worker"))
		}
	}
	return kept
}

// lastStates leaves out the earlier states of a run.
func lastStates(mains []*part) []*part {
	last := map[string]*part{}
	for _, p := range mains {
		if l := last[p.stateOf]; p.stateOf != "" && (l == nil || l.state < p.state) {
			last[p.stateOf] = p
		}
	}
	return slices.DeleteFunc(mains, func(p *part) bool {
		earlier := p.stateOf != "" && last[p.stateOf] != p
		if earlier {
			p.report.assume("an earlier state of the run in %s, which counts", last[p.stateOf].run.File)
		}
		return earlier
	})
}

// joinCopies makes one run of logs that tell of the same one.
func joinCopies(mains []*part) []*part {
	var kept []*part
	started := map[time.Time][]*part{}
	for _, p := range mains {
		same := started[p.run.Info.Started]
		i := slices.IndexFunc(same, func(k *part) bool { return sameRun(k.run, p.run) })
		if i >= 0 {
			p.report.assume("the same start and the same epochs as in %s: one run", same[i].run.File)
			addMissing(&same[i].run, p.run)
			continue
		}
		kept = append(kept, p)
		if !p.run.Info.Started.IsZero() && len(p.run.Epochs) > 0 {
			started[p.run.Info.Started] = append(same, p)
		}
	}
	return kept
}

// sameRun compares the epochs of two runs that started at the same time.
func sameRun(a, b runs.Run) bool {
	return len(a.Epochs) > 0 && slices.EqualFunc(a.Epochs, b.Epochs, func(x, y runs.Epoch) bool { return x.Epoch == y.Epoch && x.Seconds == y.Seconds })
}

// joinCompanions adds companions to the run they belong to. Those that belong
// to none are returned as runs.
func (m *merger) joinCompanions(companions, mains []*part) []*part {
	groups := map[string]*part{}
	var own []*part
	for _, p := range companions {
		folder := filepath.Dir(p.run.File)
		if slices.Contains(splitNames(), filepath.Base(folder)) {
			for i := range p.run.Curves {
				p.run.Curves[i].Name = filepath.Base(folder) + "/" + p.run.Curves[i].Name
			}
			folder = filepath.Dir(folder)
		}
		if to := m.ours[folder]; to != nil {
			p.report.assume("belongs to the run in %s", folder)
			to.run.Spans = append(to.run.Spans, p.run.Spans...)
			continue
		}
		to, why := m.runOf(folder, mains)
		if to == nil && groups[folder] != nil {
			to, why = groups[folder], "of the same folder"
		}
		if to == nil {
			p.run.Dir = folder
			groups[folder] = p
			own = append(own, p)
			if why != "" {
				p.report.assume("%s", why)
			}
			continue
		}
		p.report.assume("belongs to the run in %s (%s)", to.run.File, why)
		addMissing(&to.run, p.run)
	}
	return own
}

// runOf is the one run whose file lies in folder or up to two above; nil where
// there is none or several, which why then says.
func (m *merger) runOf(folder string, mains []*part) (to *part, why string) {
	if m.folders == nil {
		m.folders = map[string][]*part{}
		for _, p := range mains {
			m.folders[filepath.Dir(p.run.File)] = append(m.folders[filepath.Dir(p.run.File)], p)
		}
	}
	for range 3 {
		here := m.folders[folder]
		switch {
		case len(here) == 1:
			return here[0], "the only run of " + folder
		case len(here) > 1:
			return nil, fmt.Sprintf("%s holds %d runs, and nothing says to which this belongs; it is a run by itself", folder, len(here))
		case folder == filepath.Clean(m.root), m.names.tells(filepath.Base(folder)):
			return nil, "" // a folder that is named for a run of its own
		}
		folder = filepath.Dir(folder)
	}
	return nil, ""
}

// joinConfig adds configurations to the runs of their folders.
func joinConfig(configs, mains []*part) {
	for _, c := range configs {
		n := 0
		for _, p := range mains {
			if filepath.Dir(p.run.File) == filepath.Dir(c.run.File) || p.run.Dir == filepath.Dir(c.run.File) {
				addMissing(&p.run, runs.Run{Info: runs.Info{Config: c.run.Info.Config}})
				n++
			}
		}
		c.report.assume("a configuration, of %s of its folder", english.Count(n, "run"))
	}
}

// joinAccounting adds what a cluster accounted to the job's run; jobs without a
// log are returned as runs. Where a job holds several runs its time and energy
// are of none of them, and it ended as the last of them did.
func joinAccounting(jobs, mains []*part) []*part {
	var own []*part
	for _, job := range jobs {
		id := job.run.Info.JobIDs[slurmJob]
		var all, measured []*part
		for _, p := range mains {
			if id == "" || p.run.Info.JobIDs[slurmJob] != id {
				continue
			}
			all = append(all, p)
			if len(p.run.Epochs)+len(p.run.Curves)+len(p.run.Trials)+len(p.run.Spans) > 0 || p.run.WallSeconds > 0 {
				measured = append(measured, p)
			}
		}
		if len(all) == 0 {
			own = append(own, job)
			continue
		}
		if len(measured) == 0 { // they only say how it ended
			measured = all
		}
		for _, p := range all {
			p.report.assumeOnce("job %s is accounted in %s", id, job.run.File)
		}
		if len(measured) == 1 {
			addMissing(&measured[0].run, job.run)
			continue
		}
		common := runs.Info{Series: job.run.Info.Series} // of each of them
		if job.run.Info.Nodes == 1 {
			common.Nodes = 1
		}
		if job.run.Info.Workers == 1 {
			common.Workers = 1
		}
		last := measured[len(measured)-1]
		addMissing(&last.run, runs.Run{Info: runs.Info{Status: job.run.Info.Status, Error: job.run.Info.Error}})
		for _, p := range measured {
			addMissing(&p.run, runs.Run{Info: common})
			p.report.assumeOnce("job %s holds %d runs; its time and energy are of all of them, and of none", id, len(measured))
			if job.run.Info.Error != "" {
				p.report.assumeOnce("job %s ended as the last of its %d runs did, the one of %s", id, len(measured), last.run.Dir)
			}
		}
	}
	return own
}

// joinStudies puts a run whose path says its series into the study of the runs
// of that series in the same folder that say it themselves: a study is a folder
// above that is not named for the series, which the path alone cannot tell.
func joinStudies(mains []*part) {
	type place struct{ folder, series string }
	studies := map[place]string{}
	for _, p := range mains {
		if !p.pathSeries {
			studies[place{filepath.Dir(p.run.File), p.run.Info.Series}] = p.run.Info.Study
		}
	}
	for _, p := range mains {
		if study := studies[place{filepath.Dir(p.run.File), p.run.Info.Series}]; p.pathSeries && study != "" && study != p.run.Info.Study {
			p.run.Info.Study = study
			p.report.assume("study %q: that of series %q in the same folder", study, p.run.Info.Series)
		}
	}
}

// attachProblems gives each run those of its file, by line where a file holds
// several runs.
func attachProblems(mains []*part) {
	byFile := map[*Report][]*part{}
	for _, p := range mains {
		byFile[p.report] = append(byFile[p.report], p)
	}
	for report, parts := range byFile {
		for _, problem := range report.problems() {
			to := parts[0]
			for _, p := range parts {
				if problem.Line >= p.line && strings.HasPrefix(p.run.File, problem.File) {
					to = p
				}
			}
			to.run.Problems = append(to.run.Problems, problem)
		}
	}
}
