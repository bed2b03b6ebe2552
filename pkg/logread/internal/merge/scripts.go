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
// launchline.Script.Matches). Otherwise the scripts must agree.
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
	used := map[*record.Part]int{}
	different := map[string]bool{}
	for folder := range byFolder {
		different[folder] = hasDifferentCounts(principals, folder)
	}
	for _, p := range principals {
		scripts := byFolder[filepath.Dir(p.Run.File)]
		if own := slices.DeleteFunc(slices.Clone(scripts), func(s *record.Part) bool {
			return !s.Source.(*launchline.Script).Matches(s.Run.File, p.Run.File)
		}); len(own) > 0 {
			scripts = own
		} else if different[filepath.Dir(p.Run.File)] {
			continue // a script that names none of the runs can be that of only one of them
		}
		if s := claimScripts(p, scripts); s != nil {
			used[s]++
		}
	}
	for _, scripts := range byFolder {
		for _, s := range scripts {
			s.Report.AddAssumption("a job script for %s in its folder", english.Count(used[s], "run"))
		}
	}
	return others
}

// hasDifferentCounts reports whether the names of the runs in a folder state different numbers of
// workers.
func hasDifferentCounts(principals []*record.Part, folder string) bool {
	counts := map[int64]bool{}
	for _, p := range principals {
		if filepath.Dir(p.Run.File) == folder || p.Run.Dir == folder {
			named := &record.Part{}
			identity.ClaimNames(named, p.Run.File, false)
			if n, ok := identity.Choose(named.Claims, runs.PropertyWorkers); ok {
				counts[n.Number] = true
			}
		}
	}
	return len(counts) > 1
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
	return from
}
