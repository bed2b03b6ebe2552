package placeholder

import (
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	v := Values{Workers: 4, Seed: 7, Run: "/logs/a run"}
	for text, want := range map[string]string{
		"--batch={16*workers}":             "--batch=64",
		"{workers*16}":                     "64",
		"{64/workers}":                     "16",
		"{workers}-{seed}":                 "4-7",
		"{run}/out":                        "/logs/a run/out",
		"{{seed}}":                         "{seed}",
		"{{{seed}}}":                       "{{seed}}",
		"${workers} ${seed}":               "${workers} ${seed}",
		`{"workers": 4, "lr": {"x": 1}}`:   `{"workers": 4, "lr": {"x": 1}}`,
		"{{unknown}}":                      "{unknown}",
		`{"a":1}`:                          `{"a":1}`,
		"{a,b}.txt":                        "{a,b}.txt",
		"{1..3}":                           "{1..3}",
		"{}":                               "{}",
		"{ workers } {{ seed }} {{.Name}}": "{ workers } {{ seed }} {{.Name}}",
		"a{3}":                             "a{3}",
		"${X} ${X:-1} $1":                  "${X} ${X:-1} $1",
		"a{2,3}b":                          "a{2,3}b",
		"{'lr': seed}":                     "{'lr': seed}",
		"{0*workers}":                      "0",
		"{{seed}":                          "{{seed}",
		"":                                 "",
	} {
		if got, err := Expand([]string{"a", text}, v); err != nil || !slices.Equal(got, []string{"a", want}) {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"{6/workers}":                    `argument "{6/workers}": 6 cannot be divided among 4 workers: use a multiple of each worker count`,
		"{unknown}":                      "unknown placeholder {unknown}: use {workers}",
		"a{worker}b":                     "unknown placeholder {worker} (did you mean workers?)",
		"{Workers}":                      "unknown placeholder {Workers}",
		"{16 *workers}":                  "invalid placeholder {16 *workers}",
		"{workers/0}":                    "unknown placeholder {workers/0}",
		"{workers/2}":                    "unknown placeholder {workers/2}",
		"{seed*2}":                       "unknown placeholder {seed*2}",
		"{workers+1}":                    "unknown placeholder {workers+1}",
		"{010*workers}":                  "invalid placeholder {010*workers}",
		"{0x10*workers}":                 "invalid placeholder {0x10*workers}",
		"{workers*99999999999999999999}": "invalid placeholder {workers*99999999999999999999}",
		"{9223372036854775807*workers}":  "too large",
	} {
		if got, err := Expand([]string{"--batch", text}, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q and the error %v, want %q", text, got, err, want)
		}
	}
}
