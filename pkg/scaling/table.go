package scaling

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
)

// Formats of Study.Write.
const (
	FormatTable = "table"
	FormatCSV   = "csv"
	FormatJSON  = "json"
)

// column is one of the table: a text, a count or a value.
type column struct {
	name  string
	text  func(Point) string
	count func(Point) int
	value func(Point) float64
	brief bool // shown where people read
}

// columns are those of the table, in order.
func columns() []column {
	cols := []column{
		{name: "series", text: func(p Point) string { return p.Series }, brief: true},
		{name: "workers", count: func(p Point) int { return p.Workers }, brief: true},
		{name: "runs", count: func(p Point) int { return p.Runs }, brief: true},
	}
	value := func(name string, brief bool, span func(Point) Span) {
		cols = append(cols, column{name: name, brief: brief, value: func(p Point) float64 { return span(p).Value }})
	}
	value("epoch_seconds", true, func(p Point) Span { return p.EpochSeconds })
	value("throughput", true, func(p Point) Span { return p.Throughput })
	value("speedup", true, func(p Point) Span { return p.Speedup })
	value("efficiency", true, func(p Point) Span { return p.Efficiency })
	value("iou", true, func(p Point) Span { return p.IoU })
	value("iou_constant", true, func(p Point) Span { return p.IoUConstant })
	value("iou_untrained", true, func(p Point) Span { return p.IoUUntrained })
	value("dice", true, func(p Point) Span { return p.Dice })
	value("dice_constant", false, func(p Point) Span { return p.DiceConstant })
	value("dice_untrained", false, func(p Point) Span { return p.DiceUntrained })
	value("train_loss", false, func(p Point) Span { return p.TrainLoss })
	value("val_loss", false, func(p Point) Span { return p.ValLoss })
	for _, c := range []struct {
		name string
		span func(Point) Span
	}{
		{"epoch_seconds", func(p Point) Span { return p.EpochSeconds }},
		{"throughput", func(p Point) Span { return p.Throughput }},
		{"speedup", func(p Point) Span { return p.Speedup }},
		{"efficiency", func(p Point) Span { return p.Efficiency }},
		{"iou", func(p Point) Span { return p.IoU }},
		{"dice", func(p Point) Span { return p.Dice }},
	} {
		cols = append(cols,
			column{name: c.name + "_min", value: func(p Point) float64 { return c.span(p).Min }},
			column{name: c.name + "_max", value: func(p Point) float64 { return c.span(p).Max }})
	}
	return append(cols,
		column{name: "failed", count: func(p Point) int { return p.Failed }, brief: true},
		column{name: "epochs", count: func(p Point) int { return p.Epochs }},
		column{name: "batch_per_worker", count: func(p Point) int { return p.BatchPerWorker }},
		column{name: "threads_per_worker", count: func(p Point) int { return p.ThreadsPerWorker }})
}

// cell is the column's cell of a CSV: the shortest number that reads back
// exactly, empty where nothing was measured.
func (c column) cell(p Point) string {
	switch {
	case c.text != nil:
		return c.text(p)
	case c.count != nil:
		return strconv.Itoa(c.count(p))
	case math.IsNaN(c.value(p)):
		return ""
	}
	return strconv.FormatFloat(c.value(p), 'g', -1, 64)
}

// Table has a row for each series and number of workers. The columns:
//
//	series                 what is compared
//	workers                data-parallel workers
//	runs                   runs that count
//	epoch_seconds          seconds of training per epoch, by the rule
//	throughput             samples per second, all workers together (NaN where the logs tell no samples)
//	speedup                over the fewest workers of the series
//	efficiency             speed-up over the ideal one, 1 is perfect
//	iou                    intersection over union on the test set after training, 0 to 1
//	iou_constant           the same of the better of the all-0 and the all-1 predictor
//	iou_untrained          the same of the network before its first step
//	dice, dice_constant, dice_untrained   the same for the Dice coefficient
//	train_loss, val_loss   of the last epoch
//	…_min, …_max           lowest and highest of the repeated runs
//	failed                 runs that failed or were cancelled, and do not count
//	epochs                 epochs that count, of these runs together
//	batch_per_worker, threads_per_worker   0 where unknown
func (s *Study) Table() dataframe.DataFrame {
	var cols []series.Series
	for _, c := range columns() {
		var texts []string
		var counts []int
		var values []float64
		for _, p := range s.Points {
			switch {
			case c.text != nil:
				texts = append(texts, c.text(p))
			case c.count != nil:
				counts = append(counts, c.count(p))
			default:
				values = append(values, c.value(p))
			}
		}
		switch {
		case c.text != nil:
			cols = append(cols, series.New(texts, series.String, c.name))
		case c.count != nil:
			cols = append(cols, series.New(counts, series.Int, c.name))
		default:
			cols = append(cols, series.New(values, series.Float, c.name))
		}
	}
	return dataframe.New(cols...)
}

