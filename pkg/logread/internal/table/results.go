package table

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// A results table is a CSV file that a person typed, for example from a paper.
// Lines that begin with # are comments, the header has a column workers, and
// each row is a measurement. Rows with the same study, series, workers and seed
// are one run. The columns are those of numberColumns and textColumns, in any
// order. An empty cell stands for an unknown value.
//
//	# ResNet-50 on ImageNet; source: …
//	series,workers,wall_seconds
//	ours,1,20531.864
//	ours,4,5355.923

// resultsTableKind is the name of the format of results tables.
const resultsTableKind = "results table"

// textColumns returns the names of the columns that contain text.
func textColumns() []string { return []string{"study", "series", "trial"} }

// numberColumns returns the names of the columns that contain numbers.
func numberColumns() []string {
	return []string{
		"workers", "seed", "nodes", "batch_per_worker", "epoch", "seconds", "samples", "samples_per_second", "spread",
		"train_loss", "val_loss", "iou", "dice", "accuracy", "val_accuracy", "lr", "training_seconds", "wall_seconds",
	}
}

// isResultsTable reports whether the first line that is neither empty nor a
// comment is a header with the column workers and at least one column of
// measurements.
func isResultsTable(_ string, head []byte) bool {
	for len(head) > 0 {
		line, rest, _ := bytes.Cut(head, []byte("\n"))
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			names := strings.Split(string(line), ",")
			measured := func(name string) bool {
				return slices.Contains(numberColumns()[5:], name) && name != "spread"
			}
			return slices.Contains(names, "workers") && slices.ContainsFunc(names, measured)
		}
		head = rest
	}
	return false
}

// tableRow contains the cells of a parsed row by column name, and the row's
// line number.
type tableRow struct {
	line   int
	texts  map[string]string
	values map[string]float64 // unknown values are missing
}

// readResultsTable reads a results table.
func readResultsTable(_ context.Context, in *record.Input) ([]*record.Part, error) {
	l := scan.NewLineReader(in.Reader, in.Size)
	t := &tableReader{in: in}
	for {
		text, ok := l.Next()
		if !ok {
			break
		}
		t.readLine(l.Number, text, l.TooLong)
	}
	in.Report.Lines = int64(l.Number)
	if err := l.Err; err != nil {
		return nil, err
	}
	return t.parts, nil
}

// tableReader reads a results table line by line.
type tableReader struct {
	in     *record.Input
	header []string
	parts  []*record.Part
	byRun  map[string]*record.Part // by study, series, workers and seed
}

// readLine reads a comment, the header or a row. cut is true if the line was
// too long and its end is missing.
func (t *tableReader) readLine(number int, text []byte, cut bool) {
	text = bytes.TrimRight(text, "\r\n")
	switch trimmed := bytes.TrimSpace(text); {
	case len(trimmed) == 0:
		t.in.Report.AddIgnored(number, "empty line")
		return
	case trimmed[0] == '#':
		t.in.Report.AddIgnored(number, "comment")
		return
	case cut:
		t.in.AddProblem(number, "the line is too long for a results table")
		return
	}
	cells, err := splitCSV(text)
	if err != nil {
		t.in.AddProblem(number, "%v", err)
		return
	}
	if t.header == nil {
		t.header, t.byRun = cells, map[string]*record.Part{}
		for _, name := range cells {
			if !slices.Contains(numberColumns(), name) && !slices.Contains(textColumns(), name) {
				t.in.AddProblem(number, "unknown column %.40q is not used; known columns: %s, %s",
					name, strings.Join(textColumns(), ", "), strings.Join(numberColumns(), ", "))
			}
		}
		t.in.Report.LinesUsed++
		return
	}
	row, err := t.parseRow(number, cells)
	if err == nil {
		err = t.addRow(row)
	}
	if err != nil {
		t.in.AddProblem(number, "%v", err)
		return
	}
	t.in.Report.LinesUsed++
	t.in.Report.Records++
}

// splitCSV splits a line into its cells.
func splitCSV(text []byte) ([]string, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.TrimLeadingSpace = true
	cells, err := r.Read()
	var syntax *csv.ParseError
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("read the row as CSV: %w", syntax.Err)
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	}
	return cells, nil
}

// parseRow assigns the cells of a line to the columns of the header.
func (t *tableReader) parseRow(number int, cells []string) (tableRow, error) {
	row := tableRow{line: number, texts: map[string]string{}, values: map[string]float64{}}
	if len(cells) != len(t.header) {
		return row, fmt.Errorf("expected %d cells, got %d", len(t.header), len(cells))
	}
	for i, name := range t.header {
		cell := strings.TrimSpace(cells[i])
		switch {
		case cell == "":
		case slices.Contains(textColumns(), name):
			row.texts[name] = cell
		case slices.Contains(numberColumns(), name):
			v, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return row, fmt.Errorf("column %s: expected a number, got %.40q", name, cell)
			}
			row.values[name] = v
		}
	}
	return row, nil
}

