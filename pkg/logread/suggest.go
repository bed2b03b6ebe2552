package logread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/suggest"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

// LineSuggestion is a proposed template for Options.Lines.
type LineSuggestion struct {
	Template string
	Kind     string // what the lines contain, such as "epoch" or "step"
	Example  string // the first such line
	Lines    int    // number of such lines in the part of the logs that was examined
	Fields   []FieldSuggestion
}

// FieldSuggestion is the proposed meaning of a number or of a column.
type FieldSuggestion struct {
	Name    string // of a field or metric; empty if the number is skipped
	Example string // its first value
	Why     string
	Guessed bool // the name is made of the words beside the number, since its meaning is unknown
}

// Suggestion is a proposal for reading logs of unknown form. Nothing is read with
// it unless its rules are passed to Options or saved.
type Suggestion struct {
	Lines   []LineSuggestion
	Columns []ColumnSuggestion
	Known   []string // files that need no rules, with their kind
	Unknown []string // files for which there is no proposal, with the reason
	Notes   []string
	// Preview contains the runs that the rules give. Of files longer than 16 MiB
	// it has only the values of the beginning.
	Preview []runs.Run

	paths []string // as the caller named them
	given Rules    // of the options
}

// Suggest proposes rules for reading the logs in and below the paths, which
// [runs.LocateLogs] resolves, if no known format reads them: templates for lines
// that repeat, and the meaning of the columns of tables. It examines the first
// and last lines of at most 64 files.
//
// Suggest proposes nothing for lines that differ only in the heading above them,
// such as "loss: 0.5" below "train:" and below "val:", because a template sees one
// line.
//
//	s, err := logread.Suggest("results/run1.log")
//	if err != nil {
//		return err
//	}
//	fmt.Println(s)                                  // the proposal with its reasons, and a preview
//	o := logread.Options{Lines: s.Rules().Lines}    // to use it in this cell
//	_, err = s.Rules().Save("results")              // to use it always
func Suggest(paths ...string) (*Suggestion, error) {
	return Options{}.Suggest(context.Background(), paths...)
}

// Suggest is like the function Suggest, with options. Lines that the templates of
// the options match need no proposal.
func (o Options) Suggest(ctx context.Context, paths ...string) (*Suggestion, error) {
	if len(paths) == 0 {
		return nil, errors.New("suggest rules: no path given; name a log or a folder of logs such as logs/demo")
	}
	s := &Suggestion{paths: paths, given: Rules{Lines: o.Lines, Columns: o.Columns}}
	for _, p := range o.As {
		s.given.As = append(s.given.As, p.String())
	}
	var places []string
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, fmt.Errorf("suggest rules: %w", err)
		}
		places = append(places, place)
	}
	o.excerptBytes = excerptBytes
	texts, err := o.findUnknownTexts(ctx, s, places)
	if err != nil {
		return nil, fmt.Errorf("suggest rules: %w", err)
	}
	s.addLines(s.addColumns(texts))
	if err := s.addPreview(ctx, o, places); err != nil {
		return nil, fmt.Errorf("suggest rules: %w", err)
	}
	return s, nil
}

// addColumns adds proposals for the tables among the texts, and returns the other
// texts.
func (s *Suggestion) addColumns(texts []sampledText) []sampledText {
	var others []sampledText
	byHeader := map[string]int{}
	for _, t := range texts {
		var columns []suggest.Column
		var names []string
		for _, c := range t.columns {
			columns = append(columns, suggest.Column(c))
			names = append(names, c.Name)
		}
		header := strings.Join(names, ", ")
		if i, ok := byHeader[header]; ok && header != "" {
			s.Columns[i].Files++
			continue
		}
		proposal := ColumnSuggestion{Example: header, Files: 1}
		var mappings []string
		measured := false
		for i, f := range suggest.Columns(columns, table.FieldNames()) {
			if f.Name == "" {
				continue
			}
			m, ok := newMapping(f.Name, columns[i].Name)
			if !ok {
				continue
			}
			measured = measured || f.Name != fields.Epoch && f.Name != fields.Step
			if !s.hasMapping(m) {
				mappings = append(mappings, m)
			}
			proposal.Fields = append(proposal.Fields, FieldSuggestion(f))
			proposal.Fields[len(proposal.Fields)-1].Why = fmt.Sprintf("column %q: %s", columns[i].Name, f.Why)
		}
		proposal.Mapping = strings.Join(mappings, ",")
		parsed, err := table.ParseMappings([]string{proposal.Mapping})
		switch {
		case measured && err == nil && table.IsReadable(t.head, slices.Concat(t.mapped, parsed)):
			byHeader[header] = len(s.Columns)
			s.Columns = append(s.Columns, proposal)
		case t.known != "":
			s.Known = append(s.Known, fmt.Sprintf("%s: %s", t.path, t.known))
		default:
			others = append(others, t)
		}
	}
	return others
}

