package show

import (
	"fmt"
	"html"
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
	return Forms{HTML: b.String(), Text: df.String()}, nil
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
