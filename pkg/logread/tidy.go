package logread

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"

	"lockstep/pkg/logread/internal/tidy"
	"lockstep/pkg/runs"
)

// The kinds of rows. The argument kind of Rows, Tidy and Write is one of them.
const (
	Epochs = "epochs" // one row per value of an epoch or of the complete run
	Steps  = "steps"  // one row per value of a rank's step; only for run folders
	Curves = "curves" // one row per point of a curve: TensorBoard tags, columns with a value per step
	Trials = "trials" // one row per measured throughput, per standard deviation and per time of an all-reduce
	Spans  = "spans"  // two rows per span of a trace: its start and its duration
	All    = "all"    // the rows of all kinds
)

// Kinds returns the kinds of rows.
func Kinds() []string { return []string{Epochs, Steps, Curves, Trials, Spans, All} }

// The formats of Write.
const (
	FormatCSV  = "csv"
	FormatJSON = "json"
)

// Formats returns the formats of Write.
func Formats() []string { return []string{FormatCSV, FormatJSON} }

// Row is one measured value in tidy form, so that one table can hold the logs
// of any program. Values that were not measured have no row.
type Row struct {
	Run     string // path of the run folder or file, beginning with the path as the caller gave it
	Series  string
	Workers int // world size
	Seed    int64
	Rank    int    // rank of a step, a curve or a span; -1 if the value is for all ranks
	Epoch   int    // number of the epoch, from 1; 0 if the value belongs to no epoch
	Step    int    // number of the step, trial or span, from 1; for curves as logged; bytes of an all-reduce; -1 if the value has none
	Name    string // name of the value with its unit (seconds, iou, …); for curves as logged
	Value   float64
}

// Rows reads the runs in and below each path, which [runs.LocateLogs] resolves,
// and calls use for each of their values, always in the same order. The runs
// are in the order of Read. Within a run, the order is: epochs, values of the
// complete run (those of its test have names that begin with test_), steps by
// rank, curves, trials, spans.
//
// kind is one of Kinds. Values that were not measured have no row. NaN in a
// curve is a value, since it was logged. A run that is below two of the paths
// is read once. Rows returns the problems that Read returns and, for Steps, also
// the problems of single values in the lines of steps. A problem also states if the
// losses of a series are not real ([runs.Info].Unreal). If use returns an error,
// Rows stops and returns this error.
func Rows(kind string, paths []string, use func(Row) error) ([]runs.Problem, error) {
	return Options{}.Rows(context.Background(), kind, paths, use)
}

// Rows is like the function Rows, with options.
func (o Options) Rows(ctx context.Context, kind string, paths []string, use func(Row) error) ([]runs.Problem, error) {
	read, problems, err := o.readNamedRuns(ctx, kind, paths)
	if err != nil {
		return problems, err
	}
	err = emitRuns(ctx, read, kind, func(r tidy.Row) error { return use(Row(r)) }, &problems)
	return problems, err
}

// namedRun is a run and the name that its rows have in Row.Run.
type namedRun struct {
	runs.Run
	name string
}

// readNamedRuns returns an error if kind is not one of Kinds.
func (o Options) readNamedRuns(ctx context.Context, kind string, paths []string) (read []namedRun, problems []runs.Problem, err error) {
	if !slices.Contains(Kinds(), kind) {
		return nil, nil, fmt.Errorf("read rows: unknown kind of rows %q; use one of %s", kind, strings.Join(Kinds(), ", "))
	}
	if len(paths) == 0 {
		return nil, nil, errors.New("read rows: no path given; name a folder of logs such as logs/demo")
	}
	seen, all := map[string]bool{}, &Logs{}
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, problems, fmt.Errorf("read rows: %w", err)
		}
		logs := &Logs{templates: all.templates, columns: all.columns, headers: all.headers}
		if err := o.readInto(ctx, logs, place); err != nil {
			return nil, problems, err
		}
		all.templates, all.columns, all.headers = logs.templates, logs.columns, logs.headers
		if len(logs.Runs) == 0 {
			addProblem(&problems, runs.Problem{File: place, Reason: "no runs: expected run folders (with run.json) or logs of other programs; lockstep read --explain shows why each file was not read"})
		}
		for _, run := range logs.Runs {
			if !seen[run.Dir] {
				seen[run.Dir] = true
				read = append(read, namedRun{run, displayName(path, place, run.Dir)})
				all.Runs = append(all.Runs, run)
			}
		}
		for _, p := range logs.Problems {
			addProblem(&problems, p) // the same problem may belong to a run that was read already
		}
	}
	if err := cmp.Or(all.checkTemplatesUsed(o), all.checkColumnsUsed(o), all.rejectAssumptions(o)); err != nil {
		return nil, problems, err
	}
	SeparateSeries(all.Runs)
	for i := range read {
		read[i].Info.Series = all.Runs[i].Info.Series
	}
	return read, problems, nil
}

// reportUnrealScores appends a problem for each series whose losses and scores are not those of a
// real training, for example because the workers did not communicate.
func reportUnrealScores(problems *[]runs.Problem, read []namedRun) {
	var series []string
	for _, run := range read {
		if name := run.Info.Series; run.Info.Unreal != "" && !slices.Contains(series, name) {
			series = append(series, name)
			addProblem(problems, runs.Problem{File: run.Dir, Reason: fmt.Sprintf("losses and scores of %s with more than 1 worker are not real, only its times are: %s", name, run.Info.Unreal)})
		}
	}
}

