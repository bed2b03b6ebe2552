package slurmsubmit

import (
	"strings"
	"testing"
)

// TestProblems: the runs with one problem are named together, in place of a line for each.
func TestProblems(t *testing.T) {
	var p RunProblems
	for _, run := range []string{"n1", "n2", "n3", "n4", "n5"} {
		p.Add(run, "no account")
	}
	p.Add("n1", "no time")
	p.Add("n4", "no node")
	p.Add("n5", "no node")
	want := "runs n1, n2, n3 and 2 more: no account\nrun n1: no time\nruns n4 and n5: no node"
	if got := strings.Join(p.Lines(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
