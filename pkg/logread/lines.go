package logread

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

func (o Options) parseRules() (lines []*template.Template, columns []table.ColumnMapping, err error) {
	for _, text := range o.Lines {
		t, err := template.Parse(text)
		if err != nil {
			return nil, nil, err
		}
		lines = append(lines, t)
	}
	columns, err = table.ParseMappings(o.Columns)
	return lines, columns, err
}

// Validate returns an error if a template of Lines or a mapping of Columns is invalid. It states
// the position in the template and what is expected there, or the fields of columns.
func (o Options) Validate() error {
	_, _, err := o.parseRules()
	return err
}

// minMisspelledLength is the length of the shortest metric name that may be a misspelled field.
// Shorter names such as l1 are near to lr by chance.
const minMisspelledLength = 4

// findMisspelledFields returns a problem for each metric in the templates whose name is
// within one edit of a field's name.
func findMisspelledFields(lines []*template.Template) (found []runs.Problem) {
	for _, t := range lines {
		for _, f := range t.Fields() {
			if f.Kind != fields.Metric || len(f.Name) < minMisspelledLength {
				continue
			}
			if known := nearest.FindName(f.Name, template.StandardFields(), 1); known != "" {
				found = append(found, runs.Problem{
					File: fmt.Sprintf("line template %q", t), Reason: fmt.Sprintf("{%s} is read as a metric of this name (did you mean {%s}?)", f.Name, known),
				})
			}
		}
	}
	return found
}

type templateUse struct {
	record.TemplateUse
	path string // file with the nearest line
}

func (l *Logs) addTemplateUses(o Options, r *record.Report) {
	for i := range r.Templates[:min(len(r.Templates), len(o.Lines))] {
		if len(l.templates) <= i {
			l.templates = append(l.templates, templateUse{})
		}
		if l.templates[i].Add(r.Templates[i], 0) {
			l.templates[i].path = r.Path
		}
	}
}

func (l *Logs) checkTemplatesUsed(o Options) error {
	for i, text := range o.Lines {
		if i >= len(l.templates) {
			return fmt.Errorf("read logs: the line template %q was not used, since no text log was found", text)
		}
		use := &l.templates[i]
		if use.Lines > 0 {
			continue
		}
		if use.NearestLine == 0 {
			return fmt.Errorf("read logs: the line template %q matches no line: other formats or templates read all lines of the logs", text)
		}
		if use.Shadowed {
			return fmt.Errorf("read logs: the line template %q matches only lines that an earlier template matches, such as line %d of %s; put it before that template", text, use.NearestLine, use.path)
		}
		before := clean.EscapeText(use.NearestText[:min(use.Nearest.Offset, len(use.NearestText))])
		return fmt.Errorf("read logs: the line template %q matches no line; the nearest is %s, line %d, after labels and time stamps:\n  %s\n  %s^ expected %s",
			text, use.path, use.NearestLine, clean.EscapeText(use.NearestText), strings.Repeat(" ", utf8.RuneCountInString(before)), use.Nearest.Expected)
	}
	return nil
}

// explainUnusedRules extends the reason why t's file was not read. It states that no template of
// the rules file matches a line, and which line is most similar to one of them. It ignores the
// first given templates, which are those in Options.Lines.
func explainUnusedRules(t *files.Task, given int) {
	if t.Rules == nil || !strings.HasPrefix(t.Report.Skipped, files.ReasonUnknownFormat) {
		return
	}
	best := -1
	for i := given; i < len(t.Report.Templates); i++ {
		use := &t.Report.Templates[i]
		if use.NearestLine > 0 && (best < 0 || use.Nearest.Matched > t.Report.Templates[best].Nearest.Matched) {
			best = i
		}
	}
	if best < 0 || best >= len(t.Lines) {
		return
	}
	use := &t.Report.Templates[best]
	t.Report.Skipped += fmt.Sprintf("; no line template of %s matches a line; the nearest is %q for line %d, %q: expected %s at character %d",
		t.Rules.Path, t.Lines[best].String(), use.NearestLine, use.NearestText, use.Nearest.Expected,
		utf8.RuneCountInString(use.NearestText[:min(use.Nearest.Offset, len(use.NearestText))])+1)
}
