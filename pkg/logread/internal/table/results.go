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
// are one run. The columns are those of tableColumns and tableTexts, in any
// order. An empty cell means unknown.
//
//	# ResNet-50 on ImageNet; source: …
//	series,workers,wall_seconds
//	ours,1,20531.864
//	ours,4,5355.923

// tableKind is the name of the format.
const tableKind = "results table"

// tableTexts returns the columns that hold text.
func tableTexts() []string { return []string{"study", "series", "trial"} }

// tableColumns returns the columns that hold a number.
func tableColumns() []string {
	return []string{
		"workers", "seed", "nodes", "batch_per_worker", "epoch", "seconds", "samples", "samples_per_second", "spread",
		"train_loss", "val_loss", "iou", "dice", "accuracy", "val_accuracy", "lr", "training_seconds", "wall_seconds",
	}
}

// isTable reports whether the first line that is not a comment is a header with
// the column workers and at least one column for a measurement.
func isTable(_ string, head []byte) bool {
	for len(head) > 0 {
		line, rest, _ := bytes.Cut(head, []byte("\n"))
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			names := strings.Split(string(line), ",")
			measured := func(name string) bool {
				return slices.Contains(tableColumns()[5:], name) && name != "spread"
			}
			return slices.Contains(names, "workers") && slices.ContainsFunc(names, measured)
		}
		head = rest
	}
	return false
}

// tableRow is a row and its line number.
type tableRow struct {
	line   int
	texts  map[string]string
	values map[string]float64 // without unknown values
}

// readTable reads a results table.
func readTable(_ context.Context, in *record.Input) ([]*record.Part, error) {
	l := scan.NewLines(in.Reader, in.Size)
	t := &tableReader{in: in}
	for {
		text, ok := l.Next()
		if !ok {
			break
		}
		t.line(l.Number, text, l.TooLong)
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
	byName map[string]*record.Part
}

// line reads a line of any form.
func (t *tableReader) line(number int, text []byte, cut bool) {
	text = bytes.TrimRight(text, "\r\n")
	switch trimmed := bytes.TrimSpace(text); {
	case len(trimmed) == 0:
		t.in.Report.Ignore(number, "empty line")
		return
	case trimmed[0] == '#':
		t.in.Report.Ignore(number, "comment")
		return
	case cut:
		t.in.Problem(number, "the line is too long for a row of results")
		return
	}
	cells, err := csvCells(text)
	if err != nil {
		t.in.Problem(number, "%v", err)
		return
	}
	if t.header == nil {
		t.header, t.byName = cells, map[string]*record.Part{}
		for _, name := range cells {
			if !slices.Contains(tableColumns(), name) && !slices.Contains(tableTexts(), name) {
				t.in.Problem(number, "column %.40q is not known and is not used; known: %s, %s",
					name, strings.Join(tableTexts(), ", "), strings.Join(tableColumns(), ", "))
			}
		}
		t.in.Report.LinesUsed++
		return
	}
	row, err := t.row(number, cells)
	if err == nil {
		err = t.add(row)
	}
	if err != nil {
		t.in.Problem(number, "%v", err)
		return
	}
	t.in.Report.LinesUsed++
	t.in.Report.Records++
}

// csvCells splits a line as CSV, with quotes.
func csvCells(text []byte) ([]string, error) {
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

// row assigns the cells of a line to the columns of the header.
func (t *tableReader) row(number int, cells []string) (tableRow, error) {
	row := tableRow{line: number, texts: map[string]string{}, values: map[string]float64{}}
	if len(cells) != len(t.header) {
		return row, fmt.Errorf("expected %d cells, got %d", len(t.header), len(cells))
	}
	for i, name := range t.header {
		cell := strings.TrimSpace(cells[i])
		switch {
		case cell == "":
		case slices.Contains(tableTexts(), name):
			row.texts[name] = cell
		case slices.Contains(tableColumns(), name):
			v, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return row, fmt.Errorf("column %s: expected a number, got %.40q", name, cell)
			}
			row.values[name] = v
		}
	}
	return row, nil
}

// count returns a whole number of a row, or 0 if it is unknown.
func (r tableRow) count(name string, least, most float64) (int, error) {
	v, ok := r.values[name]
	if !ok {
		return 0, nil
	}
	if !(v >= least && v <= most) || v != math.Trunc(v) {
		return 0, fmt.Errorf("column %s: expected a whole number from %g to %g, got %g", name, least, most, v)
	}
	return int(v), nil
}

// value returns a number of a row, or NaN if it is unknown.
func (r tableRow) value(name string) float64 {
	if v, ok := r.values[name]; ok {
		return v
	}
	return math.NaN()
}

// add adds a row to its run.
func (t *tableReader) add(row tableRow) error {
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
		n, err := row.count(c.name, c.least, c.most)
		if err != nil {
			return err
		}
		counts[c.name] = n
	}
	if counts["workers"] == 0 {
		return errors.New("column workers: expected a number, got an empty cell")
	}
	key := fmt.Sprintf("%q %q %d %d", row.texts["study"], row.texts["series"], counts["workers"], counts["seed"])
	p := t.byName[key]
	if p == nil {
		p = t.newRun(row, counts)
		t.byName[key] = p
		t.parts = append(t.parts, p)
	}
	for name, keep := range map[string]func(float64){
		"training_seconds": func(v float64) { p.Run.Info.Config[record.TrainingSeconds] = v },
		"wall_seconds":     func(v float64) { p.Run.WallSeconds = v },
	} {
		if v := row.value(name); v > 0 && !math.IsInf(v, 0) {
			keep(v)
		}
	}
	if name := row.texts["trial"]; name != "" {
		p.Run.Trials = append(p.Run.Trials, runs.Trial{
			Name: name, Rate: row.value("samples_per_second"), Spread: row.value("spread"), Line: row.line,
		})
		return nil
	}
	return t.epoch(p, row, counts)
}

// newRun returns a run with what its first row says about it.
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

// epoch adds the measurements of a row. A row without an epoch number describes
// the whole run; its epoch is 0.
func (t *tableReader) epoch(p *record.Part, row tableRow, counts map[string]int) error {
	e := runs.Epoch{
		Epoch: counts["epoch"], Seconds: row.value("seconds"), Samples: counts["samples"], SamplesPerSecond: row.value("samples_per_second"),
		TrainLoss: row.value("train_loss"), ValLoss: row.value("val_loss"), IoU: row.value("iou"), Dice: row.value("dice"),
		ValSeconds: math.NaN(), LearningRate: row.value("lr"),
		Accuracy: row.value("accuracy"), ValAccuracy: row.value("val_accuracy"), Line: row.line,
	}
	if math.IsNaN(e.SamplesPerSecond) && e.Samples > 0 && e.Seconds > 0 {
		e.SamplesPerSecond = float64(e.Samples) / e.Seconds
	}
	known := func(v float64) bool { return !math.IsNaN(v) }
	if !slices.ContainsFunc([]float64{
		e.Seconds, e.SamplesPerSecond, e.TrainLoss, e.ValLoss, e.IoU, e.Dice, e.LearningRate, e.Accuracy, e.ValAccuracy,
	}, known) {
		return nil // the row describes the whole run
	}
	if slices.ContainsFunc(p.Run.Epochs, func(x runs.Epoch) bool { return x.Epoch == e.Epoch }) {
		return fmt.Errorf("epoch %d of this run stands on an earlier line; tell repeats apart by a column seed", e.Epoch)
	}
	p.Run.Epochs = append(p.Run.Epochs, e)
	return nil
}