// integerInColumn returns the integer in a column, or 0 if the cell is empty. It
// returns an error if the value is not an integer from least to most.
func (r tableRow) integerInColumn(name string, least, most float64) (int, error) {
	v, ok := r.values[name]
	if !ok {
		return 0, nil
	}
	if !(v >= least && v <= most) || v != math.Trunc(v) {
		return 0, fmt.Errorf("column %s: expected a whole number from %g to %g, got %g", name, least, most, v)
	}
	return int(v), nil
}

// numberInColumn returns the number in a column, or NaN if the cell is empty.
func (r tableRow) numberInColumn(name string) float64 {
	if v, ok := r.values[name]; ok {
		return v
	}
	return math.NaN()
}

// addRow adds the values of a row to its run.
func (t *tableReader) addRow(row tableRow) error {
	counts := map[string]int{}
	for _, c := range []struct {
		name        string
		least, most float64
	}{
		{"workers", 1, record.MaxWorkers},
		{"seed", 0, 1 << 53},
		{"nodes", 1, record.MaxWorkers},
		{"batch_per_worker", 1, 1 << 31},
		{"epoch", 1, 1 << 31},
		{"samples", 0, 1 << 53},
	} {
		n, err := row.integerInColumn(c.name, c.least, c.most)
		if err != nil {
			return err
		}
		counts[c.name] = n
	}
	if counts["workers"] == 0 {
		return errors.New("column workers: expected a number, got an empty cell")
	}
	key := fmt.Sprintf("%q %q %d %d", row.texts["study"], row.texts["series"], counts["workers"], counts["seed"])
	p := t.byRun[key]
	if p == nil {
		p = t.newRun(row, counts)
		t.byRun[key] = p
		t.parts = append(t.parts, p)
	}
	for name, keep := range map[string]func(float64){
		"training_seconds": func(v float64) { p.Run.Info.Config[record.TrainingSecondsKey] = v },
		"wall_seconds":     func(v float64) { p.Run.WallSeconds = v },
	} {
		if v := row.numberInColumn(name); v > 0 && !math.IsInf(v, 0) {
			keep(v)
		}
	}
	if name := row.texts["trial"]; name != "" {
		p.Run.Trials = append(p.Run.Trials, runs.Trial{
			Name: name, Rate: row.numberInColumn("samples_per_second"), Spread: row.numberInColumn("spread"), Line: row.line,
		})
		return nil
	}
	return t.addEpoch(p, row, counts)
}

// newRun returns a run with the properties in its first row. counts contains
// the integers of the row by column.
func (t *tableReader) newRun(row tableRow, counts map[string]int) *record.Part {
	_, seeded := row.values["seed"]
	return &record.Part{
		Role: record.Principal, Line: row.line, SeedKnown: seeded,
		Run: runs.Run{Info: runs.Info{
			Study: row.texts["study"], Series: row.texts["series"], Workers: counts["workers"], Seed: int64(counts["seed"]),
			Nodes: counts["nodes"], BatchPerWorker: counts["batch_per_worker"], GlobalBatch: counts["batch_per_worker"] * counts["workers"],
			Status: runs.StatusDone, Config: map[string]any{},
		}},
	}
}

// addEpoch adds the measurements of a row as an epoch. A row without an epoch
// number describes the complete run and is stored as epoch 0.
func (t *tableReader) addEpoch(p *record.Part, row tableRow, counts map[string]int) error {
	e := runs.Epoch{
		Epoch: counts["epoch"], Seconds: row.numberInColumn("seconds"), Samples: counts["samples"], SamplesPerSecond: row.numberInColumn("samples_per_second"),
		TrainLoss: row.numberInColumn("train_loss"), ValLoss: row.numberInColumn("val_loss"), IoU: row.numberInColumn("iou"), Dice: row.numberInColumn("dice"),
		ValSeconds: math.NaN(), LearningRate: row.numberInColumn("lr"),
		Accuracy: row.numberInColumn("accuracy"), ValAccuracy: row.numberInColumn("val_accuracy"), Line: row.line,
	}
	if math.IsNaN(e.SamplesPerSecond) && e.Samples > 0 && e.Seconds > 0 {
		e.SamplesPerSecond = float64(e.Samples) / e.Seconds
	}
	known := func(v float64) bool { return !math.IsNaN(v) }
	if !slices.ContainsFunc([]float64{
		e.Seconds, e.SamplesPerSecond, e.TrainLoss, e.ValLoss, e.IoU, e.Dice, e.LearningRate, e.Accuracy, e.ValAccuracy,
	}, known) {
		return nil // the row has only values of the complete run
	}
	if slices.ContainsFunc(p.Run.Epochs, func(x runs.Epoch) bool { return x.Epoch == e.Epoch }) {
		return fmt.Errorf("duplicate epoch %d of this run; add a column seed to distinguish repeats", e.Epoch)
	}
	p.Run.Epochs = append(p.Run.Epochs, e)
	return nil
}
