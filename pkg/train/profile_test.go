package train

import (
	"context"
	"strings"
	"testing"

	"lockstep/pkg/collective"
)

func TestParseProfile(t *testing.T) {
	for _, c := range []struct {
		text string
		want Profile
		ok   bool
	}{
		{"", Profile{}, true},
		{"10:5", Profile{First: 10, Steps: 5}, true},
		{"10", Profile{}, false},
		{"0:5", Profile{}, false},
		{"3:0", Profile{}, false},
		{"a:b", Profile{}, false},
		{"1:2:3", Profile{}, false},
	} {
		got, err := ParseProfile(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q is %+v, %v", c.text, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "as in 10:5") {
			t.Errorf("%q: error %q does not say what would do", c.text, err)
		}
	}
}

// TestProfileNeedsAGPU: elsewhere the error says which engine it is.
func TestProfileNeedsAGPU(t *testing.T) {
	cfg := verifyConfig()
	_, err := New(context.Background(), cfg, collective.Single(), Place{Profile: Profile{First: 1, Steps: 1}})
	if err == nil || !strings.Contains(err.Error(), "the engine is cpu") || !strings.Contains(err.Error(), "--device cuda") {
		t.Errorf("New says %v", err)
	}
}
