package logread

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

var (
	identityDump  = flag.String("identity.dump", "", "file to which TestIdentitiesStay writes the identity of each run of the samples")
	identityRoots = flag.String("identity.roots", "", "folders, separated by commas, each of whose files and folders TestIdentitiesStay reads too")
)

// TestIdentitiesStay checks that the runs of the samples, of the published tables and of other folders have the same
// identity each time they are read. With -identity.dump it also writes a file, so that the files before and after
// a change of the rules can be compared.
func TestIdentitiesStay(t *testing.T) {
	text := listIdentities(t)
	if again := listIdentities(t); again != text {
		t.Errorf("read once:\n%s\nread again:\n%s", text, again)
	}
	if *identityDump != "" {
		check(t, os.WriteFile(*identityDump, []byte(text), 0o644))
	}
}

// listIdentities returns a line with the identity of each run.
func listIdentities(t *testing.T) string {
	var b strings.Builder
	for _, s := range readSamples(t) {
		fmt.Fprintf(&b, "%s\n", s.path)
		for _, r := range s.runs {
			b.WriteString(describeIdentity(r, filepath.Dir(r.Dir)))
		}
	}
	roots := []string{"testdata/tree", "testdata/samples", "../../logs/published"}
	for _, parent := range strings.Split(*identityRoots, ",") {
		entries, _ := os.ReadDir(parent)
		for _, e := range entries {
			roots = append(roots, filepath.Join(parent, e.Name()))
		}
	}
	for _, root := range roots {
		logs, err := Options{}.Read(t.Context(), root)
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", root, err)
			continue
		}
		fmt.Fprintf(&b, "%s\n", root)
		for _, r := range logs.Runs {
			b.WriteString(describeIdentity(r, root))
		}
		for _, note := range logs.Notes {
			fmt.Fprintf(&b, "  note: %s\n", note)
		}
	}
	return b.String()
}

// describeIdentity returns a line with the identity of a run whose path begins with root.
func describeIdentity(r runs.Run, root string) string {
	var b strings.Builder
	name, err := filepath.Rel(root, r.Dir)
	if err != nil {
		name = r.Dir
	}
	fmt.Fprintf(&b, "  %s: study %q", name, r.Info.Study)
	for _, p := range runs.Properties() {
		v := valueOf(r, p)
		origin, known := r.Origins[p]
		if v == "" && !known {
			continue
		}
		fmt.Fprintf(&b, ", %s %q (%s)", p, v, origin.Source)
	}
	ranks := map[int]bool{}
	for _, c := range r.Curves {
		ranks[c.Rank] = true
	}
	var epochs []int
	for _, e := range r.Epochs {
		epochs = append(epochs, e.Epoch)
	}
	fmt.Fprintf(&b, "; %d epochs", len(epochs))
	if len(epochs) > 0 {
		fmt.Fprintf(&b, " %d-%d", slices.Min(epochs), slices.Max(epochs))
	}
	fmt.Fprintf(&b, ", %d curves of %d ranks, %d trials, kind %s\n", len(r.Curves), len(ranks), len(r.Trials), r.Kind)
	return b.String()
}