func addProblem(list *[]runs.Problem, p runs.Problem) {
	if !slices.Contains(*list, p) {
		*list = append(*list, p)
	}
}

// emitRuns calls use for the rows of all runs, and appends problems. kind is one of Kinds.
func emitRuns(ctx context.Context, read []namedRun, kind string, use func(tidy.Row) error, problems *[]runs.Problem) error {
	if kind != Trials && kind != Spans {
		reportUnrealScores(problems, read)
	}
	for _, run := range read {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := tidy.NewEmitter(run.Run, run.name, use, func(p runs.Problem) { addProblem(problems, p) })
		for _, part := range []struct {
			kind string
			emit func() error
		}{{Epochs, e.EmitEpochs}, {Steps, e.EmitSteps}, {Curves, e.EmitCurves}, {Trials, e.EmitTrials}, {Spans, e.EmitSpans}} {
			if kind != part.kind && kind != All {
				continue
			}
			if err := part.emit(); err != nil {
				return fmt.Errorf("read rows of %s: %w", run.name, err)
			}
		}
	}
	return nil
}

// displayName returns the name of the run in dir: the path that the caller
// passed, followed by the path of dir relative to root, the folder to which
// path resolves.
func displayName(path, root, dir string) string {
	rest, err := filepath.Rel(root, dir)
	if nth, ok := strings.CutPrefix(dir, root+"#"); ok { // the n-th run of a file that the caller named
		return filepath.ToSlash(path) + "#" + nth
	}
	if err != nil || strings.HasPrefix(rest, "..") { // the caller named run.json instead of its folder
		return filepath.ToSlash(filepath.Dir(path))
	}
	return filepath.ToSlash(filepath.Join(path, rest))
}

// Tidy returns the values of Rows as a DataFrame in memory, with the columns run, series, workers,
// seed, rank, epoch, step, name and value. rank, epoch and step are NaN if they do not apply.
func Tidy(kind string, paths ...string) (dataframe.DataFrame, []runs.Problem, error) {
	return Options{}.Tidy(context.Background(), kind, paths...)
}

// Tidy is like the function Tidy, with options.
func (o Options) Tidy(ctx context.Context, kind string, paths ...string) (dataframe.DataFrame, []runs.Problem, error) {
	var run, ser, rank, epoch, step, name []string
	var workers, seed []int
	var values []float64
	problems, err := o.Rows(ctx, kind, paths, func(r Row) error {
		a, b, c := tidy.Row(r).FormatPosition("NaN")
		run, ser, rank, epoch, step, name = append(run, r.Run), append(ser, r.Series), append(rank, a), append(epoch, b), append(step, c), append(name, r.Name)
		workers, seed, values = append(workers, r.Workers), append(seed, int(r.Seed)), append(values, r.Value)
		return nil
	})
	if err != nil {
		return dataframe.DataFrame{}, problems, err
	}
	table := dataframe.New(
		series.New(run, series.String, "run"), series.New(ser, series.String, "series"),
		series.New(workers, series.Int, "workers"), series.New(seed, series.Int, "seed"),
		series.New(rank, series.Int, "rank"), series.New(epoch, series.Int, "epoch"), series.New(step, series.Int, "step"),
		series.New(name, series.String, "name"), series.New(values, series.Float, "value"),
	)
	return table, problems, table.Err
}

// Write writes the values of Rows to w in one of Formats. If rank, epoch or
// step does not apply, its cell is empty in CSV, and null in JSON. CSV begins
// with a header; JSON is an array of objects, one per line. Floating-point values
// are written without loss of precision.
func Write(w io.Writer, format, kind string, paths ...string) ([]runs.Problem, error) {
	return Options{}.Write(context.Background(), w, format, kind, paths...)
}

// Write is like the function Write, with options.
func (o Options) Write(ctx context.Context, w io.Writer, format, kind string, paths ...string) ([]runs.Problem, error) {
	if !slices.Contains(Formats(), format) {
		return nil, fmt.Errorf("write rows: unknown format %q; use one of %s, and convert the CSV to other formats, for example with pandas", format, strings.Join(Formats(), ", "))
	}
	read, problems, err := o.readNamedRuns(ctx, kind, paths)
	if err != nil {
		return problems, err
	}
	b := bufio.NewWriterSize(w, 1<<16)
	written := false
	rows := func(use func(tidy.Row) error) error {
		return emitRuns(ctx, read, kind, func(r tidy.Row) error {
			written = true
			return use(r)
		}, &problems)
	}
	switch format {
	case FormatCSV:
		err = tidy.WriteCSV(b, rows)
	case FormatJSON:
		err = tidy.WriteJSON(b, rows)
	}
	if !written && len(read) > 0 && err == nil {
		for _, path := range paths {
			addProblem(&problems, runs.Problem{File: path, Reason: fmt.Sprintf("the runs have no values of the kind %q; --what %s prints every value that was read", kind, All)})
		}
	}
	return problems, errors.Join(err, b.Flush())
}
