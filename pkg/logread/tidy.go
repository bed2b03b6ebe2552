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

// Which rows Rows, Tidy and Write give.
const (
	Epochs = "epochs" // a row a value of an epoch, and those of the run as a whole
	Steps  = "steps"  // a row a value of a step of a rank, of run folders
	Curves = "curves" // a row a point of a curve: TensorBoard's tags, columns by step
	Trials = "trials" // a row a measured throughput, and its spread
	Spans  = "spans"  // two rows a span of a trace: when it began and how long it took
	All    = "all"    // all of these
)

// Kinds lists what Rows, Tidy and Write give.
func Kinds() []string { return []string{Epochs, Steps, Curves, Trials, Spans, All} }

// Formats of Write.
const (
	FormatCSV     = "csv"
	FormatJSON    = "json"
	FormatParquet = "parquet" // Apache Parquet, compressed with zstd
	FormatArrow   = "arrow"   // the file format of Arrow IPC (Feather version 2)
)

// Formats lists those that Write knows.
func Formats() []string { return []string{FormatCSV, FormatJSON, FormatParquet, FormatArrow} }

// Row is one measured value: the tidy form, in which a table holds the logs of
// any program. A value that was not measured has no row.
type Row struct {
	Run     string // the path that was read, down to the run folder or the file
	Series  string
	Workers int // world size
	Seed    int64
	Rank    int    // of a step, a curve or a span; -1 where the value is of all ranks together
	Epoch   int    // from 1; 0 where the value is of no epoch
	Step    int    // over the whole run, from 1, of curves as logged; the number of a trial or a span, from 1; -1 where the value is of none
	Name    string // of the value, with its unit where it is ours: seconds, iou, …; of a curve as logged
	Value   float64
}

// Rows reads the runs in and under each path (where [runs.LocateLogs] finds
// it) and hands over their values, one at a time and always in the same order:
// runs as Read orders them; in a run the epochs, then what is of the run as a
// whole (its test, with names that begin with test_), then the steps by rank,
// the curves, the trials and the spans. what is one of Kinds. A value that was
// not measured has no row; of a curve NaN is a value as any other, for it was
// logged. A run that lies under two of the paths comes once. The problems are
// those of Read, and with Steps those of single values in their lines; the first error of use ends the reading and is returned.
func Rows(what string, paths []string, use func(Row) error) ([]runs.Problem, error) {
	return Options{}.Rows(context.Background(), what, paths, use)
}

// Rows is the function Rows with options.
func (o Options) Rows(ctx context.Context, what string, paths []string, use func(Row) error) ([]runs.Problem, error) {
	read, problems, err := o.named(ctx, what, paths)
	if err != nil {
		return problems, err
	}
	err = giveAll(ctx, read, what, use, &problems)
	return problems, err
}

// namedRun is a run with the name that rows give it.
type namedRun struct {
	runs.Run
	name string
}

// named reads the runs in and under each path.
func (o Options) named(ctx context.Context, what string, paths []string) (read []namedRun, problems []runs.Problem, err error) {
	if !slices.Contains(Kinds(), what) {
		return nil, nil, fmt.Errorf("read rows: %q is not known; use one of %s", what, strings.Join(Kinds(), ", "))
	}
	if len(paths) == 0 {
		return nil, nil, errors.New("read rows: no path given; name a folder of logs such as logs/demo")
	}
	seen := map[string]bool{}
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, problems, fmt.Errorf("read rows: %w", err)
		}
		logs, err := o.Read(ctx, place)
		if err != nil {
			return nil, problems, err
		}
		for _, run := range logs.Runs {
			if !seen[run.Dir] {
				seen[run.Dir] = true
				read = append(read, namedRun{run, shown(path, place, run.Dir)})
			}
		}
		for _, p := range logs.Problems {
			addProblem(&problems, p) // it may be of a run that was read before
		}
	}
	return read, problems, nil
}

// addProblem adds a problem that is not there yet.
func addProblem(to *[]runs.Problem, p runs.Problem) {
	if !slices.Contains(*to, p) {
		*to = append(*to, p)
	}
}

// giveAll hands over the rows of all runs, and adds the problems that come up
// meanwhile.
func giveAll(ctx context.Context, read []namedRun, what string, use func(Row) error, problems *[]runs.Problem) error {
	for _, run := range read {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := rowsOf(run.Run, run.name, what, use, problems); err != nil {
			return fmt.Errorf("read rows of %s: %w", run.name, err)
		}
	}
	return nil
}

// shown is the name of the run at dir: the path as it was given, and the way
// from there to the run.
func shown(path, place, dir string) string {
	rest, err := filepath.Rel(place, dir)
	if nth, ok := strings.CutPrefix(dir, place+"#"); ok { // the n-th run of the one file that was named
		return filepath.ToSlash(path) + "#" + nth
	}
	if err != nil || strings.HasPrefix(rest, "..") { // run.json itself was named
		return filepath.ToSlash(filepath.Dir(path))
	}
	return filepath.ToSlash(filepath.Join(path, rest))
}

