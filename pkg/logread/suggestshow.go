package logread

import (
	"fmt"
	"html"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/logread/internal/tidy"
	"lockstep/pkg/runs"
)

// ColumnSuggestion is the proposed meaning of the columns of tables with the same
// header.
type ColumnSuggestion struct {
	Mapping string // for Options.Columns
	Example string // the header
	Files   int
	Fields  []FieldSuggestion
}

// Limits of the preview that String and HTML show.
const (
	previewRuns   = 8
	previewEpochs = 5
)

// previewTable contains the cells of the preview. The first row is the header.
type previewTable struct {
	rows [][]string
	more string // what the table does not show; may be empty
}

// newPreviewTable returns a table with one row per epoch, of the first runs and
// epochs. Values that no epoch has are no columns.
func newPreviewTable(all []runs.Run) previewTable {
	var names []string
	for _, r := range all {
		for _, e := range r.Epochs {
			for _, v := range tidy.EpochValues(e) {
				if !math.IsNaN(v.V) && v.Name != "padding_samples" && !slices.Contains(names, v.Name) {
					names = append(names, v.Name)
				}
			}
		}
	}
	t := previewTable{rows: [][]string{append([]string{"run", "workers", "epoch"}, names...)}}
	hidden := 0
	for i, r := range all {
		if i >= previewRuns {
			hidden += len(r.Epochs)
			continue
		}
		workers := "unknown"
		if r.Info.Workers > 0 {
			workers = strconv.Itoa(r.Info.Workers)
		}
		hidden += max(0, len(r.Epochs)-previewEpochs)
		for _, e := range r.Epochs[:min(len(r.Epochs), previewEpochs)] {
			row := []string{filepath.Base(r.Dir), workers, strconv.Itoa(e.Epoch)}
			values := map[string]float64{}
			for _, v := range tidy.EpochValues(e) {
				values[v.Name] = v.V
			}
			for _, name := range names {
				cell := ""
				if v, ok := values[name]; ok && !math.IsNaN(v) {
					cell = strconv.FormatFloat(v, 'g', 6, 64)
				}
				row = append(row, cell)
			}
			t.rows = append(t.rows, row)
		}
	}
	if hidden > 0 {
		t.more = "and " + english.Count(hidden, "more epoch")
	}
	return t
}

// curveNotes returns one line per run with the logged metrics of the preview.
func curveNotes(all []runs.Run) []string {
	var notes []string
	for _, r := range all[:min(len(all), previewRuns)] {
		var curves []string
		for _, c := range r.Curves {
			name := c.Name
			if c.Rank >= 0 {
				name += fmt.Sprintf(" of rank %d", c.Rank)
			}
			curves = append(curves, fmt.Sprintf("%s (%s)", name, english.Count(len(c.Values), "value")))
		}
		if len(curves) > 0 {
			notes = append(notes, fmt.Sprintf("curves of %s: %s", filepath.Base(r.Dir), strings.Join(curves, ", ")))
		}
	}
	return notes
}

// String returns the proposal: the rules with the reason for each field, a
// preview of the values, and the commands that use the rules.
func (s *Suggestion) String() string {
	var b strings.Builder
	for _, k := range s.Known {
		fmt.Fprintf(&b, "no rules needed: %s\n", clean.Text(k))
	}
	for _, u := range s.Unknown {
		fmt.Fprintf(&b, "no proposal: %s\n", clean.Text(u))
	}
	for _, l := range s.Lines {
		fmt.Fprintf(&b, "\n--line %s\n    %s (%s), such as:\n    %s\n", clean.Text(process.QuoteArgument(l.Template)), english.Count(l.Lines, "line"), l.Kind, clean.Text(l.Example))
		writeFields(&b, l.Fields)
	}
	for _, c := range s.Columns {
		fmt.Fprintf(&b, "\n--columns %s\n    %s with the columns %s\n", clean.Text(process.QuoteArgument(c.Mapping)), english.Count(c.Files, "table"), clean.Text(c.Example))
		writeFields(&b, c.Fields)
	}
	if len(s.Preview) > 0 {
		b.WriteString("\npreview\n")
		t := newPreviewTable(s.Preview)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range t.rows {
			for i := range row {
				row[i] = clean.Text(row[i])
			}
			fmt.Fprintf(w, "    %s\n", strings.Join(row, "\t"))
		}
		_ = w.Flush() // a strings.Builder returns no error
		if t.more != "" {
			fmt.Fprintf(&b, "    %s\n", t.more)
		}
		for _, n := range curveNotes(s.Preview) {
			fmt.Fprintf(&b, "    %s\n", clean.Text(n))
		}
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", clean.Text(n))
	}
	commands := s.Commands()
	if len(commands) == 0 {
		b.WriteString("no rules are proposed\n")
		return b.String()
	}
	b.WriteString("\nThese rules are not applied yet. Check the proposal, then run\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %s\n", c)
	}
	fmt.Fprintf(&b, "or add --suggest --save, which keeps the rules in %s beside the logs.\n", RulesFile)
	return b.String()
}

