package runs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAssumptions: one sentence per property and source, and none for what is known.
func TestAssumptions(t *testing.T) {
	from := func(workers, series Source) Run {
		return Run{Origins: map[Property]Origin{PropertyWorkers: {Source: workers}, PropertySeries: {Source: series}}}
	}
	all := []Run{
		from(SourceFileName, SourceFolderName), from(SourceFileName, SourceContent), from(SourceFolderName, SourceUser),
		{}, // a run folder has no origins
	}
	want := []string{
		"workers of 1 run assumed from folder names", "workers of 2 runs assumed from file names",
		"series of 1 run assumed from folder names",
	}
	if d := cmp.Diff(want, Assumptions(all)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got := Assumptions([]Run{{}, from(SourceContent, SourceUser)}); got != nil {
		t.Errorf("nothing was assumed: %q", got)
	}
}