// newMapping returns the mapping of a column for Options.Columns. ok is false if a
// mapping cannot contain the name of the column.
func newMapping(field, column string) (mapping string, ok bool) {
	if strings.ContainsAny(column, ", ") {
		column = `"` + column + `"`
	}
	mapping = field + "=" + column
	parsed, err := table.ParseMappings([]string{mapping})
	return mapping, err == nil && len(parsed) == 1
}

// hasMapping reports whether a mapping is proposed already.
func (s *Suggestion) hasMapping(mapping string) bool {
	return slices.ContainsFunc(s.Columns, func(c ColumnSuggestion) bool { return slices.Contains(strings.Split(c.Mapping, ","), mapping) })
}

// addLines adds proposals for the lines of the texts. A template that would not
// match its own example is left out.
func (s *Suggestion) addLines(texts []sampledText) {
	var samples []suggest.File
	for _, t := range texts {
		samples = append(samples, suggest.File{Name: t.path, Lines: t.lines})
	}
	found := suggest.Lines(samples)
	s.Notes = append(s.Notes, found.Notes...)
	for _, t := range found.Templates {
		parsed, err := template.Parse(t.Text)
		if err != nil || !parsed.Match([]byte(t.Example), make([]template.Value, len(parsed.Fields()))) {
			s.Notes = append(s.Notes, fmt.Sprintf("no template for %d lines such as %q: their form cannot be described", t.Lines, t.Example))
			continue
		}
		l := LineSuggestion{Template: t.Text, Kind: t.Kind.String(), Example: t.Example, Lines: t.Lines}
		for _, f := range t.Fields {
			l.Fields = append(l.Fields, FieldSuggestion(f))
		}
		s.Lines = append(s.Lines, l)
	}
	s.compareLines(texts)
}

// compareLines compares the lines of the texts with the proposed templates. It
// notes templates that match lines of other forms, because * matches any text, and
// texts without a line that a template matches.
func (s *Suggestion) compareLines(texts []sampledText) {
	var templates []*template.Template
	for _, l := range s.Lines {
		if t, err := template.Parse(l.Template); err == nil {
			templates = append(templates, t)
		}
	}
	counts, others := make([]int, len(s.Lines)), make([]string, len(s.Lines))
	for _, text := range texts {
		found := false
		for _, line := range text.lines {
			i := slices.IndexFunc(templates, func(t *template.Template) bool {
				return t.Match([]byte(line.Text), make([]template.Value, len(t.Fields())))
			})
			if i < 0 {
				continue
			}
			found = true
			if counts[i]++; counts[i] == s.Lines[i].Lines+1 {
				others[i] = line.Text
			}
		}
		if !found {
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s: no lines with numbers of known meaning repeat in it", text.path))
		}
	}
	for i, n := range counts {
		if more := n - s.Lines[i].Lines; more > 0 {
			s.addNote("%q also matches %s of other forms, such as %q", s.Lines[i].Template, english.Count(more, "line"), others[i])
		}
	}
}

