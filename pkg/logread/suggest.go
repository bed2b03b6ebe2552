package logread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/suggest"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog"
	"lockstep/pkg/runs"
)

// RuleSuggestion is a proposed template for Options.Lines, or a proposed mapping for Options.Columns.
type RuleSuggestion struct {
	Rule    string
	Kind    string // what the lines contain, such as "epoch" or "step", or "table"
	Example string // the first such line, or the header of the table
	Count   int    // number of such lines in the part of the logs that was examined, or of such tables
	Fields  []FieldSuggestion
}

// FieldSuggestion is the proposed meaning of a number of a line or of a column.
type FieldSuggestion struct {
	Name    string // of a field, or of a place such as ?1, whose meaning is not known
	Example string // its first values
	Why     string // empty for a place
}

// Suggestion is a proposal for reading logs of unknown format. It takes effect only if its rules
// are passed to Options or saved.
type Suggestion struct {
	Lines   []RuleSuggestion
	Columns []RuleSuggestion
	Known   []string // files that need no rules, with their kind
	Unknown []string // files for which there is no proposal, with the reason
	Notes   []string
	// Preview contains the runs that are read with the proposed rules. Of a file longer than 16
	// MiB, only the beginning is read.
	Preview []runs.Run

	paths []string // as the caller named them
	given Rules    // of the options
}

// Suggest proposes rules for reading the logs in and below the paths, which [runs.LocateLogs] resolves, if
// no known format reads them: templates for lines that repeat, and the column of the time of a table of runs. It
// examines the first and last lines of at most 64 files.
//
// A number is named only if the words beside it are the name of a field and its values behave like those of
// the field. Other numbers are places such as {?1}, which a template reads like *. If you know what a place
// is, write the name of a field there.
//
//	s, err := logread.Suggest("results/run1.log")
//	if err != nil {
//		return err
//	}
//	fmt.Println(s)                                  // the proposal with its evidence, and a preview
//	o := logread.Options{Lines: s.Rules().Lines}    // to use it in this cell
//	_, err = s.Rules().Save("results")              // to use it always
func Suggest(paths ...string) (*Suggestion, error) {
	return Options{}.Suggest(context.Background(), paths...)
}

// Suggest is like the function [Suggest], with options. It proposes nothing for lines that
// templates of the options match.
func (o Options) Suggest(ctx context.Context, paths ...string) (s *Suggestion, err error) {
	if len(paths) == 0 {
		return nil, errors.New("suggest rules: no path given; name a log or a folder of logs such as logs/demo")
	}
	defer func() {
		if err != nil {
			s, err = nil, fmt.Errorf("suggest rules: %w", err)
		}
	}()
	s = &Suggestion{paths: paths, given: Rules{Lines: o.Lines, Columns: o.Columns}}
	for _, p := range o.As {
		s.given.As = append(s.given.As, p.String())
	}
	var places []string
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, err
		}
		places = append(places, place)
	}
	o.excerptBytes = excerptBytes
	texts, err := o.findUnknownTexts(ctx, s, places)
	if err != nil {
		return nil, err
	}
	s.proposeLines(s.proposeColumns(texts))
	return s, s.addPreview(ctx, o, places)
}

// proposeColumns adds proposals for the tables among the texts, and returns the texts that are not
// tables.
func (s *Suggestion) proposeColumns(texts []sampledText) (others []sampledText) {
	for _, t := range texts {
		var names []string
		for _, c := range t.columns {
			names = append(names, c.Name)
		}
		x := RuleSuggestion{Kind: "table", Example: strings.Join(names, ", "), Count: 1}
		same := slices.IndexFunc(s.Columns, func(o RuleSuggestion) bool { return o.Example == x.Example })
		switch wall := suggest.FindWallTimeColumn(t.columns); {
		case t.columns == nil:
			others = append(others, t)
		case t.known != "":
			s.Known = append(s.Known, fmt.Sprintf("%s: %s", t.path, t.known))
		case same >= 0:
			s.Columns[same].Count++
		default:
			if wall >= 0 {
				x.Rule = fields.WallSeconds + "=" + names[wall]
				if strings.ContainsAny(names[wall], ", ") {
					x.Rule = fmt.Sprintf(`%s="%s"`, fields.WallSeconds, names[wall])
				}
				x.Fields = []FieldSuggestion{{Name: fields.WallSeconds, Example: t.columns[wall].First, Why: fmt.Sprintf("column %q: the only time, and it is shorter with more workers", names[wall])}}
			}
			if parsed, err := table.ParseMappings([]string{x.Rule}); err == nil && wall >= 0 && table.IsReadable(t.head, slices.Concat(t.mapped, parsed)) {
				s.Columns = append(s.Columns, x)
				continue
			}
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s: nothing shows what the columns %s mean; name them with Options.Columns (--columns)", t.path, x.Example))
		}
	}
	return others
}

