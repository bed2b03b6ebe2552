package scaling

import (
	"fmt"
	"html"
	"io"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/grid"
)

// maxListedInputs is the maximum number of inputs with the same role, run and column that String
// lists. HTML and the table contain all inputs.
const maxListedInputs = 8

// Location returns "file:line", or the file if Line is 0.
func (in Input) Location() string {
	if in.Line == 0 {
		return in.File
	}
	return fmt.Sprintf("%s:%d", in.File, in.Line)
}

func (in Input) format() string {
	s := in.Name
	if in.Epoch > 0 {
		s = fmt.Sprintf("epoch %d %s", in.Epoch, s)
	}
	s = fmt.Sprintf("%s = %s", s, english.FormatTenDigits(in.Value))
	if in.Unit != "" {
		s += " " + in.Unit
	}
	if !in.Counted {
		s += ", not counted"
	}
	if in.Why != "" {
		s += " (" + in.Why + ")"
	}
	return s + "  " + in.Location()
}

// String formats the explanation as text for a terminal.
func (x ExplainedNumber) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s at %s: %s\n", x.Metric, x.Series, english.FormatCount(x.Workers, "worker"), x.Result)
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
		if listed[kind]++; listed[kind] <= maxListedInputs {
			fmt.Fprintf(&b, "    %s\n", in.format())
		} else {
			more++
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, "    and %d more inputs like these: see the table (--format csv)\n", more)
	}
	return b.String()
}

// HTML formats the explanation for a notebook or a page, with ID as its anchor.
func (x ExplainedNumber) HTML() string {
	var b strings.Builder
	e := html.EscapeString
	fmt.Fprintf(&b, "<div id=\"%s\">\n<h4>%s of %s at %s: %s</h4>\n", e(x.ID), e(x.Metric), e(x.Series), english.FormatCount(x.Workers, "worker"), e(x.Result.String()))
	fmt.Fprintf(&b, "<p>%s<br>%s</p>\n", e(x.Formula), e(x.Substituted))
	fmt.Fprintf(&b, "<p><small>rule: %s</small></p>\n", e(x.Rule))
	for _, n := range x.Notes {
		fmt.Fprintf(&b, "<p><small>%s</small></p>\n", e(n))
	}
	// The classic notebook's styles would hide the triangle that opens the section.
	fmt.Fprintf(&b, "<details><summary style=\"display: list-item\">%s</summary>\n<table>\n<tr><th>role</th><th>epoch</th><th>name</th><th>value</th><th>counts</th><th>where</th></tr>\n", english.FormatCount(len(x.Inputs), "input"))
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
			e(in.Role), epoch, e(in.Name), english.FormatTenDigits(in.Value), e(in.Unit), e(counts), e(in.Location()))
	}
	b.WriteString("</table>\n</details>\n</div>\n")
	return b.String()
}

type inputRow struct {
	x  ExplainedNumber
	in Input
}

// explanationTables shows an explanation as formulas in String and HTML. Files contain one row per
// input.
type explanationTables struct {
	grid.Grid[inputRow]
	items []ExplainedNumber
}

func (e explanationTables) String() string {
	var parts []string
	for _, x := range e.items {
		parts = append(parts, x.String())
	}
	return strings.Join(parts, "\n")
}

func (e explanationTables) HTML() string {
	var b strings.Builder
	for _, x := range e.items {
		b.WriteString(x.HTML())
	}
	return b.String()
}

func (e explanationTables) Write(w io.Writer, format string) error {
	if format != FormatTable {
		return e.Grid.Write(w, format)
	}
	if _, err := io.WriteString(w, e.String()); err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	return nil
}

func (e *Explanation) table(maxRows int) resultTable {
	g := grid.Grid[inputRow]{What: "explanation", Columns: []grid.Column[inputRow]{
		{Name: "metric", Text: func(r inputRow) string { return r.x.Metric }},
		{Name: "series", Text: func(r inputRow) string { return r.x.Series }},
		{Name: "workers", Count: func(r inputRow) int { return r.x.Workers }},
		{Name: "result", Value: func(r inputRow) float64 { return r.x.Result.Value }},
		{Name: "role", Text: func(r inputRow) string { return r.in.Role }},
		{Name: "run", Text: func(r inputRow) string { return r.in.Run }},
		{Name: "file", Text: func(r inputRow) string { return r.in.File }},
		{Name: "line", Count: func(r inputRow) int { return r.in.Line }},
		{Name: "epoch", Count: func(r inputRow) int { return r.in.Epoch }},
		{Name: "name", Text: func(r inputRow) string { return r.in.Name }},
		{Name: "value", Value: func(r inputRow) float64 { return r.in.Value }},
		{Name: "unit", Text: func(r inputRow) string { return r.in.Unit }},
		{Name: "counted", Flag: func(r inputRow) bool { return r.in.Counted }},
		{Name: "why", Text: func(r inputRow) string { return r.in.Why }},
	}}
	for _, x := range limitRows(e.Items, maxRows) {
		for _, in := range x.Inputs {
			g.Rows = append(g.Rows, inputRow{x, in})
		}
	}
	return explanationTables{g, limitRows(e.Items, maxRows)}
}
