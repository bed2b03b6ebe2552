package textlog

import (
	"testing"

	"lockstep/pkg/logread/internal/template"
)

// TestFormatTemplates parses the templates of all formats. Those of a rule begin with a common text, or they would
// never match.
func TestFormatTemplates(t *testing.T) {
	for _, f := range formats() {
		for _, text := range f.Templates {
			if parsed, err := template.Parse(text); err != nil || parsed.Prefix() == "" {
				t.Errorf("%s: %q: got the error %v, want a template that begins with a text", f.Name, text, err)
			}
		}
		for _, r := range f.Rules {
			if (r.Read == nil) != (len(r.Templates) > 0 && r.Use != nil) {
				t.Errorf("%s, prefix %q: a rule needs either a function or templates and a function that uses their values", f.Name, r.Prefix)
			}
			if r.Compile(); r.Prefix == "" && r.First == "" {
				t.Errorf("%s: the templates %q have no common beginning", f.Name, r.Templates)
			}
		}
	}
}