// addPreview reads the beginning of the logs with the proposed rules. It removes
// templates whose lines other templates match, since a template without lines is
// an error.
func (s *Suggestion) addPreview(ctx context.Context, o Options, places []string) error {
	if len(s.Lines)+len(s.Columns) == 0 {
		return nil
	}
	logs, err := s.read(ctx, o, places)
	if err != nil {
		return s.withdraw(ctx, err)
	}
	if slices.ContainsFunc(logs.Reports, func(r Report) bool { return r.Bytes >= excerptBytes }) {
		s.addNote("the preview has only the first %d MiB of each file", excerptBytes>>20)
	} else {
		unused := map[string]bool{}
		for i, l := range s.Lines {
			k := len(o.Lines) + i
			unused[l.Template] = k >= len(logs.templates) || logs.templates[k].Lines == 0
		}
		before := len(s.Lines)
		s.Lines = slices.DeleteFunc(s.Lines, func(l LineSuggestion) bool { return unused[l.Template] })
		if len(s.Lines) < before {
			if logs, err = s.read(ctx, o, places); err != nil {
				return s.withdraw(ctx, err)
			}
		}
	}
	for _, r := range logs.Runs {
		if !slices.ContainsFunc(s.Known, func(known string) bool { return strings.HasPrefix(known, r.File+": ") }) {
			s.Preview = append(s.Preview, r)
		}
	}
	s.addPreviewNotes(logs)
	return nil
}

// withdraw removes the proposal, with which reading has failed, and notes why. It
// returns the error of the context if it is done.
func (s *Suggestion) withdraw(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.Lines, s.Columns = nil, nil
	s.addNote("no usable rules were found: %v", err)
	return nil
}

// read reads the beginning of the logs with the rules of the options and the
// proposed ones.
func (s *Suggestion) read(ctx context.Context, o Options, places []string) (*Logs, error) {
	proposed := s.Rules()
	o.Lines, o.Columns = proposed.Lines, proposed.Columns
	logs := &Logs{}
	return logs, o.readInto(ctx, logs, places...)
}

// maxPreviewProblems is the number of problems of the preview that the notes
// list.
const maxPreviewProblems = 5

// addPreviewNotes adds the assumptions and problems of the preview to the notes.
func (s *Suggestion) addPreviewNotes(logs *Logs) {
	of := func(path string) bool {
		return slices.ContainsFunc(s.Preview, func(r runs.Run) bool { return r.File == path })
	}
	problems := 0
	for _, r := range logs.Reports {
		if !of(r.Path) {
			continue
		}
		for _, a := range r.Assumed {
			s.addNote("taken: %s", a)
		}
		for _, p := range r.Unused {
			if problems++; problems <= maxPreviewProblems {
				s.addNote("problem: %s", p)
			}
		}
	}
	if problems > maxPreviewProblems {
		s.addNote("and %d more problems: see lockstep read --explain", problems-maxPreviewProblems)
	}
}

// addNote adds a note once.
func (s *Suggestion) addNote(format string, a ...any) {
	if note := fmt.Sprintf(format, a...); !slices.Contains(s.Notes, note) {
		s.Notes = append(s.Notes, note)
	}
}

// Rules returns the rules of the options followed by the proposed ones.
func (s *Suggestion) Rules() Rules {
	r := Rules{Lines: slices.Clone(s.given.Lines), Columns: slices.Clone(s.given.Columns), As: slices.Clone(s.given.As)}
	for _, l := range s.Lines {
		r.Lines = append(r.Lines, l.Template)
	}
	for _, c := range s.Columns {
		r.Columns = append(r.Columns, c.Mapping)
	}
	return r
}

// Save adds the rules to the file [RulesFile] in the folder dir, and returns its
// path; see [Rules.Save].
func (s *Suggestion) Save(dir string) (path string, err error) { return s.Rules().Save(dir) }

// Commands returns the command lines of a shell that read the logs with the
// rules, or nil if no rules are proposed.
func (s *Suggestion) Commands() []string {
	if len(s.Lines)+len(s.Columns) == 0 {
		return nil
	}
	r := s.Rules()
	var flags strings.Builder
	for _, list := range []struct {
		flag  string
		items []string
	}{{"as", r.As}, {"line", r.Lines}, {"columns", r.Columns}} {
		for _, item := range list.items {
			flags.WriteString(" --" + list.flag + " " + process.QuoteArgument(item))
		}
	}
	var paths strings.Builder
	for _, p := range s.paths {
		if strings.HasPrefix(p, "-") { // not a flag
			p = "./" + p
		}
		paths.WriteString(" " + process.QuoteArgument(p))
	}
	return []string{"lockstep read" + paths.String() + flags.String(), "lockstep scaling" + paths.String() + flags.String()}
}
