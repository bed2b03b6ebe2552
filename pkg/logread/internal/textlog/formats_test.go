package textlog

import (
	"slices"
	"testing"

	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// TestRuleMatches compares indexedRule.matches with bytes.HasPrefix for
// prefixes of every length, with and without more bytes in the buffer, and with
// one byte changed.
func TestRuleMatches(t *testing.T) {
	const text = "Total validation time: 5 sec"
	for n := range len(text) {
		r := indexedRule{Rule: logline.Rule{Prefix: text[:n]}}
		for k := range len(text) {
			for _, m := range [][]byte{[]byte(text)[:k], slices.Clip([]byte(text[:k]))} {
				if got := r.matches(m); got != (k >= n) {
					t.Errorf("prefix of %d bytes and line of %d, capacity %d: got %v", n, k, cap(m), got)
				}
			}
		}
		for i := range n {
			m := []byte(text)
			if m[i] ^= 1; r.matches(m) {
				t.Errorf("prefix %q matches %q", r.Prefix, m)
			}
		}
	}
}

// TestFormatNames checks that the names of the formats are distinct.
func TestFormatNames(t *testing.T) {
	seen := map[string]bool{}
	for id, f := range formats() {
		if f.Name == "" && id > int(logline.HuggingFace) && f.Rules == nil && f.Templates == nil {
			continue // not used
		}
		if f.Name == "" || seen[f.Name] {
			t.Errorf("format %+v: name is missing or used twice", f)
		}
		seen[f.Name] = true
	}
}
