package logread

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/rules"
	"lockstep/pkg/logread/internal/textlog"
	"lockstep/pkg/runs"
)

// FormatNames returns the names of the formats of other programs' logs that
// Read reads. Formats of text lines come last.
func FormatNames() []string {
	var names []string
	for _, k := range files.Formats(nil) {
		if k.Name != textlog.Format().Name {
			names = append(names, k.Name)
		}
	}
	return append(names, textlog.FormatNames()...)
}

// TrainingSecondsKey is the key in [runs.Info].Config of the duration of the
// complete training in seconds, if a log contains it.
const TrainingSecondsKey = record.TrainingSecondsKey

// TrainingEpochsKey is the key in [runs.Info].Config of the number of epochs, a
// float64, that were trained in [TrainingSecondsKey], if a log contains it. It has
// a fraction if the run ended in the middle of an epoch.
const TrainingEpochsKey = record.TrainingEpochsKey

// PlannedEpochs returns the number of epochs that the settings of a run state, such as the option
// --epochs or a column "epochs". ok is false if they state none.
func PlannedEpochs(r runs.Run) (n float64, ok bool) { return record.PlannedEpochs(r.Info.Config) }

// Options configures how logs are read. With the zero value, Options.Read works
// like [Read].
type Options struct {
	// As lists patterns of file names. The first pattern that matches a file
	// applies.
	As []Pattern
	// Lines lists templates of lines that are read in addition to the known
	// formats, such as
	//
	//	Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec
	//
	// They are tried before the known formats. The package documentation
	// describes their syntax and meaning. A template that matches no line is an
	// error.
	Lines []string
	// Columns lists mappings of the columns of tables (CSV and TSV) to fields, such as
	//
	//	workers=n_gpus,seconds=epoch_time
	//
	// A column is given by its name in the header or by its position from 1. The
	// fields are those of [ColumnFields]; any other name is a metric, which becomes
	// a curve. Columns that are not mapped are recognized by their names, as
	// ColumnFields lists them. A mapping that fits no file is an error.
	Columns []string
	// Strict refuses assumptions: Read returns an error that lists each property
	// of a run that is known only from a name, and how to state it with a pattern.
	Strict bool
	// Progress, if set, is called with the number of bytes read so far and the
	// total number of bytes. Calls do not overlap.
	Progress func(read, total int64)

	excerptBytes int64 // number of bytes of each file that are read; 0 means all
}

// Logs is the result of reading logs.
type Logs struct {
	Runs     []runs.Run     // in natural order of their paths
	Problems []runs.Problem // of all runs, and of files without a run
	Reports  Reports        // one per file
	// Notes states which series were separated, and why; see SeparateSeries.
	Notes []string

	templates []templateUse   // of Options.Lines
	columns   map[string]bool // mappings of Options.Columns that fit a file
	headers   []string        // the names of the columns of each table, with its path
}

// Read reads every run in and below the paths, which are folders or files. The
// runs are in natural order of their paths (log_2.csv before log_10.csv). It
// returns an error if a path cannot be read at all, or if a path is a file of
// unknown format. Damaged runs are reported as problems.
func (o Options) Read(ctx context.Context, paths ...string) (*Logs, error) {
	logs := &Logs{}
	if err := o.readInto(ctx, logs, paths...); err != nil {
		return nil, err
	}
	if err := cmp.Or(logs.checkTemplatesUsed(o), logs.checkColumnsUsed(o)); err != nil {
		return nil, err
	}
	logs.reportUnusedPatterns(o)
	if err := logs.rejectAssumptions(o); err != nil {
		return nil, err
	}
	logs.separateSeries()
	return logs, nil
}

// readInto adds what it reads to logs. It does not separate series.
func (o Options) readInto(ctx context.Context, logs *Logs, paths ...string) error {
	lines, columns, err := o.parseRules()
	if err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	for _, p := range findMisspelledFields(lines) {
		addProblem(&logs.Problems, p)
	}
	lists, err := files.List(paths...)
	if err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	files.SkipCopiesOfRuns(lists)
	finder := &rules.Finder{}
	for i, path := range paths {
		if err := files.SetRules(finder, lists[i], path, lines, columns); err != nil {
			return err
		}
		for _, t := range lists[i] {
			t.ExcerptBytes = o.excerptBytes
		}
		if err := o.readTasks(ctx, path, lists[i], logs); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) readTasks(ctx context.Context, path string, tasks []*files.Task, logs *Logs) error {
	parts, err := files.ReadAll(ctx, tasks, o.Progress)
	if err != nil {
		return fmt.Errorf("read logs in %s: %w", path, err)
	}
	var reports []*record.Report
	for _, t := range tasks {
		explainUnusedRules(t, len(o.Lines))
		logs.addTemplateUses(o, &t.Report)
		logs.addColumnUses(&t.Report)
		reports = append(reports, &t.Report)
	}
	if len(tasks) == 1 && tasks[0].Path == path && !tasks[0].Folder {
		if r := tasks[0].Report; r.CopyOf == "" && (r.Skipped != "" || r.Kind == "") {
			why := r.Skipped
			if hint, unknown := strings.CutPrefix(why, files.ReasonUnknownFormat); unknown {
				hint = cmp.Or(hint, "; lockstep read FILE --suggest proposes rules for logs of other programs")
				why = files.ReasonUnknownFormat + hint + "; expected a run folder or: " + strings.Join(FormatNames(), ", ")
			}
			for _, p := range r.Unused {
				why = strings.TrimPrefix(why+"; "+p.Reason, "; ")
			}
			if err := logs.checkTemplatesUsed(o); err != nil && len(tasks[0].Report.Templates) > 0 {
				return err
			}
			if err := logs.checkColumnsUsed(o); err != nil {
				return err
			}
			return fmt.Errorf("read logs in %s: %s", path, why)
		}
	}
	decider := identity.Resolver{Root: path, Patterns: o.patternsFor(tasks)}
	logs.addRunsAndReports(decider.IdentifyRuns(parts), reports)
	return nil
}

// addRunsAndReports adds the runs and reports of a path. It omits those that l already contains,
// because one path may contain another.
func (l *Logs) addRunsAndReports(found []runs.Run, reports []*record.Report) {
	known := map[string]bool{}
	for _, r := range l.Reports {
		known["report "+r.Path] = true
	}
	for _, run := range l.Runs {
		known["run "+run.Dir] = true
	}
	for _, r := range reports {
		if !known["report "+r.Path] {
			l.Reports = append(l.Reports, newReport(r))
			l.Problems = append(l.Problems, r.Problems()...)
		}
	}
	for _, run := range found {
		if !known["run "+run.Dir] {
			l.Runs = append(l.Runs, run)
		}
	}
}

// Explain reads the paths and reports for each file what was read, ignored and assumed.
func (o Options) Explain(ctx context.Context, paths ...string) (Reports, error) {
	logs, err := o.Read(ctx, paths...)
	if err != nil {
		return nil, err
	}
	return logs.Reports, nil
}

// Explain is like [Options.Explain] without options.
func Explain(paths ...string) (Reports, error) {
	return Options{}.Explain(context.Background(), paths...)
}

// Read reads every run in and below path, as [Options.Read] does.
func Read(path string) ([]runs.Run, []runs.Problem, error) {
	logs, err := Options{}.Read(context.Background(), path)
	if err != nil {
		return nil, nil, err
	}
	return logs.Runs, logs.Problems, nil
}
