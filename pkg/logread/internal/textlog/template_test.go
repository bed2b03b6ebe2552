package textlog

import (
	"testing"

	"lockstep/pkg/logread/internal/template"
)

// TestFormatTemplates parses the templates of all formats.
func TestFormatTemplates(t *testing.T) {
	for _, f := range formats() {
		for _, text := range f.templates {
			if _, err := template.Parse(text); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
		}
	}
}
