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

// String returns the rules with the evidence for each field, a preview of the values, and the
// commands that use the rules.
func (s *Suggestion) String() string {
	text := s.describeProposal()
	if s.hasNewRules() {
		text += fmt.Sprintf("\nThese rules are not applied yet. Check the proposal, then run\n  %s\nor add --suggest --save, which keeps the rules in %s beside the logs.\n", strings.Join(s.Commands(), "\n  "), RulesFile)
	}
	return text
}

// HTML returns the proposal as HTML.
func (s *Suggestion) HTML() string {
	text := s.describeProposal()
	if s.hasNewRules() {
		text += "\nThese rules are not applied yet. Check the proposal, then read with\n  logread.Options{Lines: s.Rules().Lines, Columns: s.Rules().Columns}\nor keep the rules beside the logs with s.Save(folder).\n"
	}
	return "<pre style=\"white-space:pre-wrap\">" + html.EscapeString(text) + "</pre>\n"
}

func (s *Suggestion) describeProposal() string {
	var b strings.Builder
	for _, k := range s.Known {
		fmt.Fprintf(&b, "no rules needed: %s\n", clean.EscapeText(k))
	}
	for _, u := range s.Unknown {
		fmt.Fprintf(&b, "no proposal: %s\n", clean.EscapeText(u))
	}
	places := false
	for _, list := range []struct {
		flag, unit string
		rules      []RuleSuggestion
	}{{"--line", "line", s.Lines}, {"--columns", "table", s.Columns}} {
		for _, x := range list.rules {
			fmt.Fprintf(&b, "\n%s %s\n    %s (%s), such as:\n    %s\n", list.flag, clean.EscapeText(process.QuoteShellArgument(x.Rule)), english.FormatCount(x.Count, list.unit), x.Kind, clean.EscapeText(x.Example))
			w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
			for _, f := range x.Fields {
				places = places || f.Name[0] == '?'
				fmt.Fprintf(w, "      {%s}\t%s\t%s\n", f.Name, clean.EscapeText(f.Example), clean.EscapeText(f.Why))
			}
			_ = w.Flush() // a strings.Builder returns no error
		}
	}
	if places {
		b.WriteString("\nNothing shows what {?1}, {?2}, … are; they are read like *. If you know it, write a field there, such as {seconds} or {train_loss}.\n")
	}
	if len(s.Preview) > 0 {
		b.WriteString("\npreview\n")
		writePreview(&b, s.Preview)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", clean.EscapeText(n))
	}
	if !s.hasNewRules() {
		b.WriteString("no rules are proposed\n")
	}
	return b.String()
}

func writePreview(b *strings.Builder, all []runs.Run) {
	var curves []string
	hidden := 0
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i, r := range all {
		workers := "workers unknown"
		if r.Info.Workers > 0 {
			workers = english.FormatCount(r.Info.Workers, "worker")
		}
		for k, e := range r.Epochs {
			if i >= previewRuns || k >= previewEpochs {
				hidden++
				continue
			}
			fmt.Fprintf(w, "    %s\t%s\tepoch %d", clean.EscapeText(filepath.Base(r.Dir)), workers, e.Epoch)
			for _, v := range tidy.EpochValues(e) {
				if !math.IsNaN(v.V) && v.Name != "padding_samples" {
					fmt.Fprintf(w, "\t%s %s", v.Name, strconv.FormatFloat(v.V, 'g', 6, 64))
				}
			}
			fmt.Fprintln(w)
		}
		for _, c := range r.Curves {
			if name := fmt.Sprintf("%s (%s)", clean.EscapeText(c.Name), english.FormatCount(len(c.Values), "value")); i < previewRuns && !slices.Contains(curves, name) {
				curves = append(curves, name)
			}
		}
	}
	_ = w.Flush() // a strings.Builder returns no error
	if hidden > 0 {
		fmt.Fprintf(b, "    and %s\n", english.FormatCount(hidden, "more epoch"))
	}
	if len(curves) > 0 {
		fmt.Fprintf(b, "    curves: %s\n", strings.Join(curves, ", "))
	}
}
