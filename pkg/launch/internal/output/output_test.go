package output

import (
	"bytes"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	var log, shown bytes.Buffer
	l := NewWriter("> ", &log, NewLineWriter(&shown))
	long := strings.Repeat("x", maxLineBytes+1)
	for _, part := range []string{"on", "e\ntwo\r\n", "10%\r50%\r100%\n", long, "\n", "end"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "> one\n> two\n> 100%\n> " + long[1:] + "\n> x\n> end\n"; shown.String() != want {
		t.Errorf("shown %q, want %q", shown.String(), want)
	}
	if !strings.HasPrefix(log.String(), "one\ntwo\r\n10%\r50%\r100%\nxxx") {
		t.Errorf("log is not what was written: %.40q", log.String())
	}
	if n, last := l.LastLine(); n != 6 || last != "end" {
		t.Errorf("latest %d, %q", n, last)
	}
}

// TestSummarize: the errors of runs, as a table shows them.
func TestSummarize(t *testing.T) {
	for text, want := range map[string]string{
		"run a: rank 1 ended with exit code 7; its last lines:\n    no data": "run a: rank 1 ended with exit code 7",
		"run a: context canceled":                 "run a: stopped before its end; the same launch with Resume (--resume) continues it",
		"run a: ended with the notebook's kernel": "run a: ended with the notebook's kernel; the same launch with Resume (--resume) continues it",
		"job 7: canceled by you":                  "job 7: canceled by you",
	} {
		if got := SummarizeError(text, true); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := SummarizeError("run a: context canceled", false); got != "run a: stopped before its end" {
		t.Errorf("got %q for a program, which cannot be continued", got)
	}
}
