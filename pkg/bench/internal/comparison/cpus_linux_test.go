package comparison

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/internal/topology"
)

// TestStartOnCPUs: a process gets the CPUs of its rank, and the thread that starts it keeps its own.
func TestStartOnCPUs(t *testing.T) {
	before, err := topology.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := before[len(before)-1:]
	var out strings.Builder
	c := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status")
	c.Stdout = &out
	if err := startOnCPUs(c, [][]int{before, last}, 1); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil || strings.Fields(out.String())[1] != topology.FormatCPUList(last) {
		t.Errorf("the process has %q, want CPUs %v (%v)", out.String(), last, err)
	}
	if after, err := topology.AllowedCPUs(); err != nil || !slices.Equal(after, before) {
		t.Errorf("the thread has CPUs %v, want %v (%v)", after, before, err)
	}
}