// Write writes the table as "table" (for people: rounded, the main columns,
// then the rule, notes and problems), "csv" (every column, exact numbers, an
// empty cell where nothing was measured) or "json" (an array of objects with
// the same names, null where nothing was measured).
func (s *Study) Write(w io.Writer, format string) error {
	var err error
	switch format {
	case FormatTable:
		_, err = io.WriteString(w, s.String())
	case FormatCSV:
		err = s.writeCSV(w)
	case FormatJSON:
		err = s.writeJSON(w)
	default:
		return fmt.Errorf("write study: format %q is not known; use %s, %s or %s", format, FormatTable, FormatCSV, FormatJSON)
	}
	if err != nil {
		return fmt.Errorf("write study: %w", err)
	}
	return nil
}

func (s *Study) writeCSV(w io.Writer) error {
	cols := columns()
	row := make([]string, len(cols))
	for i, c := range cols {
		row[i] = c.name
	}
	cw := csv.NewWriter(w)
	err := cw.Write(row)
	for _, p := range s.Points {
		for i, c := range cols {
			row[i] = c.cell(p)
		}
		err = errors.Join(err, cw.Write(row))
	}
	cw.Flush()
	return errors.Join(err, cw.Error())
}

// writeJSON keeps the order of the columns, which a map would lose.
func (s *Study) writeJSON(w io.Writer) error {
	var b strings.Builder
	b.WriteString("[")
	for i, p := range s.Points {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  {")
		for j, c := range columns() {
			cell := c.cell(p)
			if c.text != nil || strings.HasSuffix(cell, "Inf") {
				quoted, err := json.Marshal(cell)
				if err != nil {
					return err
				}
				cell = string(quoted)
			}
			if cell == "" {
				cell = "null"
			}
			if j > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%q: %s", c.name, cell)
		}
		b.WriteString("}")
	}
	b.WriteString("\n]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// rounded is the brief columns for people.
func (s *Study) rounded() (header []string, rows [][]string) {
	for _, c := range columns() {
		if c.brief {
			header = append(header, c.name)
		}
	}
	for _, p := range s.Points {
		var row []string
		for _, c := range columns() {
			if !c.brief {
				continue
			}
			cell := c.cell(p)
			if c.value != nil && cell != "" {
				cell = strconv.FormatFloat(c.value(p), 'f', decimals(c.value(p)), 64)
			}
			if cell == "" {
				cell = "-"
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return header, rows
}

// decimals keeps about four digits of v.
func decimals(v float64) int {
	switch a := math.Abs(v); {
	case a >= 1000:
		return 0
	case a >= 100:
		return 1
	case a >= 10:
		return 2
	}
	return 3
}

// String is the table for people, with the rule, the notes and the problems.
func (s *Study) String() string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	header, rows := s.rounded()
	for _, row := range append([][]string{header}, rows...) {
		// AlignRight would align the names of series to the right too.
		_, _ = fmt.Fprintln(tw, strings.Join(row, "\t")+"\t") // a strings.Builder does not fail
	}
	_ = tw.Flush()
	for _, line := range s.remarks() {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// remarks are the rule, the notes and the problems, a line each.
func (s *Study) remarks() []string {
	lines := []string{"rule: " + s.Rule.String()}
	for _, n := range s.Notes {
		lines = append(lines, "note: "+n)
	}
	for _, p := range s.Problems {
		lines = append(lines, "problem: "+p.String())
	}
	return lines
}

// HTML is the table for people in a notebook's cell.
func (s *Study) HTML() string {
	var b strings.Builder
	line := func(cells []string, tag string) {
		b.WriteString("<tr>")
		for _, c := range cells {
			fmt.Fprintf(&b, "<%s>%s</%s>", tag, html.EscapeString(c), tag)
		}
		b.WriteString("</tr>\n")
	}
	header, rows := s.rounded()
	b.WriteString("<table>\n<thead>")
	line(header, "th")
	b.WriteString("</thead>\n<tbody>\n")
	for _, row := range rows {
		line(row, "td")
	}
	b.WriteString("</tbody>\n</table>\n")
	for _, r := range s.remarks() {
		fmt.Fprintf(&b, "<div><small>%s</small></div>\n", html.EscapeString(r))
	}
	return b.String()
}
