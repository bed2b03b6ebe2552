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

// Maximum numbers of rows and columns of a shown table. The notebook file contains the output, and a table
// of a hundred thousand rows would make it too large to save or open.
const (
	maxRows = 60
	maxCols = 30
)

// renderTable formats a DataFrame as HTML and as text. It returns the DataFrame's own error, as after a
// failed operation of gota.
func renderTable(df dataframe.DataFrame) (Bundle, error) {
	if df.Err != nil {
		return nil, df.Err
	}
	df, more := selectMainColumns(df)
	if more == nil {
		df, more = selectDifferingColumns(df)
	}
	rows, cols := df.Dims()
	names, types := df.Names(), df.Types()
	var b strings.Builder
	b.WriteString("<div style=\"overflow-x: auto\"><table border=\"1\" class=\"dataframe\">\n<thead><tr>")
	for c := range min(cols, maxCols) {
		fmt.Fprintf(&b, "<th title=\"%s\">%s</th>", html.EscapeString(string(types[c])), strings.ReplaceAll(html.EscapeString(names[c]), "_", "_<wbr/>")) // a long name may take two lines
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for r := range min(rows, maxRows) {
		b.WriteString("<tr>")
		for c := range min(cols, maxCols) {
			b.WriteString(formatElement(df.Elem(r, c)))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody>\n</table></div>\n")
	if rows > maxRows || cols > maxCols {
		fmt.Fprintf(&b, "<p>%d of %d rows, %d of %d columns</p>\n", min(rows, maxRows), rows, min(cols, maxCols), cols)
	}
	text := df.String()
	if len(more) > 0 {
		note := fmt.Sprintf("%d more columns: %s", len(more), strings.Join(more, ", "))
		fmt.Fprintf(&b, "<p title=\"%s\">%d more columns; Names() lists them all</p>\n", html.EscapeString(strings.Join(more, ", ")), len(more))
		text += "\n" + note
	}
	return Bundle{HTML: b.String(), Text: text}, nil
}

// mainColumns returns the columns of a study's table that matter to most readers, in reading order. A column
// may have companions with its bounds, named _low and _high.
func mainColumns() []string {
	return []string{
		"series", "workers", "runs", "epoch_seconds", "throughput", "speedup", "efficiency",
		"iou", "dice", "accuracy", "val_accuracy", "failed", "diverged",
	}
}

// selectMainColumns reduces a study's table to its main columns, and returns the names of the others in
// more. Any other DataFrame is unchanged.
func selectMainColumns(df dataframe.DataFrame) (shown dataframe.DataFrame, more []string) {
	names := df.Names()
	for _, needed := range []string{"series", "workers", "epoch_seconds", "throughput", "speedup", "efficiency"} {
		if !slices.Contains(names, needed) {
			return df, nil
		}
	}
	var read []string
	for _, name := range mainColumns() {
		for _, end := range []string{"", "_low", "_high"} {
			if !slices.Contains(names, name+end) || !isInformative(df.Col(name+end), name) {
				continue
			}
			if end == "" || !boundEqualsValue(df.Col(name+end), df.Col(name)) {
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

// selectDifferingColumns removes columns with equal cells if there are more than maxCols columns, and
// returns their names in more.
func selectDifferingColumns(df dataframe.DataFrame) (shown dataframe.DataFrame, more []string) {
	rows, cols := df.Dims()
	if cols <= maxCols || rows < 2 {
		return df, nil
	}
	var kept []int
	for c, name := range df.Names() {
		first, differs := df.Elem(0, c).String(), false
		for r := 1; r < rows && !differs; r++ {
			differs = df.Elem(r, c).String() != first
		}
		if differs {
			kept = append(kept, c)
		} else {
			more = append(more, name)
		}
	}
	if len(kept) == 0 {
		return df, nil
	}
	return df.Select(kept), more
}

// isInformative reports whether a column is worth showing, unlike measurements that are all NaN, and counts
// of failed or diverged runs that are all 0.
func isInformative(s series.Series, name string) bool {
	if s.Type() == series.String || name != "failed" && name != "diverged" && s.Type() != series.Float {
		return true
	}
	return slices.ContainsFunc(s.Float(), func(v float64) bool {
		return !math.IsNaN(v) && (v != 0 || s.Type() == series.Float)
	})
}

// formatElement formats a cell of the HTML table: numbers right-aligned, text left-aligned.
func formatElement(e series.Element) string {
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

// boundEqualsValue reports whether a bound equals the value wherever it is known, as for the speed-up of the
// baseline relative to itself. Such a column need not be shown.
func boundEqualsValue(bound, value series.Series) bool {
	v := value.Float()
	for i, e := range bound.Float() {
		if !math.IsNaN(e) && e != v[i] {
			return false
		}
	}
	return true
}
