package logread

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"

	"lockstep/pkg/logread/internal/columnar"
	"lockstep/pkg/runs"
)

// The kinds of rows. The argument kind of Rows, Tidy and Write selects one of
// them.
const (
	Epochs = "epochs" // one row per value of an epoch or of the complete run
	Steps  = "steps"  // one row per value of a rank's step; only for run folders
	Curves = "curves" // one row per point of a curve: TensorBoard tags, columns with a value per step
	Trials = "trials" // one row per measured throughput, per standard deviation and per time of an all-reduce
	Spans  = "spans"  // two rows per span of a trace: its start and its duration
	All    = "all"    // the rows of all kinds
)

// Kinds returns the kinds of rows that Rows, Tidy and Write can return or
// write.
func Kinds() []string { return []string{Epochs, Steps, Curves, Trials, Spans, All} }

// The formats that Write can write.
const (
	FormatCSV     = "csv"
	FormatJSON    = "json"
	FormatParquet = "parquet" // Apache Parquet, compressed with zstd
	FormatArrow   = "arrow"   // the file format of Arrow IPC (Feather version 2)
)

// Formats returns the formats that Write can write.
func Formats() []string { return []string{FormatCSV, FormatJSON, FormatParquet, FormatArrow} }

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
// the problems of single values in the lines of steps. If use returns an error,
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
	err = emitRuns(ctx, read, kind, use, &problems)
	return problems, err
}

// namedRun is a run and the name that its rows have in Row.Run.
type namedRun struct {
	runs.Run
	name string
}

// readNamedRuns reads the runs in and below each path. It returns an error if
// kind is not one of Kinds.
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
	if err := all.checkTemplates(o); err != nil {
		return nil, problems, err
	}
	if err := all.checkColumns(o); err != nil {
		return nil, problems, err
	}
	if err := all.checkAssumptions(o); err != nil {
		return nil, problems, err
	}
	SeparateSeries(all.Runs)
	for i := range read {
		read[i].Info.Series = all.Runs[i].Info.Series
	}
	return read, problems, nil
}

// addProblem appends a problem to list unless list already contains it.
func addProblem(list *[]runs.Problem, p runs.Problem) {
	if !slices.Contains(*list, p) {
		*list = append(*list, p)
	}
}

