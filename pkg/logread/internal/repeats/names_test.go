package repeats

import "testing"

// TestCommonName checks the patterns of file names.
func TestCommonName(t *testing.T) {
	for want, names := range map[string][]string{
		"a.log": {"a.log", "a.log"}, "r*.log": {"r50.log", "r152.log"}, "*": {"a", "b"}, "aa*": {"aa", "aaa"}, "x1*.log": {"x1.log", "x11.log"},
	} {
		if got := commonNamePattern(names); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}
