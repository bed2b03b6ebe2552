package merge

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/trace"
	"lockstep/pkg/runs"
)

// merger merges parts into runs, since several files may describe one run. It
// applies these rules in order:
//
//   - A run folder of this project is one run. The traces in it become its
//     spans. If the program is not Lockstep, the values in its other files are
//     added to the run, and the logs of the workers are the ranks of the run.
//   - The files of the ranks of a run are one run: those that differ only in the
//     {rank} of a pattern, or in a number after rank, worker, gpu or task that is
//     a rank (see joinRanks). So are files that have the lines of several ranks each
//     and together those of all (see joinNodes).
//   - Of several states of one run (the trainer_state.json of each checkpoint),
//     only the last counts.
//   - Two logs with the same start time and the same epochs are one run
//     (out.log and the job's stdout). Values that only the second log has are
//     added to the first.
//   - A companion (TensorBoard event files, traces) belongs to the only run in
//     its folder, in the parent folder, or in the grandparent folder. But a
//     folder whose name has a worker count or a repeat number is a separate
//     run. If no such run exists, the companions of a folder form one run,
//     together with those in its subfolders train/ and validation/.
//   - A configuration file adds settings that the runs of its folder lack, and a
//     job script their workers and nodes.
//   - The accounting of a job belongs to the run whose file name has the job's
//     number. If no such run exists, it forms a run.
type merger struct {
	patterns   func(file string) []pattern.Pattern // those that apply to a file, in order of precedence
	root       string                              // the path that is read; its parent folders are not searched
	folders    map[string][]*record.Part           // principal parts by folder
	runFolders map[string]*record.Part             // parts of run folders by path
	ranks      map[*record.Part]rankSet            // ranks whose files form the part
	matched    map[*record.Part]pattern.Match      // what the pattern that matched the file states
}

// Merge merges the parts of all files in and below root into runs, and returns the runs in the
// order of their first parts. patterns returns the patterns of the user that apply to a file,
// in order of precedence.
func Merge(parts []*record.Part, root string, patterns func(file string) []pattern.Pattern) []runs.Run {
	m := &merger{patterns: patterns, root: root}
	return m.merge(parts)
}

// patternMatchOf returns what a pattern states about p's file, or a match without
// claims and with rank -1 if no pattern matches.
func (m *merger) patternMatchOf(p *record.Part) pattern.Match {
	if t, ok := m.matched[p]; ok {
		return t
	}
	return pattern.Match{Rank: -1}
}

