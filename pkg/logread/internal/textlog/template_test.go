package textlog

import (
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/template"
)

// TestFormatTemplates parses the templates of all formats. Those of a rule begin with the
// rule's prefix, or they would never match.
func TestFormatTemplates(t *testing.T) {
	for _, f := range formats() {
		for _, text := range f.Templates {
			if _, err := template.Parse(text); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
		for _, r := range f.Rules {
			if (r.Read == nil) != (len(r.Templates) > 0 && r.Use != nil) {
				t.Errorf("%s, prefix %q: a rule needs either a function or templates and a function that uses their values", f.Name, r.Prefix)
			}
			for _, text := range r.Templates {
				if _, err := template.Parse(text); err != nil {
					t.Errorf("%s: %v", f.Name, err)
				} else if r.Prefix == "" || !strings.HasPrefix(text, r.Prefix) {
					t.Errorf("%s: %q does not begin with the prefix %q", f.Name, text, r.Prefix)
				}
			}
		}
	}
}
