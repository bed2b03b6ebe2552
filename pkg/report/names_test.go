package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"

	"lockstep/pkg/figure"
)

// hostile is a series as a log may name it: a terminal's escape, a line end, a
// character that XML does not allow, one that turns the direction of writing, and
// a byte that is no text.
const hostile = "ddp\x1b]0;owned\x07\nproblem: none\x00\ufffe\u202ecod.exe\xff<script>"

// TestNamesAreCleaned: what a log names is shown by its escapes, in the page, the
// sentences, the tables and the figures, whose SVG stays valid.
func TestNamesAreCleaned(t *testing.T) {
	study := invented(t, hostile, "plain")
	r, err := New(study, Options{})
	check(t, err)
	points := study.String()
	for what, text := range map[string]string{"page": r.Page(), "sentences": strings.Join(r.Sentences, "\n"), "table": points} {
		for _, c := range text {
			if unicode.IsControl(c) && c != '\n' && c != '\t' || c == 0xfffe || c == 0x202e {
				t.Errorf("the %s holds %q", what, c)
			}
		}
		if strings.Contains(text, "\nproblem: none") || strings.Contains(text, "<script>") && what == "page" {
			t.Errorf("the %s holds what the name says", what)
		}
		if !strings.Contains(text, `\x1b]0;owned\x07\nproblem`) {
			t.Errorf("the %s does not show the name's escapes", what)
		}
	}
	f, err := figure.Speedup(study)
	check(t, err)
	for d := xml.NewDecoder(strings.NewReader(f.SVG())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the SVG is not valid: %v", err)
		}
	}
}
