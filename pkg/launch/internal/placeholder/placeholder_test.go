package placeholder

import (
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	v := Values{Workers: 4, Seed: 7, Run: "/logs/a run"}
	for text, want := range map[string]string{
		"--batch={16*workers}":              "--batch=64",
		"{workers*16}":                      "64",
		"{64/workers}":                      "16",
		"{workers}-{seed}":                  "4-7",
		"{run}/out":                         "/logs/a run/out",
		"{{seed}}":                          "{seed}",
		"{{{seed}}}":                        "{{seed}}",
		"${workers} ${seed}":                "${workers} ${seed}",
		`{"workers": 4, "lr": {"x": 1}}`:    `{"workers": 4, "lr": {"x": 1}}`,
		"{ workers }{Workers}{16 *workers}": "{ workers }{Workers}{16 *workers}",
		"{{seed}":                           "{{seed}",
		"":                                  "",
	} {
		if got, err := Expand([]string{"a", text}, v); err != nil || !slices.Equal(got, []string{"a", want}) {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	_, err := Expand([]string{"--batch", "{6/workers}"}, v)
	if err == nil || !strings.Contains(err.Error(), `argument "{6/workers}": 6 cannot be divided among 4 workers: use a multiple of each worker count`) {
		t.Errorf("got error %v", err)
	}
}