// value is a measured value and its name.
type value struct {
	name string
	v    float64
}

// rowsOf hands over the rows of one run.
func rowsOf(run runs.Run, name, what string, use func(Row) error, problems *[]runs.Problem) error {
	g := giver{Row{Run: name, Series: run.Info.Series, Workers: run.Info.Workers, Seed: run.Info.Seed, Rank: -1, Step: -1}, use, problems}
	for _, part := range []struct {
		what string
		give func(giver, runs.Run) error
	}{
		{Epochs, giver.epochs},
		{Steps, giver.steps},
		{Curves, giver.curves},
		{Trials, giver.trials},
		{Spans, giver.spans},
	} {
		if what == part.what || what == All {
			if err := part.give(g, run); err != nil {
				return err
			}
		}
	}
	return nil
}

// giver hands over values of a run: row holds what they have in common.
type giver struct {
	row      Row
	use      func(Row) error
	problems *[]runs.Problem
}

// measured hands over the values that were measured.
func (g giver) measured(values []value) error {
	for _, x := range values {
		if !math.IsNaN(x.v) {
			if err := g.give(x.name, x.v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g giver) give(name string, v float64) error {
	g.row.Name, g.row.Value = name, v
	return g.use(g.row)
}

func (g giver) epochs(run runs.Run) error {
	for _, e := range run.Epochs {
		g.row.Epoch = e.Epoch
		if err := g.measured(epochValues(e)); err != nil {
			return err
		}
	}
	g.row.Epoch = 0
	return g.measured(runValues(run))
}

func (g giver) steps(run runs.Run) error {
	if run.Info.Schema == 0 { // another program's log has none
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
		for _, p := range problems { // reading the run looked at the form of the lines alone
			addProblem(g.problems, p)
		}
		for _, s := range steps {
			g.row.Epoch, g.row.Step = s.Epoch, s.Step
			if err := g.measured(stepValues(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g giver) curves(run runs.Run) error {
	for _, c := range run.Curves {
		g.row.Rank = c.Rank
		for i, step := range c.Steps {
			if g.row.Step = int(step); g.row.Step < 0 {
				g.row.Step = -1
			}
			if err := g.give(c.Name, c.Values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g giver) trials(run runs.Run) error {
	for _, t := range run.Trials {
		g.row.Step = -1
		if err := g.measured([]value{{t.Name + "_samples_per_second", t.Rate}, {t.Name + "_spread_samples_per_second", t.Spread}}); err != nil {
			return err
		}
		for i, rate := range t.Rates {
			g.row.Step = i + 1
			if err := g.give(t.Name+"_trial_samples_per_second", rate); err != nil {
				return err
			}
		}
	}
	return nil
}

// spans numbers the spans of a run, so that the two rows of one belong together.
func (g giver) spans(run runs.Run) error {
	for i, s := range run.Spans {
		g.row.Rank, g.row.Step = s.Rank, i+1
		if err := g.give(s.Kind+"_start_seconds/"+s.Name, s.Start); err != nil {
			return err
		}
		if err := g.give(s.Kind+"_seconds/"+s.Name, s.Seconds); err != nil {
			return err
		}
	}
	return nil
}

// epochValues are those of a row of epochs.csv, by its names.
func epochValues(e runs.Epoch) []value {
	values := []value{
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
	if e.Samples > 0 { // else the log does not tell
		counts := []value{{"samples", float64(e.Samples)}, {"padding_samples", float64(e.PaddingSamples)}}
		values = slices.Insert(values, 1, counts...)
	}
	return values
}

// runValues are those of the run as a whole.
func runValues(run runs.Run) []value {
	var values []value
	info := run.Info
	if t := info.Test; t != nil {
		values = []value{
			{"test_loss", t.Loss},
			{"test_iou", t.IoU},
			{"test_dice", t.Dice},
			{"test_iou_constant", t.IoUConstant},
			{"test_dice_constant", t.DiceConstant},
			{"test_iou_untrained", t.IoUUntrained},
			{"test_dice_untrained", t.DiceUntrained},
			{"test_seconds", t.Seconds},
		}
		if t.Accuracy > 0 { // else of a task without, or not known
			values = append(values, value{"test_accuracy", t.Accuracy})
		}
	}
	if s, ok := info.Config[TrainingSeconds].(float64); ok {
		values = append(values, value{TrainingSeconds, s})
	}
	if run.WallSeconds > 0 { // else unknown
		values = append(values, value{"wall_seconds", run.WallSeconds})
	}
	if info.EnergyJoules > 0 {
		values = append(values, value{"energy_joules", info.EnergyJoules})
	}
	return values
}

// stepValues are those of a line of steps-<rank>.jsonl, by its names.
func stepValues(s runs.Step) []value {
	return []value{
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

// columnNames are those of a Row, in its order.
func columnNames() []string {
	return []string{"run", "series", "workers", "seed", "rank", "epoch", "step", "name", "value"}
}

// counts are the row's rank, epoch and step as texts; none where they do not apply.
func (r Row) counts(none string) (rank, epoch, step string) {
	text := func(n, least int) string {
		if n < least {
			return none
		}
		return strconv.Itoa(n)
	}
	return text(r.Rank, 0), text(r.Epoch, 1), text(r.Step, 0)
}

// Tidy is Rows as a DataFrame with the columns run, series, workers, seed,
// rank, epoch, step, name and value; rank, epoch and step are NaN where they do
// not apply. It holds all rows in memory.
func Tidy(what string, paths ...string) (dataframe.DataFrame, []runs.Problem, error) {
	return Options{}.Tidy(context.Background(), what, paths...)
}

// Tidy is the function Tidy with options.
func (o Options) Tidy(ctx context.Context, what string, paths ...string) (dataframe.DataFrame, []runs.Problem, error) {
	var run, ser, rank, epoch, step, name []string
	var workers, seed []int
	var values []float64
	problems, err := o.Rows(ctx, what, paths, func(r Row) error {
		a, b, c := r.counts("NaN")
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

// Write writes Rows to w as they come, in a format of Formats: as CSV with a
// header, an empty cell where rank, epoch or step does not apply; as a JSON
// array of objects with the same names and null there; as Parquet or Arrow with
// the same columns. Numbers read back exactly.
func Write(w io.Writer, format, what string, paths ...string) ([]runs.Problem, error) {
	return Options{}.Write(context.Background(), w, format, what, paths...)
}

// Write is the function Write with options.
func (o Options) Write(ctx context.Context, w io.Writer, format, what string, paths ...string) ([]runs.Problem, error) {
	if !slices.Contains(Formats(), format) {
		return nil, fmt.Errorf("write rows: format %q is not known; use one of %s", format, strings.Join(Formats(), ", "))
	}
	read, problems, err := o.named(ctx, what, paths)
	if err != nil {
		return problems, err
	}
	b := bufio.NewWriterSize(w, 1<<16)
	var rows giveRows = func(use func(Row) error) error { return giveAll(ctx, read, what, use, &problems) }
	switch format {
	case FormatCSV:
		err = writeCSV(b, rows)
	case FormatJSON:
		err = writeJSON(b, rows)
	case FormatParquet:
		err = columnar.WriteParquet(b, rows.columns)
	case FormatArrow:
		err = columnar.WriteArrow(b, rows.columns)
	}
	return problems, errors.Join(err, b.Flush())
}

// giveRows gives the rows that are written, each time the same.
type giveRows func(use func(Row) error) error

// columns gives the rows to a columnar format.
func (rows giveRows) columns(use func(columnar.Row) error) error {
	return rows(func(r Row) error { return use(columnar.Row(r)) })
}

func writeCSV(w *bufio.Writer, rows giveRows) error {
	cw := csv.NewWriter(w)
	if err := cw.Write(columnNames()); err != nil {
		return err
	}
	err := rows(func(r Row) error {
		rank, epoch, step := r.counts("")
		return cw.Write([]string{
			r.Run, r.Series, strconv.Itoa(r.Workers), strconv.FormatInt(r.Seed, 10),
			rank, epoch, step, r.Name, strconv.FormatFloat(r.Value, 'g', -1, 64),
		})
	})
	cw.Flush()
	return errors.Join(err, cw.Error())
}

func writeJSON(w *bufio.Writer, rows giveRows) error {
	before := "[\n"
	err := rows(func(r Row) error {
		text, err := r.json()
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
	if before == "[\n" { // no row
		end = "[]\n"
	}
	_, err = w.WriteString(end)
	return err
}

// json is the row as an object on one line, its keys in the order of the columns.
func (r Row) json() (string, error) {
	rank, epoch, step := r.counts("null")
	texts := make([]string, 3)
	for i, s := range []string{r.Run, r.Series, r.Name} {
		quoted, err := json.Marshal(s)
		if err != nil {
			return "", err
		}
		texts[i] = string(quoted)
	}
	v := strconv.FormatFloat(r.Value, 'g', -1, 64)
	if math.IsInf(r.Value, 0) || math.IsNaN(r.Value) { // JSON has no such number
		v = strconv.Quote(v)
	}
	return fmt.Sprintf(`{"run":%s,"series":%s,"workers":%d,"seed":%d,"rank":%s,"epoch":%s,"step":%s,"name":%s,"value":%s}`,
		texts[0], texts[1], r.Workers, r.Seed, rank, epoch, step, texts[2], v), nil
}
