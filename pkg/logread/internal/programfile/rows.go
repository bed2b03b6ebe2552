package programfile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

const tidyCSVKind = "rows of lockstep read"

// IsTidyCSV reports whether head is the beginning of a CSV file that "lockstep read" wrote.
func IsTidyCSV(head []byte) bool { return bytes.HasPrefix(head, []byte(wholefile.ValuesCSVHeader)) }

// tidyReader reads the CSV that lockstep read writes back into runs with epochs, curves, trials and
// spans. Values of steps become curves.
type tidyReader struct {
	in     *record.Input
	l      *scan.LineReader
	cells  []scan.Cell         // of the current row
	order  []*tidyRun          // in the order of the rows
	runs   map[string]*tidyRun // by name
	last   *tidyRun            // of the row before; nil in the first row
	number int                 // of the line that is read
}

type tidyRun struct {
	name   string
	part   *record.Part
	curves record.Curves
}

// tidyValue is a value with its name, rank, epoch and step; see tidy.Row.
type tidyValue struct {
	rank, epoch, step int
	name              string
	value             float64
}

func readTidyCSV(_ context.Context, in *record.Input) ([]*record.Part, error) {
	r := &tidyReader{in: in, runs: map[string]*tidyRun{}}
	if err := in.ReadLines(r.readLine); err != nil {
		return nil, err
	}
	var parts []*record.Part
	for _, run := range r.order {
		for _, c := range run.curves.All {
			run.part.Run.Curves = append(run.part.Run.Curves, c.Finish(in.Report))
		}
		parts = append(parts, run.part)
	}
	return parts, nil
}

func (r *tidyReader) readLine(l *scan.LineReader, line []byte) {
	r.l, r.number = l, l.Number
	if l.Number == 1 {
		r.in.Report.LinesUsed++
		return
	}
	split := func(row []byte) (err error) {
		r.cells, err = scan.AppendCells(r.cells[:0], row, ',', false)
		return err
	}
	err := split(line)
	if row, lines := l.JoinRow(line, split, err); lines > 0 { // a name of several lines
		line, err = row, nil
		r.in.SkipLines(l, lines)
	}
	if n := strings.Count(wholefile.ValuesCSVHeader, ",") + 1; err == nil && len(r.cells) != n {
		err = fmt.Errorf("expected %d cells, got %d: %.80q", n, len(r.cells), line)
	}
	if err != nil {
		r.in.AddProblem(r.number, "%v", err)
		return
	}
	r.addRow(line, r.cells)
}

func (r *tidyReader) addRow(line []byte, cells []scan.Cell) {
	var failed bool
	count := func(c *scan.Cell, none int) int {
		if len(c.Text) == 0 {
			return none
		}
		n := int(c.Number)
		failed = failed || c.Length != len(c.Text) || n < 0 || c.Number != float64(n)
		return n
	}
	workers, rank, epoch, step := count(&cells[2], 0), count(&cells[4], -1), count(&cells[5], 0), count(&cells[6], -1)
	seed, seedErr := strconv.ParseInt(string(cells[3].Text), 10, 64)
	value, isNumber := cells[8].Number, cells[8].Length > 0 && cells[8].Length == len(cells[8].Text)
	if !isNumber {
		value, isNumber = scan.ParseFloat([]byte(clean.UnescapeCSVCell(string(cells[8].Text))))
	}
	if failed || seedErr != nil || !isNumber {
		r.in.AddProblem(r.number, "expected numbers in the columns workers, seed, rank, epoch, step and value, got %.80q", line)
		return
	}
	name := clean.UnescapeCSVCell(string(cells[7].Text))
	if math.IsNaN(value) && (strings.HasSuffix(name, "seconds") || strings.HasSuffix(name, "samples_per_second")) {
		r.in.AddProblem(r.number, "got %s NaN, which is no possible value; it is not used", name)
		return
	}
	if r.last == nil || r.last.name != string(cells[0].Text) {
		if r.last = r.runs[string(cells[0].Text)]; r.last == nil {
			r.last = &tidyRun{name: string(cells[0].Text), curves: record.Curves{Most: math.MaxInt, Lines: r.l}, part: &record.Part{Role: record.Principal, Line: r.number, SeedKnown: true}}
			r.last.part.Run.Info = runs.Info{Series: clean.UnescapeCSVCell(string(cells[1].Text)), Workers: workers, Seed: seed}
			r.order, r.runs[r.last.name] = append(r.order, r.last), r.last
		}
	}
	r.last.addValue(tidyValue{rank, epoch, step, name, value}, r.number)
	r.in.Report.Records++
	r.in.Report.LinesUsed++
}