// writeFields writes one line per field that is used or skipped.
func writeFields(b *strings.Builder, fields []FieldSuggestion) {
	width, example := 0, 0
	for _, f := range fields {
		width, example = max(width, len(f.shownName())), max(example, utf8.RuneCountInString(f.Example))
	}
	for _, f := range fields {
		fmt.Fprintf(b, "      %-*s  %-*s  %s\n", width, f.shownName(), example, clean.Text(f.Example), clean.Text(f.Why))
	}
}

// shownName returns the name of the field, or "(skipped)".
func (f FieldSuggestion) shownName() string {
	switch {
	case f.Name == "":
		return "(skipped)"
	case f.Guessed:
		return f.Name + " (metric)"
	}
	return f.Name
}

// Table returns a table with one row per field of the proposed rules and the
// columns rule, field, example, and reason.
func (s *Suggestion) Table() dataframe.DataFrame {
	var rule, field, example, reason []string
	s.eachField(func(text string, f FieldSuggestion) {
		rule, field = append(rule, text), append(field, f.Name)
		example, reason = append(example, f.Example), append(reason, f.Why)
	})
	return dataframe.New(
		series.New(rule, series.String, "rule"), series.New(field, series.String, "field"),
		series.New(example, series.String, "example"), series.New(reason, series.String, "reason"),
	)
}

// eachField calls use for the fields of all rules.
func (s *Suggestion) eachField(use func(rule string, f FieldSuggestion)) {
	for _, l := range s.Lines {
		for _, f := range l.Fields {
			use(l.Template, f)
		}
	}
	for _, c := range s.Columns {
		for _, f := range c.Fields {
			use(c.Mapping, f)
		}
	}
}

// HTML returns the proposal as HTML: a table of the rules with the reason for each
// field, a table of the preview, and the rules as Go code.
func (s *Suggestion) HTML() string {
	var b strings.Builder
	text := func(t string) string { return html.EscapeString(clean.Text(t)) }
	paragraphs := func(label string, list []string) {
		for _, t := range list {
			fmt.Fprintf(&b, "<p>%s%s</p>\n", label, text(t))
		}
	}
	paragraphs("No rules needed: ", s.Known)
	paragraphs("No proposal: ", s.Unknown)
	if len(s.Lines)+len(s.Columns) == 0 {
		b.WriteString("<p>No rules are proposed.</p>\n")
		paragraphs("", s.Notes)
		return b.String()
	}
	b.WriteString("<table><thead><tr><th>field</th><th>first value</th><th>reason</th></tr></thead><tbody>\n")
	last := ""
	s.eachField(func(rule string, f FieldSuggestion) {
		if rule != last {
			last = rule
			fmt.Fprintf(&b, "<tr><th colspan=\"3\" style=\"text-align:left\"><code>%s</code></th></tr>\n", text(rule))
		}
		fmt.Fprintf(&b, "<tr><td>%s</td><td>%s</td><td style=\"text-align:left\">%s</td></tr>\n", text(f.shownName()), text(f.Example), text(f.Why))
	})
	b.WriteString("</tbody></table>\n")
	if len(s.Preview) > 0 {
		b.WriteString("<p>Preview</p>\n<table><thead>\n")
		t := newPreviewTable(s.Preview)
		for i, row := range t.rows {
			tag := "td"
			if i == 0 {
				tag = "th"
			}
			b.WriteString("<tr>")
			for _, cell := range row {
				fmt.Fprintf(&b, "<%s>%s</%s>", tag, text(cell), tag)
			}
			b.WriteString("</tr>\n")
			if i == 0 {
				b.WriteString("</thead><tbody>\n")
			}
		}
		b.WriteString("</tbody></table>\n")
		if t.more != "" {
			paragraphs("", []string{t.more})
		}
		paragraphs("", curveNotes(s.Preview))
	}
	paragraphs("Note: ", s.Notes)
	fmt.Fprintf(&b, "<p>These rules are not applied yet. To apply them:</p>\n<pre style=\"white-space:pre-wrap\">%s</pre>\n", html.EscapeString(clean.Lines(s.code())))
	return b.String()
}

// code returns the options with the proposed rules as Go code.
func (s *Suggestion) code() string {
	var b strings.Builder
	r := s.Rules()
	b.WriteString("logread.Options{")
	for _, list := range []struct {
		name  string
		items []string
	}{{"Lines", r.Lines}, {"Columns", r.Columns}} {
		if len(list.items) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s: []string{\n", list.name)
		for _, item := range list.items {
			if strconv.CanBackquote(item) {
				fmt.Fprintf(&b, "\t`%s`,\n", item)
			} else {
				fmt.Fprintf(&b, "\t%q,\n", item)
			}
		}
		b.WriteString("}, ")
	}
	return strings.TrimSuffix(b.String(), ", ") + "}"
}
