package show

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
)

// A table shows at most this many rows and columns: a notebook keeps what it
// shows, and a page of a hundred thousand rows can be neither read nor saved.
const (
	maxRows = 60
	maxCols = 30
)

// frame draws a DataFrame as an HTML table. A frame that carries an error, as
// gota's do after an operation that failed, is that error.
func frame(df dataframe.DataFrame) (Forms, error) {
	if df.Err != nil {
		return nil, df.Err
	}
	df, more := forPeople(df)
	rows, cols := df.Dims()
	names, types := df.Names(), df.Types()
	var b strings.Builder
	b.WriteString("<table border=\"1\" class=\"dataframe\">\n<thead><tr>")
	for c := range min(cols, maxCols) {
		fmt.Fprintf(&b, "<th title=\"%s\">%s</th>", html.EscapeString(string(types[c])), html.EscapeString(names[c]))
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for r := range min(rows, maxRows) {
		b.WriteString("<tr>")
		for c := range min(cols, maxCols) {
			b.WriteString(element(df.Elem(r, c)))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody>\n</table>\n")
	if rows > maxRows || cols > maxCols {
		fmt.Fprintf(&b, "<p>%d of %d rows, %d of %d columns</p>\n", min(rows, maxRows), rows, min(cols, maxCols), cols)
	}
	text := df.String()
	if len(more) > 0 {
		note := fmt.Sprintf("%d more columns: %s", len(more), strings.Join(more, ", "))
		fmt.Fprintf(&b, "<p title=\"%s\">%d more columns; Names() lists them all</p>\n", html.EscapeString(strings.Join(more, ", ")), len(more))
		text += "\n" + note
	}
	return Forms{HTML: b.String(), Text: text}, nil
}

// mainColumns are the columns of a study's table that people read, in the order
// in which they read them. Each may have an interval, _low and _high.
func mainColumns() []string {
	return []string{
		"series", "workers", "runs", "epoch_seconds", "throughput", "speedup", "efficiency",
		"iou", "dice", "accuracy", "val_accuracy", "failed", "diverged",
	}
}

// forPeople returns the columns of a study's table that people read and the
// names of the others. Any other frame is returned whole.
func forPeople(df dataframe.DataFrame) (shown dataframe.DataFrame, more []string) {
	names := df.Names()
	for _, needed := range []string{"series", "workers", "epoch_seconds", "throughput", "speedup", "efficiency"} {
		if !slices.Contains(names, needed) {
			return df, nil
		}
	}
	var read []string
	for _, name := range mainColumns() {
		for _, end := range []string{"", "_low", "_high"} {
			if !slices.Contains(names, name+end) || !tells(df.Col(name+end), name) {
				continue
			}
			if end == "" || !equal(df.Col(name+end), df.Col(name)) {
				read = append(read, name+end)
			}
		}
	}
	more = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(read, n) })
	if len(more) == 0 {
		return df, nil
	}
	return df.Select(read), more
}

// tells reports whether a column has something to read: a measurement, or a run
// that failed or diverged.
func tells(s series.Series, name string) bool {
	if s.Type() == series.String || name != "failed" && name != "diverged" && s.Type() != series.Float {
		return true
	}
	return slices.ContainsFunc(s.Float(), func(v float64) bool {
		return !math.IsNaN(v) && (v != 0 || s.Type() == series.Float)
	})
}

// element writes one cell of the table: numbers to the right, text to the left.
func element(e series.Element) string {
	switch {
	case e.IsNA() && e.Type() != series.Float:
		return "<td>NaN</td>"
	case e.Type() == series.Float:
		return "<td style=\"text-align: right\">" + strconv.FormatFloat(e.Float(), 'g', 6, 64) + "</td>"
	case e.Type() == series.Int:
		return "<td style=\"text-align: right\">" + html.EscapeString(e.String()) + "</td>"
	}
	return "<td style=\"text-align: left\">" + html.EscapeString(e.String()) + "</td>"
}

// equal reports whether an end of an interval is the value itself wherever it is
// known, as for the speed-up of the baseline over itself.
func equal(end, value series.Series) bool {
	v := value.Float()
	for i, e := range end.Float() {
		if !math.IsNaN(e) && e != v[i] {
			return false
		}
	}
	return true
}
