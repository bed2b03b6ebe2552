package identity

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/merge"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// addFolderConfigs adds what configurations and job scripts state about the runs in their folders.
// If the runs of a folder have different numbers of workers or nodes, the numbers in a
// configuration can apply to only one of them and are not used. The numbers in a script are then
// used only for the runs that the script names; see [launchline.Script.MatchesLog].
func (d *Resolver) addFolderConfigs(configs, parts []*record.Part) {
	inFolder := func(file string) (found []*record.Part) {
		folder := filepath.Dir(file)
		for _, p := range parts {
			if filepath.Dir(p.Run.File) == folder || p.Run.Dir == folder {
				found = append(found, p)
			}
		}
		return found
	}
	scripts := map[string][]*record.Part{} // by folder
	for _, c := range configs {
		if _, ok := c.Source.(*launchline.Script); ok {
			folder := filepath.Dir(c.Run.File)
			scripts[folder] = append(scripts[folder], c)
		}
	}
	for _, all := range scripts {
		d.addFolderScripts(all, inFolder(all[0].Run.File))
	}
	for _, c := range configs {
		if c.Source != nil {
			continue
		}
		beside := inFolder(c.Run.File)
		different := len(d.statedWorkerCounts(beside, true)) > 1
		stated := settingsEvidence(c.Run.Info.Config, nil, runs.SourceConfig, filepath.Base(c.Run.File))
		for _, p := range beside {
			for _, e := range stated {
				if different && (e.Property == runs.PropertyWorkers || e.Property == runs.PropertyNodes) {
					c.Report.AddAssumptionOnce("%s is not used: the runs in its folder state different numbers", e)
					continue
				}
				p.Evidence = append(p.Evidence, e)
			}
			p.Evidence = append(p.Evidence, c.Evidence...)
			merge.FillMissingRunValues(&p.Run, runs.Run{Info: c.Run.Info})
		}
		c.Report.AddAssumption("a configuration for %s in its folder", english.FormatCount(len(beside), "run"))
	}
}

// statedWorkerCounts returns the different numbers of workers that the contents and commands of parts
// state, and their names too if withNames is set.
func (d *Resolver) statedWorkerCounts(parts []*record.Part, withNames bool) map[int64]bool {
	counts := map[int64]bool{}
	for _, p := range parts {
		all := slices.Clone(p.Evidence)
		if withNames {
			path := names.ParsePath(p.Run.File)
			all = append(all, d.evidenceFromNames(p.Run.File, path)...)
			if e, ok := path.NumberEvidence(); ok {
				all = append(all, e)
			}
		}
		if e, ok := strongestEvidence(all, runs.PropertyWorkers); ok {
			counts[e.Number] = true
		}
	}
	return counts
}

// addFolderScripts adds what the job scripts of one folder state about the runs in it. If several scripts
// may have started a run, they must agree.
func (d *Resolver) addFolderScripts(scripts, parts []*record.Part) {
	runsOf := map[*record.Part][]*record.Part{} // by script that names them
	scriptsOf := map[*record.Part][]*record.Part{}
	for _, p := range parts {
		for _, s := range scripts {
			if s.Source.(*launchline.Script).MatchesLog(s.Run.File, p.Run.File) {
				scriptsOf[p] = append(scriptsOf[p], s)
				runsOf[s] = append(runsOf[s], p)
			}
		}
	}
	used := map[*record.Part]int{}
	different := len(d.statedWorkerCounts(parts, true)) > 1
	for _, p := range parts {
		candidates := scriptsOf[p]
		if len(candidates) == 0 && !different {
			candidates = scripts
		}
		// A script was changed between jobs if the runs that it names state different numbers.
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(s *record.Part) bool { return len(d.statedWorkerCounts(runsOf[s], false)) > 1 })
		if s := addScriptEvidence(p, candidates); s != nil {
			used[s]++
		}
	}
	for _, s := range scripts {
		if different && used[s] == 0 {
			s.Report.AddAssumption("the numbers of workers and nodes are not used: the runs in the folder state different numbers")
		}
		s.Report.AddAssumption("a job script for %s in its folder", english.FormatCount(used[s], "run"))
	}
}

// addScriptEvidence adds what the scripts that may have started p's run state about it, and returns the one
// whose command states it. It returns nil if none states anything or the scripts differ.
func addScriptEvidence(p *record.Part, scripts []*record.Part) *record.Part {
	program := launchline.ParseCommand(p.Run.Info.Command).Script
	var from *record.Part
	var launch launchline.ScriptCommand
	for _, s := range scripts {
		l, ok := s.Source.(*launchline.Script).FindLaunch(p.Run.File, program)
		switch {
		case !ok:
			s.Report.AddAssumptionOnce("several commands start programs, and it is unknown which of them wrote %s", p.Run.File)
			return nil
		case from != nil && l.Workers != launch.Workers:
			s.Report.AddAssumptionOnce("several job scripts state different numbers of workers, and it is unknown which of them wrote %s", p.Run.File)
			return nil
		}
		from, launch = s, l
	}
	if from == nil {
		return nil
	}
	where := fmt.Sprintf("%s, line %d: %.100s", filepath.Base(from.Run.File), launch.Number, launch.Text)
	if launch.Workers > 0 {
		p.AddEvidence(runs.PropertyWorkers, int64(launch.Workers), launch.Kind, runs.SourceConfig, where)
	}
	if launch.Nodes > 0 {
		p.AddEvidence(runs.PropertyNodes, int64(launch.Nodes), record.Stated, runs.SourceConfig, where)
	}
	for _, e := range settingsEvidence(launch.Settings, nil, runs.SourceConfig, where) {
		if e.Property != runs.PropertyWorkers && e.Property != runs.PropertyNodes {
			p.Evidence = append(p.Evidence, e)
		}
	}
	merge.FillMissingRunValues(&p.Run, runs.Run{Info: runs.Info{Config: launch.Settings}})
	return from
}