func (run *tidyRun) addValue(c tidyValue, line int) {
	r := &run.part.Run
	switch {
	case c.epoch > 0 && c.rank < 0 && c.step < 0:
		i := len(r.Epochs) - 1
		if i < 0 || r.Epochs[i].Epoch != c.epoch {
			if i++; i == cap(r.Epochs) {
				r.Epochs = record.Grow(r.Epochs, run.curves.Lines.EstimateRemainingValues(i))
			}
			r.Epochs = append(r.Epochs, record.NewUnmeasuredEpoch(c.epoch, line))
		}
		if !setEpochValue(&r.Epochs[i], c.name, c.value) {
			run.addPoint(c)
		}
	case c.epoch > 0, !setRunValue(r, c.name, c.value) && !addMeasurement(r, c, line):
		run.addPoint(c)
	}
}

func (run *tidyRun) addPoint(c tidyValue) {
	step := c.step
	if step < 0 && c.epoch > 0 {
		step = c.epoch
	}
	run.curves.FindOrAdd([]byte(c.name), c.rank, false).AddPoint(int64(step), c.value, 0)
}

// setEpochValue sets the field of e with the given name in tidy rows. It returns false for an
// unknown name.
func setEpochValue(e *runs.Epoch, name string, v float64) bool {
	isCount := math.Abs(v) < 1<<53
	switch f := fields.ByName(name); {
	case f != nil && f.OfEpoch != nil:
		*f.OfEpoch(e) = v
	case name == fields.Samples && isCount:
		e.Samples = int(v)
	case name == "padding_samples" && isCount:
		e.PaddingSamples = int(v)
	default:
		return false
	}
	return true
}

// setRunValue sets the field of run with the given name in tidy rows. It returns false for an
// unknown name.
func setRunValue(run *runs.Run, name string, v float64) bool {
	info := &run.Info
	switch name {
	case "wall_seconds":
		run.WallSeconds = v
	case "energy_joules":
		info.EnergyJoules = v
	case "sent_bytes_per_step_formula":
		info.SentFormula = v
	case record.TrainingSecondsKey:
		info.Config = map[string]any{record.TrainingSecondsKey: v}
	default:
		if !strings.HasPrefix(name, "test_") {
			return false
		}
		test := info.Test
		if test == nil {
			test = record.NewUnmeasuredTest()
		}
		p := map[string]*float64{
			"test_loss": &test.Loss, "test_iou": &test.IoU, "test_dice": &test.Dice, "test_iou_constant": &test.IoUConstant, "test_dice_constant": &test.DiceConstant,
			"test_iou_untrained": &test.IoUUntrained, "test_dice_untrained": &test.DiceUntrained, "test_seconds": &test.Seconds, "test_accuracy": &test.Accuracy,
		}[name]
		if p == nil {
			return false
		}
		*p, info.Test = v, test
	}
	return true
}

// addMeasurement adds a value of a trial, an all-reduce or a span. It returns false for other values.
func addMeasurement(run *runs.Run, c tidyValue, line int) bool {
	if name, ok := strings.CutSuffix(c.name, "_trial_samples_per_second"); ok && c.step > 0 {
		t := findOrAddTrial(run, name, line)
		t.Rates = append(t.Rates, c.value)
		return true
	}
	if name, ok := strings.CutSuffix(c.name, "_spread_samples_per_second"); ok && c.step < 0 {
		findOrAddTrial(run, name, line).Spread = c.value
		return true
	}
	if name, ok := strings.CutSuffix(c.name, "_samples_per_second"); ok && c.step < 0 && c.rank < 0 {
		findOrAddTrial(run, name, line).Rate = c.value
		return true
	}
	if c.name == "all_reduce_seconds" && c.rank < 0 && c.step >= 0 {
		run.AllReduces = append(run.AllReduces, runs.AllReduce{Bytes: float64(c.step), Seconds: c.value, Line: line})
		return true
	}
	for _, kind := range []string{runs.SpanData, runs.SpanCompute, runs.SpanCommunication, runs.SpanOther} {
		if name, ok := strings.CutPrefix(c.name, kind+"_start_seconds/"); ok && c.rank >= 0 {
			run.Spans = append(run.Spans, runs.Span{Rank: c.rank, Kind: kind, Name: name, Start: c.value})
			return true
		}
		if _, ok := strings.CutPrefix(c.name, kind+"_seconds/"); ok && c.rank >= 0 && len(run.Spans) > 0 {
			run.Spans[len(run.Spans)-1].Seconds = c.value
			return true
		}
	}
	return false
}

func findOrAddTrial(run *runs.Run, name string, line int) *runs.Trial {
	i := slices.IndexFunc(run.Trials, func(t runs.Trial) bool { return t.Name == name })
	if i < 0 {
		i = len(run.Trials)
		run.Trials = append(run.Trials, runs.Trial{Name: name, Rate: math.NaN(), Spread: math.NaN(), Line: line})
	}
	return &run.Trials[i]
}
