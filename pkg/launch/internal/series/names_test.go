package series

import (
	"strings"
	"testing"
)

func TestProgramName(t *testing.T) {
	for _, tt := range []struct{ command, want string }{
		{"python3 -u train.py --x", "train"},
		{"python3.11 scripts/train.py", "train"},
		{"./bench/my-prog 3", "my-prog"},
		{"/bin/sh -c echo", "sh"},
		{"bash", "bash"},
		{"./..", "run"},
	} {
		if got := ProgramName(strings.Fields(tt.command)); got != tt.want {
			t.Errorf("ProgramName(%q) = %q, want %q", tt.command, got, tt.want)
		}
	}
}
