package programfile

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"io"
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

// rowsKind is the name of the format of the CSV that lockstep read writes.
const rowsKind = "rows of lockstep read"

// IsRows reports whether a file that begins with head is the CSV that lockstep read writes.
func IsRows(head []byte) bool { return bytes.HasPrefix(head, []byte(wholefile.RowsHeader)) }

// rowsReader reads the CSV that lockstep read writes. Each run of it becomes a run again, with its
// epochs, curves, trials and spans. Values of steps become curves.
type rowsReader struct {
	in     *record.Input
	order  []*rowsRun          // in the order of the rows
	runs   map[string]*rowsRun // by name
	last   *rowsRun            // of the row before; nil in the first row
	number int                 // of the line that is read
}

// rowsRun is a run that rows describe.
type rowsRun struct {
	name   string
	part   *record.Part
	curves record.Curves
}

// rowsCell is a value with its name, rank, epoch and step; see tidy.Row.
type rowsCell struct {
	rank, epoch, step int
	name              string
	value             float64
}

// readRows reads the rows. A row that cannot be read is a problem.
func readRows(_ context.Context, in *record.Input) ([]*record.Part, error) {
	r := &rowsReader{in: in, runs: map[string]*rowsRun{}}
	lines := csv.NewReader(in.Reader)
	lines.ReuseRecord, lines.FieldsPerRecord = true, strings.Count(wholefile.RowsHeader, ",")+1
	for n := 0; ; n++ {
		cells, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		in.Report.Lines++
		var invalid *csv.ParseError
		if err != nil && !errors.As(err, &invalid) {
			return nil, err
		}
		switch {
		case err != nil:
			in.AddProblem(invalid.StartLine, "%v", invalid.Err)
		case n > 0:
			r.number, _ = lines.FieldPos(0)
			r.addRow(cells)
		default:
			in.Report.LinesUsed++
		}
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

func (r *rowsReader) addRow(cells []string) {
	var failed bool
	count := func(cell string, none int) int {
		if cell == "" {
			return none
		}
		n, err := strconv.Atoi(cell)
		failed = failed || err != nil || n < 0
		return n
	}
	workers, rank, epoch, step := count(cells[2], 0), count(cells[4], -1), count(cells[5], 0), count(cells[6], -1)
	seed, seedErr := strconv.ParseInt(cells[3], 10, 64)
	value, isNumber := scan.ParseFloat([]byte(clean.ParseCell(cells[8])))
	if failed || seedErr != nil || !isNumber {
		r.in.AddProblem(r.number, "expected numbers in the columns workers, seed, rank, epoch, step and value, got %.80q", cells)
		return
	}
	if text := cells[7]; math.IsNaN(value) && (strings.HasSuffix(text, "seconds") || strings.HasSuffix(text, "samples_per_second")) {
		r.in.AddProblem(r.number, "got %s NaN, which is no possible value; it is not used", text)
		return
	}
	if r.last == nil || r.last.name != cells[0] {
		if r.last = r.runs[cells[0]]; r.last == nil { // the cells share the memory of the row
			r.last = &rowsRun{name: strings.Clone(cells[0]), curves: record.Curves{Most: math.MaxInt}, part: &record.Part{Role: record.Principal, Line: r.number, SeedKnown: true}}
			r.last.part.Run.Info = runs.Info{Series: strings.Clone(clean.ParseCell(cells[1])), Workers: workers, Seed: seed}
			r.order, r.runs[r.last.name] = append(r.order, r.last), r.last
		}
	}
	r.last.add(rowsCell{rank, epoch, step, clean.ParseCell(cells[7]), value}, r.number)
	r.in.Report.Records++
	r.in.Report.LinesUsed++
}

// add adds a value to the run. line is the number of its line.
func (run *rowsRun) add(c rowsCell, line int) {
	r := &run.part.Run
	switch {
	case c.epoch > 0 && c.rank < 0 && c.step < 0:
		i := len(r.Epochs) - 1
		if i < 0 || r.Epochs[i].Epoch != c.epoch {
			r.Epochs = append(r.Epochs, record.NewUnmeasuredEpoch(c.epoch, line))
			i++
		}
		if !setEpochValue(&r.Epochs[i], c.name, c.value) {
			run.addPoint(c)
		}
	case c.epoch > 0, !setRunValue(r, c.name, c.value) && !addMeasurement(r, c, line):
		run.addPoint(c)
	}
}

// addPoint adds a point to the curve of the value's name and rank.
func (run *rowsRun) addPoint(c rowsCell) {
	step := c.step
	if step < 0 && c.epoch > 0 {
		step = c.epoch
	}
	run.curves.FindOrAdd([]byte(c.name), c.rank, false).Add(int64(step), c.value, 0)
}

// setEpochValue sets the value of an epoch that a row calls name. It reports whether there is one.
func setEpochValue(e *runs.Epoch, name string, v float64) bool {
	isCount := math.Abs(v) < 1<<53
	switch f := fields.Named(name); {
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

// setRunValue sets the value of the complete run that a row calls name. It reports whether there
// is one.
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

// addMeasurement adds a value of a trial, an all-reduce or a span. It reports whether the value is
// one.
func addMeasurement(run *runs.Run, c rowsCell, line int) bool {
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
			run.Spans = append(run.Spans, runs.Span{Rank: c.rank, Kind: kind, Name: strings.Clone(name), Start: c.value})
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
		run.Trials = append(run.Trials, runs.Trial{Name: strings.Clone(name), Rate: math.NaN(), Spread: math.NaN(), Line: line})
	}
	return &run.Trials[i]
}
