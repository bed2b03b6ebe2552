// Package logread reads logs that training left, our own run folders and
// other programs' files alike, into [runs.Run].
//
// [Read] walks a path. A folder that holds run.json is a run of ours. A file
// is recognised by its content, unpacked where it is compressed with gzip or
// zstd, by the table in kinds. Files that belong to one run (a log and the
// TensorBoard files beside it) become one [runs.Run]; see merge.go for the
// rules. How many workers ran, the name of the series and the seed come from
// the content, else from the path, else from a configuration file; [Options]
// holds patterns that count more than all of these. Workers is 0 where nothing
// says it, and a problem says so.
//
// Nothing is guessed in silence: [Explain] gives a [Report] a file, of what
// was read, what was not, and what was assumed. What is of a known kind but
// cannot be used is a [runs.Problem] with its file and line.
//
// [Tidy] gives what was read as one table, a row a measured value.
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

// formats lists the formats of other programs' logs, in the order in which a
// file is tried against them.
func formats() []record.Format {
	return slices.Concat([]record.Format{events.Format(), trace.Format()}, table.Formats(), []record.Format{textlog.Format()})
}

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

// Options say how logs are read. The zero value reads as [Read] does.
type Options struct {
	// As says what names tell: the first pattern that matches a file counts.
	As []Pattern
	// Progress is told, from one goroutine at a time, how many bytes of files
	// are done of how many.
	Progress func(read, total int64)
}

// Logs is what was read.
type Logs struct {
	Runs     []runs.Run     // in natural order of their paths
	Problems []runs.Problem // those of all runs, and of files that gave none
	Reports  Reports        // one a file
}

// Read reads every run in and under the paths, folders or files, in natural
// order of their paths (log_2.csv before log_10.csv). An error means that a
// path could not be read at all, or that it is one file of no known kind; runs
// that are damaged are problems.
func (o Options) Read(ctx context.Context, paths ...string) (*Logs, error) {
	logs := &Logs{}
	for _, path := range paths {
		if err := o.read(ctx, path, paths, logs); err != nil {
			return nil, err
		}
	}
	return logs, nil
}

// read reads one of all the paths that are read together.
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
			logs.Reports = append(logs.Reports, Report(t.report))
			logs.Problems = append(logs.Problems, t.report.Problems()...)
		}
	}
	seen := map[string]bool{}
	for _, run := range logs.Runs {
		seen[run.Dir] = true
	}
	for _, run := range found {
		if !seen[run.Dir] { // a path may lie in another
			logs.Runs = append(logs.Runs, run)
		}
	}
	return nil
}

// Explain reads the paths and says of each file what was done with it.
func (o Options) Explain(ctx context.Context, paths ...string) (Reports, error) {
	logs, err := o.Read(ctx, paths...)
	if err != nil {
		return nil, err
	}
	return logs.Reports, nil
}

// Explain says of each file in and under the paths what Read does with it.
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
