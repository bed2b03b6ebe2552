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

// Suggestion is a proposal for reading logs of unknown form. Nothing is read with it unless its rules are
// passed to Options or saved.
type Suggestion struct {
	Lines   []RuleSuggestion
	Columns []RuleSuggestion
	Known   []string // files that need no rules, with their kind
	Unknown []string // files for which there is no proposal, with the reason
	Notes   []string
	// Preview contains the runs that the rules give. Of files longer than 16 MiB it has only the values of
	// the beginning.
	Preview []runs.Run

	paths []string // as the caller named them
	given Rules    // of the options
}

// Suggest proposes rules for reading the logs in and below the paths, which [runs.LocateLogs] resolves, if
// no known format reads them: templates for lines that repeat, and the meaning of the columns of tables. It
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

// Suggest is like the function Suggest, with options. Lines that the templates of the options match need
// no proposal.
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

// addColumns adds proposals for the tables among the texts, and returns the other texts.
func (s *Suggestion) addColumns(texts []sampledText) []sampledText {
	var others []sampledText
	for _, t := range texts {
		var columns []suggest.Column
		var names, mappings []string
		for _, c := range t.columns {
			columns, names = append(columns, suggest.Column(c)), append(names, c.Name)
		}
		x := RuleSuggestion{Kind: "table", Example: strings.Join(names, ", "), Count: 1}
		if i := slices.IndexFunc(s.Columns, func(o RuleSuggestion) bool { return o.Example == x.Example }); i >= 0 && t.columns != nil {
			s.Columns[i].Count++
			continue
		}
		measured := false
		for i, f := range suggest.Columns(columns) {
			column := names[i]
			if strings.ContainsAny(column, ", ") {
				column = `"` + column + `"`
			}
			mapping := f.Name + "=" + column
			if _, err := table.ParseMappings([]string{mapping}); f.Name == "" || err != nil || t.known != "" && f.Name == fields.WallSeconds {
				continue
			}
			measured = measured || f.Name != fields.Epoch && f.Name != fields.Workers
			mappings = append(mappings, mapping)
			f.Why = fmt.Sprintf("column %q: %s", names[i], f.Why)
			x.Fields = append(x.Fields, FieldSuggestion(f))
		}
		x.Rule = strings.Join(mappings, ",")
		parsed, err := table.ParseMappings([]string{x.Rule})
		switch {
		case measured && err == nil && table.IsReadable(t.head, slices.Concat(t.mapped, parsed)):
			s.Columns = append(s.Columns, x)
		case t.known != "":
			s.Known = append(s.Known, fmt.Sprintf("%s: %s", t.path, t.known))
		case t.columns != nil:
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s: nothing shows what the columns %s mean; name them with Options.Columns (--columns)", t.path, x.Example))
		default:
			others = append(others, t)
		}
	}
	return others
}

// addLines adds proposals for the lines of the texts. A template that does not match exactly the lines of
// its form is left out.
func (s *Suggestion) addLines(texts []sampledText) {
	var samples []suggest.File
	for _, t := range texts {
		samples = append(samples, suggest.File{Lines: t.lines})
	}
	found := suggest.Lines(samples)
	s.Notes = append(s.Notes, found.Notes...)
	used := make([]bool, len(texts))
	numbered := true
	for _, t := range found.Templates {
		x := RuleSuggestion{Rule: t.Text, Kind: t.Kind.String(), Example: t.Example, Count: t.Lines}
		for _, f := range t.Fields {
			x.Fields = append(x.Fields, FieldSuggestion(f))
		}
		parsed, err := template.Parse(t.Text)
		if t.Kind == suggest.Unknown {
			s.Lines = append(s.Lines, x)
			continue
		}
		lines := 0
		var of []int // texts with such lines
		for i, text := range texts {
			for _, line := range text.lines {
				if err == nil && !line.Used && parsed.Match([]byte(line.Text), make([]template.Value, len(parsed.Fields()))) {
					lines++
					of = append(of, i)
				}
			}
		}
		if t.Kind == suggest.Value && !numbered { // the lines that number the epochs are not read
			continue
		}
		if lines != t.Lines {
			numbered = numbered && t.Kind != suggest.Opener && t.Kind != suggest.Epoch
			s.addNote("no template for lines such as %q: %q would also match others", t.Example, t.Text)
			continue
		}
		s.Lines = append(s.Lines, x)
		for _, i := range of {
			used[i] = true
		}
	}
	for i, text := range texts {
		if !used[i] {
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s: nothing shows what the numbers of its lines mean", text.path))
		}
	}
}

// addPreview reads the beginning of the logs with the rules of the options and the proposed ones. If that
// fails, the proposal is withdrawn.
func (s *Suggestion) addPreview(ctx context.Context, o Options, places []string) error {
	if !s.proposes() {
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
	s.addPreviewNotes(logs)
	return nil
}

// maxPreviewProblems is the number of problems of the preview that the notes list.
const maxPreviewProblems = 5

// addPreviewNotes adds the assumptions and problems of the preview to the notes.
func (s *Suggestion) addPreviewNotes(logs *Logs) {
	problems := 0
	for _, r := range logs.Reports {
		if r.Bytes >= excerptBytes {
			s.addNote("the preview has only the first %d MiB of each file", excerptBytes>>20)
		}
		if !slices.ContainsFunc(s.Preview, func(run runs.Run) bool { return run.File == r.Path }) {
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
		if l.Kind != suggest.Unknown.String() {
			r.Lines = append(r.Lines, l.Rule)
		}
	}
	for _, c := range s.Columns {
		r.Columns = append(r.Columns, c.Rule)
	}
	return r
}

// proposes reports whether there are rules besides those of the options.
func (s *Suggestion) proposes() bool {
	r := s.Rules()
	return len(r.Lines) > len(s.given.Lines) || len(r.Columns) > len(s.given.Columns)
}

// Save adds the rules to the file [RulesFile] in the folder dir, and returns its path; see [Rules.Save].
func (s *Suggestion) Save(dir string) (path string, err error) { return s.Rules().Save(dir) }

// Commands returns the command lines of a shell that read the logs with the rules, or nil if no rules are
// proposed.
func (s *Suggestion) Commands() []string {
	if !s.proposes() {
		return nil
	}
	var words []string
	for _, p := range s.paths {
		if strings.HasPrefix(p, "-") { // not a flag
			p = "./" + p
		}
		words = append(words, process.QuoteArgument(p))
	}
	r := s.Rules()
	for _, list := range []struct {
		flag  string
		items []string
	}{{"--as", r.As}, {"--line", r.Lines}, {"--columns", r.Columns}} {
		for _, item := range list.items {
			words = append(words, list.flag, process.QuoteArgument(item))
		}
	}
	arguments := strings.Join(words, " ")
	return []string{"lockstep read " + arguments, "lockstep scaling " + arguments}
}
