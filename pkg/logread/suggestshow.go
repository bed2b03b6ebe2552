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

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/logread/internal/tidy"
	"lockstep/pkg/runs"
)

// Limits of the preview that String and HTML show.
const (
	previewRuns   = 8
	previewEpochs = 5
)

// String returns the proposal: the rules with the evidence for each field, a preview of the values, and the
// commands that use the rules.
func (s *Suggestion) String() string {
	var b strings.Builder
	s.writeProposal(&b)
	if !s.proposes() {
		b.WriteString("no rules are proposed\n")
		return b.String()
	}
	b.WriteString("\nThese rules are not applied yet. Check the proposal, then run\n")
	for _, c := range s.Commands() {
		fmt.Fprintf(&b, "  %s\n", c)
	}
	fmt.Fprintf(&b, "or add --suggest --save, which keeps the rules in %s beside the logs.\n", RulesFile)
	return b.String()
}

// writeProposal writes the rules, the preview and the notes.
func (s *Suggestion) writeProposal(b *strings.Builder) {
	for _, k := range s.Known {
		fmt.Fprintf(b, "no rules needed: %s\n", clean.Text(k))
	}
	for _, u := range s.Unknown {
		fmt.Fprintf(b, "no proposal: %s\n", clean.Text(u))
	}
	places := false
	for _, list := range []struct {
		flag, unit string
		rules      []RuleSuggestion
	}{{"--line", "line", s.Lines}, {"--columns", "table", s.Columns}} {
		for _, x := range list.rules {
			fmt.Fprintf(b, "\n%s %s\n    %s (%s), such as:\n    %s\n", list.flag, clean.Text(process.QuoteArgument(x.Rule)), english.Count(x.Count, list.unit), x.Kind, clean.Text(x.Example))
			w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
			for _, f := range x.Fields {
				places = places || f.Name[0] == '?'
				fmt.Fprintf(w, "      {%s}\t%s\t%s\n", f.Name, clean.Text(f.Example), clean.Text(f.Why))
			}
			_ = w.Flush() // a strings.Builder returns no error
		}
	}
	if places {
		b.WriteString("\nNothing shows what {?1}, {?2}, … are; they are read like *. If you know it, write a field there, such as {seconds} or {train_loss}.\n")
	}
	if len(s.Preview) > 0 {
		b.WriteString("\npreview\n")
		writePreview(b, s.Preview)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(b, "note: %s\n", clean.Text(n))
	}
}

// writePreview writes a table with one row per epoch of the first runs and epochs, and the names of their curves.
// Values that no epoch has are no columns.
func writePreview(b *strings.Builder, all []runs.Run) {
	var names, curves []string
	hidden := 0
	for i, r := range all {
		if i >= previewRuns {
			hidden += len(r.Epochs)
			continue
		}
		hidden += max(0, len(r.Epochs)-previewEpochs)
		for _, e := range r.Epochs {
			for _, v := range tidy.EpochValues(e) {
				if !math.IsNaN(v.V) && v.Name != "padding_samples" && !slices.Contains(names, v.Name) {
					names = append(names, v.Name)
				}
			}
		}
		for _, c := range r.Curves {
			if name := fmt.Sprintf("%s (%s)", clean.Text(c.Name), english.Count(len(c.Values), "value")); !slices.Contains(curves, name) {
				curves = append(curves, name)
			}
		}
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "    %s\n", strings.Join(append([]string{"run", "workers", "epoch"}, names...), "\t"))
	for _, r := range all[:min(len(all), previewRuns)] {
		workers := "unknown"
		if r.Info.Workers > 0 {
			workers = strconv.Itoa(r.Info.Workers)
		}
		for _, e := range r.Epochs[:min(len(r.Epochs), previewEpochs)] {
			fmt.Fprintf(w, "    %s\t%s\t%d", clean.Text(filepath.Base(r.Dir)), workers, e.Epoch)
			values := tidy.EpochValues(e)
			for _, name := range names {
				cell := ""
				if k := slices.IndexFunc(values, func(v tidy.Value) bool { return v.Name == name && !math.IsNaN(v.V) }); k >= 0 {
					cell = strconv.FormatFloat(values[k].V, 'g', 6, 64)
				}
				fmt.Fprintf(w, "\t%s", cell)
			}
			fmt.Fprintln(w)
		}
	}
	_ = w.Flush() // a strings.Builder returns no error
	if hidden > 0 {
		fmt.Fprintf(b, "    and %s\n", english.Count(hidden, "more epoch"))
	}
	if len(curves) > 0 {
		fmt.Fprintf(b, "    curves: %s\n", strings.Join(curves, ", "))
	}
}

// HTML returns the proposal as HTML: its text, and the rules as Go code.
func (s *Suggestion) HTML() string {
	var b strings.Builder
	s.writeProposal(&b)
	if !s.proposes() {
		b.WriteString("no rules are proposed\n")
	} else {
		fmt.Fprintf(&b, "\nThese rules are not applied yet. To apply them:\n%s\n", clean.Lines(s.code()))
	}
	return "<pre style=\"white-space:pre-wrap\">" + html.EscapeString(b.String()) + "</pre>\n"
}

// code returns the options with the proposed rules as Go code.
func (s *Suggestion) code() string {
	var lists []string
	r := s.Rules()
	for _, list := range []struct {
		name  string
		items []string
	}{{"Lines", r.Lines}, {"Columns", r.Columns}} {
		code := list.name + ": []string{\n"
		for _, item := range list.items {
			text := strconv.Quote(item)
			if strconv.CanBackquote(item) {
				text = "`" + item + "`"
			}
			code += "\t" + text + ",\n"
		}
		if len(list.items) > 0 {
			lists = append(lists, code+"}")
		}
	}
	return "logread.Options{" + strings.Join(lists, ", ") + "}"
}