// pairStdoutAndStderr exchanges the commands between the standard error and the standard output of a job:
// set -x writes the commands of a script to the standard error, where programs also report that
// memory ran out. The n-th command belongs to the n-th run, and how the job ended to the last one.
func pairStdoutAndStderr(parts []*record.Part) {
	stdouts, stderrs := map[string][]*record.Part{}, map[string][]*record.Part{}
	for _, p := range parts {
		if p.Role != record.Principal && p.Role != record.Unfinished {
			continue
		}
		ext := filepath.Ext(p.Run.File)
		stem := strings.TrimSuffix(p.Run.File, ext)
		switch ext {
		case ".err", ".error", ".stderr":
			stderrs[stem] = append(stderrs[stem], p)
		case ".out", ".output", ".stdout", ".log", ".txt":
			stdouts[stem] = append(stdouts[stem], p)
		}
	}
	add := func(to, from *record.Part) {
		merge.FillMissingRunValues(&to.Run, runs.Run{Info: runs.Info{Command: from.Run.Info.Command, Config: from.Run.Info.Config}})
		to.Evidence = append(to.Evidence, from.Evidence...)
		to.Report.AddAssumptionOnce("the command in %s", from.Run.File)
	}
	hasCommand := func(p *record.Part) bool { return len(p.Run.Info.Command) > 0 }
	for stem, stdout := range stdouts {
		stderr := stderrs[stem]
		if len(stderr) == 0 {
			continue
		}
		last := stdout[len(stdout)-1]
		if p := stderr[len(stderr)-1]; p.Role == record.Principal && last.Role == record.Principal && !record.HasValues(&p.Run) && len(p.Run.OutOfMemory) == 0 {
			p.Role = record.Unfinished
			p.Report.AddAssumption("belongs to the run in %s", last.Run.File)
			if !p.Resumes || last.Report.Resumptions == 0 { // otherwise the job was queued again and continued
				merge.FillMissingRunValues(&last.Run, runs.Run{Info: runs.Info{Status: p.Run.Info.Status, Error: p.Run.Info.Error}})
			}
		}
		if slices.ContainsFunc(stdout, hasCommand) {
			if !hasCommand(stderr[0]) && len(stderr) == 1 && last.Role == record.Unfinished {
				add(stderr[0], last)
			}
			continue
		}
		for i, p := range stdout[:min(len(stdout), len(stderr))] {
			if hasCommand(stderr[i]) && stderr[i].Role == record.Unfinished {
				add(p, stderr[i])
			}
		}
	}
}

// joinJobAccounting adds the accounting of each job to the job's run, and returns the jobs without a
// log, which become runs. If a job has several runs, none gets its time and energy, and only the
// last gets its status.
func joinJobAccounting(jobs, parts []*record.Part) (own []*record.Part) {
	for _, job := range jobs {
		id := job.Run.Info.JobIDs[record.SlurmJobKey]
		isOfJob := func(p *record.Part) bool { return id != "" && p.Run.Info.JobIDs[record.SlurmJobKey] == id }
		var all, measured []*record.Part
		for _, p := range parts {
			if !isOfJob(p) {
				continue
			}
			all = append(all, p)
			if record.HasValues(&p.Run) {
				measured = append(measured, p)
			}
		}
		if len(all) == 0 {
			addContentEvidence(job, runs.SourceContent, "")
			if i := slices.IndexFunc(own, isOfJob); i >= 0 {
				job.Report.AddAssumption("the accounting of job %s is also in %s", id, own[i].Run.File)
				merge.FillMissingPartValues(own[i], job)
			} else {
				own = append(own, job)
			}
			continue
		}
		if len(measured) == 0 { // none has measurements: they only show how the job ended
			measured = all
		}
		for _, p := range all {
			p.Report.AddAssumptionOnce("the accounting of job %s is in %s", id, job.Run.File)
		}
		if len(measured) == 1 {
			addJobAccounting(measured[0], job)
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
		merge.FillMissingRunValues(&last.Run, runs.Run{Info: runs.Info{Status: job.Run.Info.Status, Error: job.Run.Info.Error}})
		for _, p := range measured {
			addJobAccounting(p, &record.Part{Run: runs.Run{File: job.Run.File, Info: common}})
			p.Report.AddAssumptionOnce("job %s has %d runs; its time and energy are assigned to none of them", id, len(measured))
			if job.Run.Info.Error != "" {
				p.Report.AddAssumptionOnce("the status of job %s is assigned to the last of its %d runs, %s", id, len(measured), last.Run.Dir)
			}
		}
	}
	return own
}

// addJobAccounting adds a job's accounting to p's run. The job's name is part of its submit command.
func addJobAccounting(p, job *record.Part) {
	addContentEvidence(job, runs.SourceConfig, filepath.Base(job.Run.File))
	for i, e := range job.Evidence {
		if e.Property == runs.PropertySeries {
			job.Evidence[i].Origin.Source = runs.SourceCommand
		}
	}
	merge.FillMissingPartValues(p, job)
}
