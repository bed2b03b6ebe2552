package logread

import (
	"bufio"
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

	"lockstep/pkg/runs"
)

// Which rows Rows, Tidy and Write give.
const (
	Epochs = "epochs" // a row a value of an epoch, and those of the run as a whole
	Steps  = "steps"  // a row a value of a step of a rank
	All    = "all"    // both
)

// Formats of Write.
const (
	FormatCSV  = "csv"
	FormatJSON = "json"
)

// Row is one measured value: the tidy form, in which a table holds the logs of
// any program. A value that was not measured has no row.
type Row struct {
	Run     string // the path that was read, down to the run folder or the file
	Series  string
	Workers int // world size
	Seed    int64
	Rank    int    // of a step; -1 where the value is of all ranks together
	Epoch   int    // from 1; 0 where the value is of the run as a whole
	Step    int    // from 1, over the whole run; 0 where the value is of an epoch or of the run
	Name    string // of the value, with its unit: seconds, samples_per_second, iou, …
	Value   float64
}

// Rows reads the runs in and under each path (where [runs.LocateLogs] finds
// it) and hands over their values, one at a time and always in the same order:
// runs as Read orders them; in a run the epochs, then what is of the run as a
// whole (its test, with names that begin with test_), then the steps by rank.
// what is Epochs, Steps or All. At most one run's epochs and one rank's steps
// are in memory. A run that lies under two of the paths comes once. The problems
// are those of Read; the first error of use ends the reading and is returned.
func Rows(what string, paths []string, use func(Row) error) ([]runs.Problem, error) {
	if what != Epochs && what != Steps && what != All {
		return nil, fmt.Errorf("read rows: %q is not known; use %s, %s or %s", what, Epochs, Steps, All)
	}
	if len(paths) == 0 {
		return nil, errors.New("read rows: no path given; name a folder of logs such as logs/demo")
	}
	var problems []runs.Problem
	seen := map[string]bool{}
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return problems, fmt.Errorf("read rows: %w", err)
		}
		found, err := each(place, func(run runs.Run) error {
			if seen[run.Dir] {
				return nil
			}
			seen[run.Dir] = true
			return rowsOf(run, shown(path, place, run.Dir), what, use)
		})
		for _, p := range found {
			if !slices.Contains(problems, p) { // of a run that was read before
				problems = append(problems, p)
			}
		}
		if err != nil {
			return problems, err
		}
	}
	return problems, nil
}

// shown is the name of the run at dir: the path as it was given, and the way
// from there to the run.
func shown(path, place, dir string) string {
	rest, err := filepath.Rel(place, dir)
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
func rowsOf(run runs.Run, name, what string, use func(Row) error) error {
	row := Row{Run: name, Series: run.Info.Series, Workers: run.Info.Workers, Seed: run.Info.Seed, Rank: -1}
	give := func(values []value) error {
		for _, x := range values {
			if math.IsNaN(x.v) {
				continue
			}
			row.Name, row.Value = x.name, x.v
			if err := use(row); err != nil {
				return err
			}
		}
		return nil
	}
	if what != Steps {
		for _, e := range run.Epochs {
			row.Epoch = e.Epoch
			if err := give(epochValues(e)); err != nil {
				return err
			}
		}
		row.Epoch = 0
		if err := give(runValues(run.Info)); err != nil {
			return err
		}
	}
	if what == Epochs || run.Info.Schema == 0 { // another program's log has no steps
		return nil
	}
	ranks, err := runs.Ranks(run.Dir)
	if err != nil {
		return err
	}
	for _, row.Rank = range ranks {
		// Its problems are in run.Problems already.
		_, steps, _, err := runs.ReadSteps(run.Dir, row.Rank)
		if err != nil {
			return err
		}
		for _, s := range steps {
			row.Epoch, row.Step = s.Epoch, s.Step
			if err := give(stepValues(s)); err != nil {
				return err
			}
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
	}
	if e.Samples > 0 { // else the log does not tell
		counts := []value{{"samples", float64(e.Samples)}, {"padding_samples", float64(e.PaddingSamples)}}
		values = slices.Insert(values, 1, counts...)
	}
	return values
}

// runValues are those of the run as a whole.
func runValues(info runs.Info) []value {
	var values []value
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
	}
	if s, ok := info.Config[TrainingSeconds].(float64); ok {
		values = append(values, value{TrainingSeconds, s})
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
	return text(r.Rank, 0), text(r.Epoch, 1), text(r.Step, 1)
}

// Tidy is Rows as a DataFrame with the columns run, series, workers, seed,
// rank, epoch, step, name and value; rank, epoch and step are NaN where they do
// not apply. It holds all rows in memory.
func Tidy(what string, paths ...string) (dataframe.DataFrame, []runs.Problem, error) {
	var run, ser, rank, epoch, step, name []string
	var workers, seed []int
	var values []float64
	problems, err := Rows(what, paths, func(r Row) error {
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

// Write writes Rows to w as they come: as CSV with a header, an empty cell
// where rank, epoch or step does not apply, or as a JSON array of objects with
// the same names and null there. Numbers read back exactly.
func Write(w io.Writer, format, what string, paths ...string) ([]runs.Problem, error) {
	b := bufio.NewWriterSize(w, 1<<16)
	var problems []runs.Problem
	var err error
	switch format {
	case FormatCSV:
		problems, err = writeCSV(b, what, paths)
	case FormatJSON:
		problems, err = writeJSON(b, what, paths)
	default:
		return nil, fmt.Errorf("write rows: format %q is not known; use %s or %s", format, FormatCSV, FormatJSON)
	}
	return problems, errors.Join(err, b.Flush())
}

func writeCSV(w *bufio.Writer, what string, paths []string) ([]runs.Problem, error) {
	cw := csv.NewWriter(w)
	if err := cw.Write(columnNames()); err != nil {
		return nil, err
	}
	problems, err := Rows(what, paths, func(r Row) error {
		rank, epoch, step := r.counts("")
		return cw.Write([]string{
			r.Run, r.Series, strconv.Itoa(r.Workers), strconv.FormatInt(r.Seed, 10),
			rank, epoch, step, r.Name, strconv.FormatFloat(r.Value, 'g', -1, 64),
		})
	})
	cw.Flush()
	return problems, errors.Join(err, cw.Error())
}

func writeJSON(w *bufio.Writer, what string, paths []string) ([]runs.Problem, error) {
	before := "[\n"
	problems, err := Rows(what, paths, func(r Row) error {
		text, err := r.json()
		if err != nil {
			return err
		}
		_, err = w.WriteString(before + text)
		before = ",\n"
		return err
	})
	if err != nil {
		return problems, err
	}
	end := "\n]\n"
	if before == "[\n" { // no row
		end = "[]\n"
	}
	_, err = w.WriteString(end)
	return problems, err
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
	if math.IsInf(r.Value, 0) { // JSON has no such number
		v = strconv.Quote(v)
	}
	return fmt.Sprintf(`{"run":%s,"series":%s,"workers":%d,"seed":%d,"rank":%s,"epoch":%s,"step":%s,"name":%s,"value":%s}`,
		texts[0], texts[1], r.Workers, r.Seed, rank, epoch, step, texts[2], v), nil
}
