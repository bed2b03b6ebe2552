package logread

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/runs"
)

var updateSamples = flag.Bool("update", false, "write testdata/samples.golden")

// TestSamplesGolden compares what is read from each sample with testdata/samples.golden, so that a
// reader that mixes up two columns in all files is found: the property test compares mutated
// samples with the same reader's result for the sample. Look at the difference before -update.
func TestSamplesGolden(t *testing.T) {
	var b strings.Builder
	for _, s := range readSamples(t) {
		for _, r := range s.runs {
			fmt.Fprintf(&b, "%s %s:", s.path, r.Kind)
			for _, property := range runs.Properties() {
				if v := valueOf(r, property); v != "" || r.Origins[property].Source != "" {
					fmt.Fprintf(&b, " %s %q from %q;", property, v, r.Origins[property].Source)
				}
			}
			b.WriteString("\n")
		}
		for _, r := range s.rows {
			fmt.Fprintf(&b, "  rank %d epoch %d step %d %s %g\n", r.Rank, r.Epoch, r.Step, r.Name, r.Value)
		}
	}
	const path = "testdata/samples.golden"
	if *updateSamples {
		check(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	check(t, err)
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
