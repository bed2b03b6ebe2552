package figure

import (
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// The caption of every figure states what was assumed about the runs, once.
func TestAssumptionsInCaptions(t *testing.T) {
	study := synthetic(t, []string{"a", "b"}, []int{1, 2, 4}, 2, 4)
	all := study.Runs
	for i := range all {
		all[i].Origins = map[runs.Property]runs.Origin{runs.PropertyWorkers: {Source: runs.SourceFolderName}}
	}
	assumed, err := scaling.FromRuns(all)
	check(t, err)
	const want = "Workers of 12 runs assumed from folder names."
	figures, err := Options{}.All(assumed)
	check(t, err)
	if len(figures) < 8 {
		t.Errorf("%d figures", len(figures))
	}
	for _, f := range figures {
		if n := strings.Count(f.Caption(), want); n != 1 {
			t.Errorf("%s: the caption has %d times %q: %s", f.Name(), n, want, f.Caption())
		}
		if !strings.Contains(f.TeX(), want) {
			t.Errorf("%s: the table for LaTeX does not contain %q", f.Name(), want)
		}
	}
	page, err := Panels("page", figures...)
	check(t, err)
	if n := strings.Count(page.Caption(), want); n != 1 {
		t.Errorf("the page's caption has %d times %q", n, want)
	}
	one, err := Options{Series: []string{"b"}}.Speedup(assumed)
	check(t, err)
	if !strings.HasSuffix(one.Caption(), "Workers of 6 runs assumed from folder names.") {
		t.Errorf("caption of one series: %s", one.Caption())
	}
}
