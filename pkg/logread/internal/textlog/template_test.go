package textlog

import (
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/template"
)

// TestFormatTemplates parses the templates of all formats. Those of a rule begin with the
// rule's prefix, or readSimilarLines would read lines that parseLine does not.
func TestFormatTemplates(t *testing.T) {
	for _, f := range formats() {
		for _, text := range f.templates {
			if _, err := template.Parse(text); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
		}
		for _, r := range f.lines {
			if (r.read == nil) != (len(r.templates) > 0 && r.use != nil) {
				t.Errorf("%s, prefix %q: a rule needs either a function or templates and a function that uses their values", f.name, r.prefix)
			}
			for _, text := range r.templates {
				if tmpl, err := template.Parse(text); err != nil {
					t.Errorf("%s: %v", f.name, err)
				} else if r.prefix == "" || !strings.HasPrefix(tmpl.Lead(), r.prefix) {
					t.Errorf("%s: %q does not begin with the prefix %q", f.name, text, r.prefix)
				}
			}
		}
	}
}
