package logread

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/textlog"
	"lockstep/pkg/logread/internal/trace"
	"lockstep/pkg/runs"
)

// formats returns the formats of other programs' logs, in the order in which a
// file is tried against them.
func formats() []record.Format {
	return slices.Concat([]record.Format{events.Format(), trace.Format()}, table.Formats(), []record.Format{textlog.Format()})
}

// formatNames returns the names of the formats.
func formatNames() []string {
	var names []string
	for _, k := range formats() {
		names = append(names, k.Name)
	}
	return names
}

// TrainingSeconds is the key of [runs.Info].Config for the seconds of the whole
// training, if a log has them.
const TrainingSeconds = record.TrainingSeconds

// Options configure how logs are read. The zero value reads as [Read] does.
type Options struct {
	// As are patterns of file names. The first that matches a file counts.
	As []Pattern
	// Progress is called with the number of bytes read so far and in all, by
	// one goroutine at a time.
	Progress func(read, total int64)
}

// Logs is the result of reading logs.
type Logs struct {
	Runs     []runs.Run     // in natural order of their paths
	Problems []runs.Problem // of all runs, and of files without a run
	Reports  Reports        // one per file
}

// Read reads every run in and under the paths, which are folders or files, in
// natural order of their paths (log_2.csv before log_10.csv). It returns an
// error if a path cannot be read at all, or if it is a single file of no known
// kind. Damaged runs are reported as problems.
func (o Options) Read(ctx context.Context, paths ...string) (*Logs, error) {
	logs := &Logs{}
	for _, path := range paths {
		if err := o.read(ctx, path, paths, logs); err != nil {
			return nil, err
		}
	}
	return logs, nil
}

// read reads one of the paths. all are the paths that are read together.
func (o Options) read(ctx context.Context, path string, all []string, logs *Logs) error {
	tasks, err := list(path)
	if err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	if err := skipCopies(tasks, all); err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	parts, err := readAll(ctx, tasks, o.Progress)
	if err != nil {
		return fmt.Errorf("read logs in %s: %w", path, err)
	}
	if len(tasks) == 1 && tasks[0].path == path && !tasks[0].folder {
		if r := tasks[0].report; r.CopyOf == "" && (r.Skipped != "" || r.Kind == "") {
			why := r.Skipped
			if why == noKind {
				why = "the file is of no known kind; expected a run folder or: " + strings.Join(formatNames(), ", ")
			}
			for _, p := range r.Unused {
				why = strings.TrimPrefix(why+"; "+p.Reason, "; ")
			}
			return fmt.Errorf("read logs in %s: %s", path, why)
		}
	}
	m := &merger{options: o, root: path}
	found := m.merge(parts)
	reported := map[string]bool{}
	for _, r := range logs.Reports {
		reported[r.Path] = true
	}
	for _, t := range tasks {
		if !reported[t.path] {
			logs.Reports = append(logs.Reports, reportOf(&t.report))
			logs.Problems = append(logs.Problems, t.report.Problems()...)
		}
	}
	seen := map[string]bool{}
	for _, run := range logs.Runs {
		seen[run.Dir] = true
	}
	for _, run := range found {
		if !seen[run.Dir] { // a path may be inside another
			logs.Runs = append(logs.Runs, run)
		}
	}
	return nil
}

// Explain reads the paths and returns what was done with each file.
func (o Options) Explain(ctx context.Context, paths ...string) (Reports, error) {
	logs, err := o.Read(ctx, paths...)
	if err != nil {
		return nil, err
	}
	return logs.Reports, nil
}

// Explain returns what Read does with each file in and under the paths.
func Explain(paths ...string) (Reports, error) {
	return Options{}.Explain(context.Background(), paths...)
}

// Read reads every run in and under path, as [Options.Read] does.
func Read(path string) ([]runs.Run, []runs.Problem, error) {
	logs, err := Options{}.Read(context.Background(), path)
	if err != nil {
		return nil, nil, err
	}
	return logs.Runs, logs.Problems, nil
}
