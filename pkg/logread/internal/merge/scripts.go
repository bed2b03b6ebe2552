package merge

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// joinScripts adds what job scripts state about the runs in their folders, and returns the other
// configurations. If a folder has several scripts, a script belongs to the runs that it names (see
// launchline.Script.Matches). Otherwise the scripts must agree. A script is not used if its runs
// state different numbers of workers: it can be that of only one of them.
func joinScripts(configs, principals []*record.Part) []*record.Part {
	byFolder := map[string][]*record.Part{}
	var others []*record.Part
	for _, c := range configs {
		if _, ok := c.Source.(*launchline.Script); ok {
			folder := filepath.Dir(c.Run.File)
			byFolder[folder] = append(byFolder[folder], c)
		} else {
			others = append(others, c)
		}
	}
	for folder, scripts := range byFolder {
		joinScriptsOfFolder(scripts, slices.DeleteFunc(slices.Clone(principals), func(p *record.Part) bool { return filepath.Dir(p.Run.File) != folder }))
	}
	return others
}

// joinScriptsOfFolder adds what the job scripts of one folder state about the runs in it.
func joinScriptsOfFolder(scripts, principals []*record.Part) {
	runsOf := map[*record.Part][]*record.Part{} // by script that names them
	scriptsOf := map[*record.Part][]*record.Part{}
	for _, p := range principals {
		for _, s := range scripts {
			if s.Source.(*launchline.Script).Matches(s.Run.File, p.Run.File) {
				scriptsOf[p] = append(scriptsOf[p], s)
				runsOf[s] = append(runsOf[s], p)
			}
		}
	}
	used := map[*record.Part]int{}
	different := len(statedCounts(principals, true)) > 1
	for _, p := range principals {
		candidates := scriptsOf[p]
		if len(candidates) == 0 && !different {
			candidates = scripts
		}
		// A script was changed between jobs if the runs that it names state different numbers.
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(s *record.Part) bool { return len(statedCounts(runsOf[s], false)) > 1 })
		if s := claimScripts(p, candidates); s != nil {
			used[s]++
		}
	}
	for _, s := range scripts {
		if different && used[s] == 0 {
			s.Report.AddAssumption("the numbers of workers and nodes are not used: the runs in the folder state different numbers")
		}
		s.Report.AddAssumption("a job script for %s in its folder", english.Count(used[s], "run"))
	}
}

// statedCounts returns the different numbers of workers that the contents and the commands of parts,
// and their names if withNames is set, state.
func statedCounts(parts []*record.Part, withNames bool) map[int64]bool {
	counts := map[int64]bool{}
	for _, p := range parts {
		stated := &record.Part{Claims: slices.Clone(p.Claims)}
		if withNames {
			identity.ClaimNames(stated, p.Run.File, false)
		}
		if n, ok := identity.Choose(stated.Claims, runs.PropertyWorkers); ok {
			counts[n.Number] = true
		}
	}
	return counts
}

// claimScripts adds what the scripts state about p's run, and returns the script whose command
// states it. It returns nil if no script states anything or the scripts differ.
func claimScripts(p *record.Part, scripts []*record.Part) *record.Part {
	program := ""
	if i := slices.IndexFunc(p.Run.Info.Command, func(w string) bool { return strings.HasSuffix(w, ".py") }); i >= 0 {
		program = filepath.Base(p.Run.Info.Command[i])
	}
	var from *record.Part
	var launch launchline.Line
	for _, s := range scripts {
		l, ok := s.Source.(*launchline.Script).LaunchOf(p.Run.File, program)
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
		p.AddClaim(runs.PropertyWorkers, int64(launch.Workers), runs.SourceConfig, where)
	}
	if launch.Nodes > 0 {
		p.AddClaim(runs.PropertyNodes, int64(launch.Nodes), runs.SourceConfig, where)
	}
	stated := &record.Part{}
	identity.ClaimConfig(stated, launch.Settings, runs.SourceConfig, where)
	for _, c := range stated.Claims {
		switch c.Property {
		case runs.PropertySeed, runs.PropertyBatch, runs.PropertyModel:
			p.Claims = append(p.Claims, c)
		}
	}
	addMissingValues(&p.Run, runs.Run{Info: runs.Info{Config: launch.Settings}})
	return from
}
