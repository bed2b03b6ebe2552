package logread

import (
	"fmt"
	"path/filepath"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/runs"
)

// rejectAssumptions returns an error that lists each assumed property of the runs, and how to
// state it. It returns nil if nothing was assumed or the options allow assumptions.
func (l *Logs) rejectAssumptions(o Options) error {
	if !o.Strict {
		return nil
	}
	var lines []string
	n := 0
	listed := map[string]bool{}
	for _, run := range l.Runs {
		var what, values []string
		for _, property := range runs.Properties() {
			origin, ok := run.Origins[property]
			if !ok || !origin.Source.IsAssumed() {
				continue
			}
			value := formatProperty(run, property)
			what = append(what, fmt.Sprintf("%s %s, from %s", property, value, origin))
			values = append(values, string(property)+":"+strings.Trim(value, `"`))
		}
		if len(what) == 0 {
			continue
		}
		n += len(what)
		line := fmt.Sprintf("  %s: %s; state this with --as '%s=%s'", run.Dir, strings.Join(what, "; "), shortestUniquePattern(run, l.Runs), strings.Join(values, ","))
		if !listed[line] {
			listed[line] = true
			lines = append(lines, line)
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("read logs: %s refused (strict):\n%s", english.FormatCount(n, "assumption"), strings.Join(lines, "\n"))
}

// formatProperty returns the value of a run's property; a text is in quotes.
func formatProperty(run runs.Run, property runs.Property) string {
	switch property {
	case runs.PropertySeries:
		return `"` + run.Info.Series + `"`
	case runs.PropertyModel:
		return fmt.Sprintf(`"%v"`, run.Info.Config["model"])
	case runs.PropertyRank: // not in the run
		return fmt.Sprint(identity.RankFromPath(run.File))
	}
	return fmt.Sprint(map[runs.Property]int64{
		runs.PropertyWorkers: int64(run.Info.Workers), runs.PropertyNodes: int64(run.Info.Nodes), runs.PropertySeed: run.Info.Seed, runs.PropertyBatch: int64(run.Info.BatchPerWorker),
	}[property])
}

// shortestUniquePattern returns the part before the = of a pattern that matches only the file
// of run: the shortest end of its path that distinguishes it from the other runs' files.
func shortestUniquePattern(run runs.Run, all []runs.Run) string {
	path := filepath.ToSlash(run.File)
	pattern := filepath.Base(path)
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		unique := true
		for _, other := range all {
			file := filepath.ToSlash(other.File)
			unique = unique && (file == path || file != pattern && !strings.HasSuffix(file, "/"+pattern))
		}
		if name := filepath.Base(dir); unique || name == "." || name == "/" {
			break
		} else {
			pattern = name + "/" + pattern
		}
	}
	return strings.NewReplacer("=", "*", "{", "*", "}", "*").Replace(pattern)
}
