package table

import (
	"strings"
	"testing"
	"testing/iotest"
)

// TestMayHaveMarks: a comma anywhere, and points with three characters between them, also at the border of what is read
// at once, show that numbers may have marks.
func TestMayHaveMarks(t *testing.T) {
	const read = 1 << 16
	zeros := strings.Repeat("0123456789", read/10+1)
	for text, want := range map[string]bool{
		"": false, "1.25\t0.25\n": false, "1.5\t0.25\n": true, ".": false, "1.234.567": true, "1,5": true, "a.b.cd.e": false, zeros: false,
		zeros[:read-1] + ".12.": false, zeros[:read-1] + ".123.": true, zeros[:read-4] + ".123.": true, zeros[:read] + ",": true,
	} {
		for i, r := range []func() bool{
			func() bool { return mayHaveLocalizedNumbers(strings.NewReader(text)) },
			func() bool { return mayHaveLocalizedNumbers(iotest.HalfReader(strings.NewReader(text))) },
		} {
			if got := r(); got != want {
				t.Errorf("%d: %.20q of %d bytes: got %v, want %v", i, text, len(text), got, want)
			}
		}
	}
}
