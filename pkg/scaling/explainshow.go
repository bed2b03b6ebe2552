package scaling

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/go-gota/gota/dataframe"
)

// mostLines is how many inputs that do not differ in kind are listed for
// people in a terminal; a page and a file have all.
const mostLines = 8

// Where is the place of the number: file:line.
func (in Input) Where() string {
	if in.Line == 0 {
		return in.File
	}
	return fmt.Sprintf("%s:%d", in.File, in.Line)
}

// text is the input in a line.
func (in Input) text() string {
	s := in.Name
	if in.Epoch > 0 {
		s = fmt.Sprintf("epoch %d %s", in.Epoch, s)
	}
	s = fmt.Sprintf("%s = %s", s, full(in.Value))
	if in.Unit != "" {
		s += " " + in.Unit
	}
	if !in.Counted {
		s += ", not counted"
	}
	if in.Why != "" {
		s += " (" + in.Why + ")"
	}
	return s + "  " + in.Where()
}

// String is the explanation for people in a terminal.
func (x Explained) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s at %s: %s\n", x.Metric, x.Series, plural(x.Workers, "worker"), x.Result)
	fmt.Fprintf(&b, "  formula: %s\n", x.Formula)
	if x.Substituted != "" {
		fmt.Fprintf(&b, "  numbers: %s\n", x.Substituted)
	}
	fmt.Fprintf(&b, "  rule: %s\n", x.Rule)
	for _, n := range x.Notes {
		fmt.Fprintf(&b, "  note: %s\n", n)
	}
	role, listed, more := "", map[string]int{}, 0
	for _, in := range x.Inputs {
		if in.Role != role {
			role = in.Role
			fmt.Fprintf(&b, "  %s\n", role)
		}
		kind := fmt.Sprint(in.Role, in.Run, in.Name, in.Counted)
		if listed[kind]++; listed[kind] <= mostLines {
			fmt.Fprintf(&b, "    %s\n", in.text())
		} else {
			more++
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, "    and %d more like these, which the table has (--format csv)\n", more)
	}
	return b.String()
}

// HTML is the explanation for a notebook's cell or a page, where its ID is the
// anchor.
func (x Explained) HTML() string {
	var b strings.Builder
	e := html.EscapeString
	fmt.Fprintf(&b, "<div id=\"%s\">\n<h4>%s of %s at %s: %s</h4>\n", e(x.ID), e(x.Metric), e(x.Series), plural(x.Workers, "worker"), e(x.Result.String()))
	fmt.Fprintf(&b, "<p>%s<br>%s</p>\n", e(x.Formula), e(x.Substituted))
	fmt.Fprintf(&b, "<p><small>rule: %s</small></p>\n", e(x.Rule))
	for _, n := range x.Notes {
		fmt.Fprintf(&b, "<p><small>%s</small></p>\n", e(n))
	}
	fmt.Fprintf(&b, "<details><summary>%s</summary>\n<table>\n<tr><th>role</th><th>epoch</th><th>name</th><th>value</th><th>counts</th><th>where</th></tr>\n", plural(len(x.Inputs), "input"))
	for _, in := range x.Inputs {
		epoch, counts := "", "yes"
		if in.Epoch > 0 {
			epoch = fmt.Sprint(in.Epoch)
		}
		if !in.Counted {
			counts = "no"
		}
		if in.Why != "" {
			counts += ": " + in.Why
		}
		fmt.Fprintf(&b, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s %s</td><td>%s</td><td>%s</td></tr>\n",
			e(in.Role), epoch, e(in.Name), full(in.Value), e(in.Unit), e(counts), e(in.Where()))
	}
	b.WriteString("</table>\n</details>\n</div>\n")
	return b.String()
}

// String is the explanation of each series.
func (e *Explanation) String() string {
	var parts []string
	for _, x := range e.Items {
		parts = append(parts, x.String())
	}
	return strings.Join(parts, "\n")
}

// HTML is the explanation of each series for a notebook's cell.
func (e *Explanation) HTML() string {
	var b strings.Builder
	for _, x := range e.Items {
		b.WriteString(x.HTML())
	}
	return b.String()
}

// inputRow is an input with what it is for.
type inputRow struct {
	x  Explained
	in Input
}

func (e *Explanation) grid() grid[inputRow] {
	g := grid[inputRow]{what: "explanation", columns: []column[inputRow]{
		{name: "metric", text: func(r inputRow) string { return r.x.Metric }},
		{name: "series", text: func(r inputRow) string { return r.x.Series }},
		{name: "workers", count: func(r inputRow) int { return r.x.Workers }},
		{name: "result", value: func(r inputRow) float64 { return r.x.Result.Value }},
		{name: "role", text: func(r inputRow) string { return r.in.Role }},
		{name: "run", text: func(r inputRow) string { return r.in.Run }},
		{name: "file", text: func(r inputRow) string { return r.in.File }},
		{name: "line", count: func(r inputRow) int { return r.in.Line }},
		{name: "epoch", count: func(r inputRow) int { return r.in.Epoch }},
		{name: "name", text: func(r inputRow) string { return r.in.Name }},
		{name: "value", value: func(r inputRow) float64 { return r.in.Value }},
		{name: "unit", text: func(r inputRow) string { return r.in.Unit }},
		{name: "counted", flag: func(r inputRow) bool { return r.in.Counted }},
		{name: "why", text: func(r inputRow) string { return r.in.Why }},
	}}
	for _, x := range e.Items {
		for _, in := range x.Inputs {
			g.rows = append(g.rows, inputRow{x, in})
		}
	}
	return g
}

// Table has a row an input: metric, series, workers, result, role, run, file,
// line, epoch, name, value, unit, counted, why. Line and epoch are 0 where a
// number has none.
func (e *Explanation) Table() dataframe.DataFrame { return e.grid().table() }

// Write writes the explanation as "table" (formulas and inputs for people),
// or its inputs as "csv" or "json".
func (e *Explanation) Write(w io.Writer, format string) error {
	if format == FormatTable {
		if _, err := io.WriteString(w, e.String()); err != nil {
			return fmt.Errorf("write explanation: %w", err)
		}
		return nil
	}
	return e.grid().write(w, format)
}