// proposeLines adds templates for the lines of the texts. It leaves out a template that also
// matches lines for which it was not proposed. If such a template contains the epoch number,
// proposeLines also leaves out templates for lines without one.
func (s *Suggestion) proposeLines(texts []sampledText) {
	var samples [][]textlog.Message
	for _, t := range texts {
		samples = append(samples, t.lines)
	}
	found := suggest.ProposeTemplates(samples)
	s.Notes = append(s.Notes, found.Notes...)
	used := make([]bool, len(texts))
	numbered := true
	for _, t := range found.Templates {
		lines, of := countMatches(t.Rule, texts)
		x := RuleSuggestion{Rule: t.Rule, Kind: string(t.Kind), Example: t.Example, Count: t.Count}
		for _, f := range t.Fields {
			x.Fields = append(x.Fields, FieldSuggestion(f))
		}
		switch {
		case t.Kind == suggest.Unknown:
			s.Lines = append(s.Lines, x)
		case t.Kind == suggest.Value && !numbered:
		case lines != t.Count:
			numbered = numbered && t.Kind != suggest.Opener && t.Kind != suggest.Epoch
			s.addNote("no template for lines such as %q: %q would also match others", t.Example, t.Rule)
		default:
			s.Lines = append(s.Lines, x)
			for i := range of {
				used[i] = used[i] || of[i]
			}
		}
	}
	for i, text := range texts {
		if !used[i] {
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s: nothing shows what the numbers of its lines mean", text.path))
		}
	}
}

// countMatches returns how many lines a template matches. of[i] reports whether texts[i] contains
// such a line.
func countMatches(rule string, texts []sampledText) (lines int, of []bool) {
	of = make([]bool, len(texts))
	parsed, err := template.Parse(rule)
	if err != nil {
		return 0, of
	}
	values := make([]template.Value, len(parsed.Fields()))
	for i, text := range texts {
		for _, line := range text.lines {
			if !line.System && parsed.Match([]byte(line.Text), values) {
				lines, of[i] = lines+1, true
			}
		}
	}
	return lines, of
}

// maxPreviewProblems is the maximum number of problems per file in the notes.
const maxPreviewProblems = 5

// addPreview reads the beginning of the logs with the rules of the options and the proposed rules.
// It adds assumptions and problems to the notes. If the logs cannot be read, it withdraws the
// proposal.
func (s *Suggestion) addPreview(ctx context.Context, o Options, places []string) error {
	if !s.hasNewRules() {
		return nil
	}
	proposed := s.Rules()
	o.Lines, o.Columns = proposed.Lines, proposed.Columns
	logs := &Logs{}
	if err := o.readInto(ctx, logs, places...); err != nil {
		s.Lines, s.Columns = nil, nil
		s.addNote("no usable rules were found: %v", err)
		return ctx.Err()
	}
	for _, r := range logs.Runs {
		if !slices.ContainsFunc(s.Known, func(known string) bool { return strings.HasPrefix(known, r.File+": ") }) {
			s.Preview = append(s.Preview, r)
		}
	}
	for _, r := range logs.Reports {
		if !slices.ContainsFunc(s.Preview, func(run runs.Run) bool { return run.File == r.Path }) {
			continue
		}
		if r.Bytes >= excerptBytes {
			s.addNote("the preview has only the first %d MiB of each file", excerptBytes>>20)
		}
		for _, a := range r.Assumed {
			s.addNote("taken: %s", a)
		}
		for _, p := range r.Unused[:min(len(r.Unused), maxPreviewProblems)] {
			s.addNote("problem: %s", p)
		}
		if n := len(r.Unused) - maxPreviewProblems; n > 0 {
			s.addNote("and %d more problems: see lockstep read --explain", n)
		}
	}
	return nil
}

func (s *Suggestion) addNote(format string, a ...any) {
	if note := fmt.Sprintf(format, a...); !slices.Contains(s.Notes, note) {
		s.Notes = append(s.Notes, note)
	}
}

// Rules returns the rules of the options followed by the proposed ones.
func (s *Suggestion) Rules() Rules {
	r := Rules{Lines: slices.Clone(s.given.Lines), Columns: slices.Clone(s.given.Columns), As: slices.Clone(s.given.As)}
	for _, l := range s.Lines {
		if l.Kind != string(suggest.Unknown) {
			r.Lines = append(r.Lines, l.Rule)
		}
	}
	for _, c := range s.Columns {
		r.Columns = append(r.Columns, c.Rule)
	}
	return r
}

// hasNewRules reports whether there are rules besides those of the options.
func (s *Suggestion) hasNewRules() bool {
	r := s.Rules()
	return len(r.Lines) > len(s.given.Lines) || len(r.Columns) > len(s.given.Columns)
}

// Save adds the rules to the file [RulesFile] in the folder dir, and returns its path; see [Rules.Save].
func (s *Suggestion) Save(dir string) (path string, err error) { return s.Rules().Save(dir) }

// Commands returns shell commands that read the logs with the rules, or nil if no rules are proposed.
func (s *Suggestion) Commands() []string {
	if !s.hasNewRules() {
		return nil
	}
	arguments := ""
	for _, p := range s.paths {
		if strings.HasPrefix(p, "-") { // not a flag
			p = "./" + p
		}
		arguments += " " + process.QuoteShellArgument(p)
	}
	r := s.Rules()
	for _, list := range []struct {
		flag  string
		items []string
	}{{"--as", r.As}, {"--line", r.Lines}, {"--columns", r.Columns}} {
		for _, item := range list.items {
			arguments += " " + list.flag + " " + process.QuoteShellArgument(item)
		}
	}
	return []string{"lockstep read" + arguments, "lockstep scaling" + arguments}
}
