package logread

import (
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/template"
)

// parseLines parses the templates of Options.Lines.
func (o Options) parseLines() ([]*template.Template, error) {
	var list []*template.Template
	for _, text := range o.Lines {
		t, err := template.Parse(text)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// templateUse describes how a template of Options.Lines was used in all files.
type templateUse struct {
	record.TemplateUse
	path string // file with the nearest line
}

// addTemplateUses adds how the templates of Options.Lines were used in one file.
func (l *Logs) addTemplateUses(o Options, r *record.Report) {
	for i := range r.Templates[:min(len(r.Templates), len(o.Lines))] {
		if len(l.templates) <= i {
			l.templates = append(l.templates, templateUse{})
		}
		use, more := &l.templates[i], r.Templates[i]
		lines := use.Lines + more.Lines
		if more.NearestLine > 0 && (use.NearestLine == 0 || more.Nearest.Matched > use.Nearest.Matched) {
			use.TemplateUse, use.path = more, r.Path
		}
		use.Lines = lines
	}
}

// checkTemplates returns an error for the first template of Options.Lines that matches no
// line of any file.
func (l *Logs) checkTemplates(o Options) error {
	for i, text := range o.Lines {
		if i >= len(l.templates) {
			return fmt.Errorf("read logs: the line template %q was not used, since no text log was found", text)
		}
		use := &l.templates[i]
		if use.Lines > 0 {
			continue
		}
		if use.NearestLine == 0 {
			return fmt.Errorf("read logs: the line template %q matches no line: the logs contain no other lines", text)
		}
		at := min(use.Nearest.Offset, len(use.NearestText))
		return fmt.Errorf("read logs: the line template %q matches no line; the nearest is %s, line %d, after labels and time stamps:\n  %s\n  %s^ expected %s",
			text, use.path, use.NearestLine, use.NearestText, blankOut(use.NearestText[:at]), use.Nearest.Expected)
	}
	return nil
}

// blankOut returns text with each character except tabs replaced by a space, so that what
// follows is below the character after text.
func blankOut(text string) string {
	return strings.Map(func(c rune) rune {
		if c == '\t' {
			return c
		}
		return ' '
	}, text)
}