// merge merges the parts into runs and returns the runs in the order of their
// first parts.
func (m *merger) merge(parts []*record.Part) []runs.Run {
	m.runFolders, m.matched = map[string]*record.Part{}, map[*record.Part]pattern.Match{}
	for _, p := range parts {
		if p.Role == record.RunFolder {
			m.runFolders[filepath.Clean(p.Report.Path)] = p
		}
	}
	parts = m.joinRunFolders(parts)
	for _, p := range parts {
		if p.Role != record.RunFolder {
			m.applyPattern(p)
		}
		if p.Role == record.Principal {
			identity.ClaimContent(p, runs.SourceContent, "")
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
	m.ranks = map[*record.Part]rankSet{}
	principals := m.joinRanks(m.joinNodes(of(record.Principal)))
	principals = removeEarlierStates(principals)
	principals = joinCopies(principals)
	companions := trace.Join(events.Join(of(record.Companion)))
	for _, p := range companions {
		identity.ClaimContent(p, runs.SourceContent, "")
	}
	companions = m.joinRanks(companions)
	principals = append(principals, m.joinCompanions(companions, principals)...)
	joinConfig(joinScripts(of(record.Config), principals), principals)
	jobs := of(record.Accounting)
	known := map[string]bool{}
	for _, p := range jobs {
		known[p.Run.Info.JobIDs[record.SlurmJobKey]] = true
	}
	for _, p := range principals {
		identity.SetJobID(p, known)
	}
	principals = append(principals, joinAccounting(jobs, principals)...)
	for _, p := range principals {
		ranks, ok := m.ranks[p]
		path := cmp.Or(ranks.path, p.Run.File)
		identity.ClaimNames(p, path, ok)
		if p.RanksProblem != "" {
			p.Report.AddProblem(p.Line, "%s", p.RanksProblem)
		}
		identity.Set(p, path)
		ranks.reportMissing(p)
	}
	for _, p := range slices.Concat(of(record.RunFolder), principals) {
		p.RemoveImpossibleTimes()
	}
	alignStudies(principals)
	addProblemsToRuns(principals)
	isMain := map[*record.Part]bool{}
	for _, p := range principals {
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

// applyPattern adds what the first pattern that matches the file of p states
// about the run.
func (m *merger) applyPattern(p *record.Part) {
	for _, one := range m.patterns(p.Report.Path) {
		t, ok := one.Match(p.Run.File)
		if !ok {
			continue
		}
		m.matched[p] = t
		p.Report.AddAssumptionOnce("the pattern %q matches", one)
		for _, c := range t.Claims {
			if c.Property != runs.PropertyRank || !p.RankKnown {
				p.Claims = append(p.Claims, c)
			}
		}
		for _, why := range t.Problems {
			p.Report.AddProblem(p.Line, "%s", why)
		}
		return
	}
}

// removeEarlierStates removes the parts that describe an earlier state of a run
// and returns the other parts.
func removeEarlierStates(principals []*record.Part) []*record.Part {
	last := map[string]*record.Part{}
	for _, p := range principals {
		if l := last[p.StateOf]; p.StateOf != "" && (l == nil || l.State < p.State) {
			last[p.StateOf] = p
		}
	}
	return slices.DeleteFunc(principals, func(p *record.Part) bool {
		earlier := p.StateOf != "" && last[p.StateOf] != p
		if earlier {
			p.Report.AddAssumption("an earlier state of the run; the state in %s counts", last[p.StateOf].Run.File)
		}
		return earlier
	})
}

// joinCopies merges logs that describe the same run and returns one part per
// run.
func joinCopies(principals []*record.Part) []*record.Part {
	var kept []*record.Part
	started := map[time.Time][]*record.Part{}
	for _, p := range principals {
		same := started[p.Run.Info.Started]
		i := slices.IndexFunc(same, func(k *record.Part) bool { return haveSameEpochs(k.Run, p.Run) })
		if i >= 0 {
			p.Report.AddAssumption("the same start and the same epochs as in %s: one run", same[i].Run.File)
			addMissingPart(same[i], p)
			continue
		}
		kept = append(kept, p)
		if !p.Run.Info.Started.IsZero() && len(p.Run.Epochs) > 0 {
			started[p.Run.Info.Started] = append(same, p)
		}
	}
	return kept
}

// haveSameEpochs reports whether two runs have the same epochs with the same
// durations, and their contents do not state different numbers of workers. The
// caller has checked that they started at the same time.
func haveSameEpochs(a, b runs.Run) bool {
	if a.Info.Workers > 0 && b.Info.Workers > 0 && a.Info.Workers != b.Info.Workers {
		return false
	}
	return len(a.Epochs) > 0 && slices.EqualFunc(a.Epochs, b.Epochs, func(x, y runs.Epoch) bool { return x.Epoch == y.Epoch && x.Seconds == y.Seconds })
}

// joinConfig adds the settings of configuration files to the runs in their
// folders. A number of workers in a file beside several runs that state
// different numbers can be that of only one of them, so it is not used.
func joinConfig(configs, principals []*record.Part) {
	for _, c := range configs {
		var beside []*record.Part
		for _, p := range principals {
			if filepath.Dir(p.Run.File) == filepath.Dir(c.Run.File) || p.Run.Dir == filepath.Dir(c.Run.File) {
				beside = append(beside, p)
			}
		}
		different := len(statedCounts(beside, true)) > 1
		for _, p := range beside {
			one := &record.Part{}
			identity.ClaimConfig(one, c.Run.Info.Config, runs.SourceConfig, filepath.Base(c.Run.File))
			for _, claim := range one.Claims {
				if different && (claim.Property == runs.PropertyWorkers || claim.Property == runs.PropertyNodes) {
					c.Report.AddAssumptionOnce("%s is not used: the runs in its folder state different numbers", claim)
					continue
				}
				p.Claims = append(p.Claims, claim)
			}
			p.Claims = append(p.Claims, c.Claims...)
			addMissingValues(&p.Run, runs.Run{Info: c.Run.Info})
		}
		c.Report.AddAssumption("a configuration for %s in its folder", english.Count(len(beside), "run"))
	}
}

// joinAccounting adds the accounting of each job to the job's run, and returns
// the jobs without a log, each of which becomes a run. If a job has several
// runs, none of them gets its time and energy, and only the last one gets its
// status.
func joinAccounting(jobs, principals []*record.Part) []*record.Part {
	var own []*record.Part
	for _, job := range jobs {
		id := job.Run.Info.JobIDs[record.SlurmJobKey]
		var all, measured []*record.Part
		for _, p := range principals {
			if id == "" || p.Run.Info.JobIDs[record.SlurmJobKey] != id {
				continue
			}
			all = append(all, p)
			if len(p.Run.Epochs)+len(p.Run.Curves)+len(p.Run.Trials)+len(p.Run.Spans)+len(p.Run.AllReduces) > 0 || p.Run.WallSeconds > 0 {
				measured = append(measured, p)
			}
		}
		if len(all) == 0 {
			if i := slices.IndexFunc(own, func(o *record.Part) bool { return id != "" && o.Run.Info.JobIDs[record.SlurmJobKey] == id }); i >= 0 {
				job.Report.AddAssumption("the accounting of job %s is also in %s", id, own[i].Run.File)
				identity.ClaimContent(job, runs.SourceContent, "")
				addMissingPart(own[i], job)
				continue
			}
			identity.ClaimContent(job, runs.SourceContent, "")
			own = append(own, job)
			continue
		}
		if len(measured) == 0 { // none has measurements: they only show how the job ended
			measured = all
		}
		for _, p := range all {
			p.Report.AddAssumptionOnce("the accounting of job %s is in %s", id, job.Run.File)
		}
		if len(measured) == 1 {
			identity.ClaimAccounting(job)
			addMissingPart(measured[0], job)
			continue
		}
		common := runs.Info{Series: job.Run.Info.Series} // values that are the same for each run of the job
		if job.Run.Info.Nodes == 1 {
			common.Nodes = 1
		}
		if job.Run.Info.Workers == 1 {
			common.Workers = 1
		}
		last := measured[len(measured)-1]
		addMissingValues(&last.Run, runs.Run{Info: runs.Info{Status: job.Run.Info.Status, Error: job.Run.Info.Error}})
		for _, p := range measured {
			one := &record.Part{Run: runs.Run{File: job.Run.File, Info: common}}
			identity.ClaimAccounting(one)
			addMissingPart(p, one)
			p.Report.AddAssumptionOnce("job %s has %d runs; its time and energy are assigned to none of them", id, len(measured))
			if job.Run.Info.Error != "" {
				p.Report.AddAssumptionOnce("the status of job %s is assigned to the last of its %d runs, %s", id, len(measured), last.Run.Dir)
			}
		}
	}
	return own
}

// alignStudies corrects studies that were guessed from paths. If the series of a
// run comes from its path, and the log of another run in the same folder states
// the same series, the run gets the study of that other run.
func alignStudies(principals []*record.Part) {
	type place struct{ folder, series string }
	studies := map[place]string{}
	for _, p := range principals {
		if !p.SeriesFromPath {
			studies[place{filepath.Dir(p.Run.File), p.Run.Info.Series}] = p.Run.Info.Study
		}
	}
	for _, p := range principals {
		if study := studies[place{filepath.Dir(p.Run.File), p.Run.Info.Series}]; p.SeriesFromPath && study != "" && study != p.Run.Info.Study {
			p.Run.Info.Study = study
			p.Report.AddAssumption("study %q: from the other runs of series %q in the same folder", study, p.Run.Info.Series)
		}
	}
}

// addProblemsToRuns adds the problems of each file to its run. If a file has
// several runs, the line of a problem determines its run.
func addProblemsToRuns(principals []*record.Part) {
	byFile := map[*record.Report][]*record.Part{}
	for _, p := range principals {
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