// emitRuns calls use for the rows of all runs, and appends the problems that it
// finds while doing so.
func emitRuns(ctx context.Context, read []namedRun, kind string, use func(Row) error, problems *[]runs.Problem) error {
	for _, run := range read {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := emitRun(run.Run, run.name, kind, use, problems); err != nil {
			return fmt.Errorf("read rows of %s: %w", run.name, err)
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

// namedValue is a measured value with its name.
type namedValue struct {
	name string
	v    float64
}

// emitRun calls use for the rows of one run. kind is one of Kinds.
func emitRun(run runs.Run, name, kind string, use func(Row) error, problems *[]runs.Problem) error {
	g := rowEmitter{Row{Run: name, Series: run.Info.Series, Workers: run.Info.Workers, Seed: run.Info.Seed, Rank: -1, Step: -1}, use, problems}
	for _, part := range []struct {
		kind string
		give func(rowEmitter, runs.Run) error
	}{
		{Epochs, rowEmitter.emitEpochs},
		{Steps, rowEmitter.emitSteps},
		{Curves, rowEmitter.emitCurves},
		{Trials, rowEmitter.emitTrials},
		{Spans, rowEmitter.emitSpans},
	} {
		if kind == part.kind || kind == All {
			if err := part.give(g, run); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowEmitter calls use for the values of a run. row contains the fields that
// these values share.
type rowEmitter struct {
	row      Row
	use      func(Row) error
	problems *[]runs.Problem
}

// emitMeasured calls use for each value that is not NaN.
func (g rowEmitter) emitMeasured(values []namedValue) error {
	for _, x := range values {
		if !math.IsNaN(x.v) {
			if err := g.emit(x.name, x.v); err != nil {
				return err
			}
		}
	}
	return nil
}

// emit emits a row with the given name and value.
func (g rowEmitter) emit(name string, v float64) error {
	g.row.Name, g.row.Value = name, v
	return g.use(g.row)
}

// emitEpochs emits the values of each epoch and of the complete run.
func (g rowEmitter) emitEpochs(run runs.Run) error {
	for _, e := range run.Epochs {
		g.row.Epoch = e.Epoch
		if err := g.emitMeasured(epochValues(e)); err != nil {
			return err
		}
	}
	g.row.Epoch = 0
	return g.emitMeasured(runValues(run))
}

// emitSteps emits the values of each rank's steps. Logs of other programs have
// no steps.
func (g rowEmitter) emitSteps(run runs.Run) error {
	if run.Info.Schema == 0 { // logs of other programs have no steps
		return nil
	}
	ranks, err := runs.Ranks(run.Dir)
	if err != nil {
		return err
	}
	for _, g.row.Rank = range ranks {
		_, steps, problems, err := runs.ReadSteps(run.Dir, g.row.Rank)
		if err != nil {
			return err
		}
		for _, p := range problems { // reading the run checked only the form of the lines
			addProblem(g.problems, p)
		}
		for _, s := range steps {
			g.row.Epoch, g.row.Step = s.Epoch, s.Step
			if err := g.emitMeasured(stepValues(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// emitCurves emits the points of each curve.
func (g rowEmitter) emitCurves(run runs.Run) error {
	for _, c := range run.Curves {
		g.row.Rank = c.Rank
		for i, step := range c.Steps {
			if g.row.Step = int(step); g.row.Step < 0 {
				g.row.Step = -1
			}
			if err := g.emit(c.Name, c.Values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// emitTrials emits the throughput of each trial and the times of a benchmark of
// the all-reduce.
func (g rowEmitter) emitTrials(run runs.Run) error {
	for _, t := range run.Trials {
		g.row.Step = -1
		if err := g.emitMeasured([]namedValue{{t.Name + "_samples_per_second", t.Rate}, {t.Name + "_spread_samples_per_second", t.Spread}}); err != nil {
			return err
		}
		for i, rate := range t.Rates {
			g.row.Step = i + 1
			if err := g.emit(t.Name+"_trial_samples_per_second", rate); err != nil {
				return err
			}
		}
	}
	for _, a := range run.AllReduces {
		g.row.Step = int(a.Bytes)
		if err := g.emit("all_reduce_seconds", a.Seconds); err != nil {
			return err
		}
	}
	return nil
}

// emitSpans emits the start and the duration of each span. Both rows have the
// number of the span as their step, so that they can be matched.
func (g rowEmitter) emitSpans(run runs.Run) error {
	for i, s := range run.Spans {
		g.row.Rank, g.row.Step = s.Rank, i+1
		if err := g.emit(s.Kind+"_start_seconds/"+s.Name, s.Start); err != nil {
			return err
		}
		if err := g.emit(s.Kind+"_seconds/"+s.Name, s.Seconds); err != nil {
			return err
		}
	}
	return nil
}

// epochValues returns the values of an epoch under the names of the columns of
// epochs.csv.
func epochValues(e runs.Epoch) []namedValue {
	values := []namedValue{
		{"seconds", e.Seconds},
		{"samples_per_second", e.SamplesPerSecond},
		{"train_loss", e.TrainLoss},
		{"val_loss", e.ValLoss},
		{"iou", e.IoU},
		{"dice", e.Dice},
		{"val_seconds", e.ValSeconds},
		{"lr", e.LearningRate},
		{"accuracy", e.Accuracy},
		{"val_accuracy", e.ValAccuracy},
	}
	if e.Samples > 0 { // otherwise unknown
		counts := []namedValue{{"samples", float64(e.Samples)}, {"padding_samples", float64(e.PaddingSamples)}}
		values = slices.Insert(values, 1, counts...)
	}
	return values
}

// runValues returns the values of the complete run: test results, durations and
// energy.
func runValues(run runs.Run) []namedValue {
	var values []namedValue
	info := run.Info
	if t := info.Test; t != nil {
		values = []namedValue{
			{"test_loss", t.Loss},
			{"test_iou", t.IoU},
			{"test_dice", t.Dice},
			{"test_iou_constant", t.IoUConstant},
			{"test_dice_constant", t.DiceConstant},
			{"test_iou_untrained", t.IoUUntrained},
			{"test_dice_untrained", t.DiceUntrained},
			{"test_seconds", t.Seconds},
		}
		if t.Accuracy > 0 { // otherwise unknown, or the task has none
			values = append(values, namedValue{"test_accuracy", t.Accuracy})
		}
	}
	if s, ok := info.Config[TrainingSecondsKey].(float64); ok {
		values = append(values, namedValue{TrainingSecondsKey, s})
	}
	if run.WallSeconds > 0 { // otherwise unknown
		values = append(values, namedValue{"wall_seconds", run.WallSeconds})
	}
	if info.EnergyJoules > 0 {
		values = append(values, namedValue{"energy_joules", info.EnergyJoules})
	}
	return values
}

// stepValues returns the values of a step under the names in
// steps-<rank>.jsonl.
func stepValues(s runs.Step) []namedValue {
	return []namedValue{
		{"samples", float64(s.Samples)},
		{"data_seconds", s.Data},
		{"forward_seconds", s.Forward},
		{"backward_seconds", s.Backward},
		{"wait_seconds", s.Wait},
		{"all_reduce_seconds", s.AllReduce},
		{"optimizer_seconds", s.Optimizer},
		{"until_collective_seconds", s.UntilCollective},
		{"loss", s.Loss},
	}
}

// columnNames returns the names of the columns, in the order of the fields of
// Row.
func columnNames() []string {
	return []string{"run", "series", "workers", "seed", "rank", "epoch", "step", "name", "value"}
}

// formatCounts formats the row's rank, epoch and step. The text none replaces a
// number that does not apply.
func (r Row) formatCounts(none string) (rank, epoch, step string) {
	text := func(n, least int) string {
		if n < least {
			return none
		}
		return strconv.Itoa(n)
	}
	return text(r.Rank, 0), text(r.Epoch, 1), text(r.Step, 0)
}

// Tidy returns the values of Rows as a DataFrame with the columns run, series,
// workers, seed, rank, epoch, step, name and value. rank, epoch and step are
// NaN if they do not apply. All rows are in memory.
func Tidy(kind string, paths ...string) (dataframe.DataFrame, []runs.Problem, error) {
	return Options{}.Tidy(context.Background(), kind, paths...)
}

// Tidy is like the function Tidy, with options.
func (o Options) Tidy(ctx context.Context, kind string, paths ...string) (dataframe.DataFrame, []runs.Problem, error) {
	var run, ser, rank, epoch, step, name []string
	var workers, seed []int
	var values []float64
	problems, err := o.Rows(ctx, kind, paths, func(r Row) error {
		a, b, c := r.formatCounts("NaN")
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
// step does not apply, its cell is empty in CSV, and null in JSON, Parquet and
// Arrow. CSV begins with a header; JSON is an array of objects. Floating-point
// values are written without loss of precision.
func Write(w io.Writer, format, kind string, paths ...string) ([]runs.Problem, error) {
	return Options{}.Write(context.Background(), w, format, kind, paths...)
}

// Write is like the function Write, with options.
func (o Options) Write(ctx context.Context, w io.Writer, format, kind string, paths ...string) ([]runs.Problem, error) {
	if !slices.Contains(Formats(), format) {
		return nil, fmt.Errorf("write rows: unknown format %q; use one of %s", format, strings.Join(Formats(), ", "))
	}
	read, problems, err := o.readNamedRuns(ctx, kind, paths)
	if err != nil {
		return problems, err
	}
	b := bufio.NewWriterSize(w, 1<<16)
	written := false
	var rows rowSource = func(use func(Row) error) error {
		return emitRuns(ctx, read, kind, func(r Row) error {
			written = true
			return use(r)
		}, &problems)
	}
	switch format {
	case FormatCSV:
		err = writeCSV(b, rows)
	case FormatJSON:
		err = writeJSON(b, rows)
	case FormatParquet:
		err = columnar.WriteParquet(b, rows.emitColumnar)
	case FormatArrow:
		err = columnar.WriteArrow(b, rows.emitColumnar)
	}
	if !written && len(read) > 0 && err == nil {
		for _, path := range paths {
			addProblem(&problems, runs.Problem{File: path, Reason: fmt.Sprintf("the runs have no values of the kind %q; --what %s prints every value that was read", kind, All)})
		}
	}
	return problems, errors.Join(err, b.Flush())
}

// rowSource calls use for each row to write. It can be called several times,
// with the same rows each time.
type rowSource func(use func(Row) error) error

// emitColumnar calls use for each row, converted to the type of package
// columnar.
func (rows rowSource) emitColumnar(use func(columnar.Row) error) error {
	return rows(func(r Row) error { return use(columnar.Row(r)) })
}

// writeCSV writes the rows as CSV with a header.
func writeCSV(w *bufio.Writer, rows rowSource) error {
	cw := csv.NewWriter(w)
	if err := cw.Write(columnNames()); err != nil {
		return err
	}
	err := rows(func(r Row) error {
		rank, epoch, step := r.formatCounts("")
		return cw.Write([]string{
			r.Run, r.Series, strconv.Itoa(r.Workers), strconv.FormatInt(r.Seed, 10),
			rank, epoch, step, r.Name, strconv.FormatFloat(r.Value, 'g', -1, 64),
		})
	})
	cw.Flush()
	return errors.Join(err, cw.Error())
}

// writeJSON writes the rows as a JSON array with one object per line.
func writeJSON(w *bufio.Writer, rows rowSource) error {
	before := "[\n"
	err := rows(func(r Row) error {
		text, err := r.formatJSON()
		if err != nil {
			return err
		}
		_, err = w.WriteString(before + text)
		before = ",\n"
		return err
	})
	if err != nil {
		return err
	}
	end := "\n]\n"
	if before == "[\n" { // there was no row
		end = "[]\n"
	}
	_, err = w.WriteString(end)
	return err
}

// formatJSON returns the row as a JSON object on one line, with the keys in the
// order of the columns.
func (r Row) formatJSON() (string, error) {
	rank, epoch, step := r.formatCounts("null")
	texts := make([]string, 3)
	for i, s := range []string{r.Run, r.Series, r.Name} {
		quoted, err := json.Marshal(s)
		if err != nil {
			return "", err
		}
		texts[i] = string(quoted)
	}
	v := strconv.FormatFloat(r.Value, 'g', -1, 64)
	if math.IsInf(r.Value, 0) || math.IsNaN(r.Value) { // JSON has no such numbers
		v = strconv.Quote(v)
	}
	return fmt.Sprintf(`{"run":%s,"series":%s,"workers":%d,"seed":%d,"rank":%s,"epoch":%s,"step":%s,"name":%s,"value":%s}`,
		texts[0], texts[1], r.Workers, r.Seed, rank, epoch, step, texts[2], v), nil
}
