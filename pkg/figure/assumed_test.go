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

// TestSourceInTitlesAndCaptions: a figure of published numbers states that they are, in its title, and who published
// them, in its caption.
func TestSourceInTitlesAndCaptions(t *testing.T) {
	study := published(t, "resnet-cifar10-power.csv")
	const want = "Published by the hands-on exercises for the CTE-POWER cluster of the Barcelona Supercomputing Center (torres.ai)."
	figures, err := Options{}.All(study)
	check(t, err)
	if len(figures) < 4 {
		t.Errorf("%d figures", len(figures))
	}
	for _, f := range figures {
		if n := strings.Count(f.Caption(), want); n != 1 {
			t.Errorf("%s: the caption has %d times %q: %s", f.Name(), n, want, f.Caption())
		}
		if got := f.Plot().Title.Text; !strings.HasSuffix(got, " (resnet-cifar10-power, published)") {
			t.Errorf("%s: the title is %q", f.Name(), got)
		}
	}
	all := study.Runs
	all[0].Info.Source = ""
	for i := range all {
		all[i].Info.Study = strings.Repeat("long", 11) // too long for a title
	}
	mixed, err := scaling.FromRuns(all)
	check(t, err)
	f, err := Speedup(mixed)
	check(t, err)
	if got := f.Plot().Title.Text; got != "Speed-up (partly published)" {
		t.Errorf("the title is %q", got)
	}
}

// The axis and the caption of the throughput state its unit; a caption of series with
// different units names the series of each.
func TestThroughputUnit(t *testing.T) {
	newStudy := func(units ...string) *scaling.Study {
		var all []runs.Run
		for i, unit := range units {
			for _, n := range []int{1, 2} {
				name := string(rune('a' + i))
				all = append(all, runs.Run{
					Dir: name, ThroughputUnit: unit, Trials: []runs.Trial{{Name: "FULL", Rate: float64(100 * n)}},
					Info: runs.Info{Series: name, Workers: n, BatchPerWorker: 8, Status: runs.StatusDone},
				})
			}
		}
		study, err := scaling.FromRuns(all)
		check(t, err)
		return study
	}
	for _, c := range []struct {
		study         *scaling.Study
		axis, caption string
	}{
		{newStudy("", ""), "throughput (samples/s)", "Samples per second of all workers together"},
		{newStudy("images/s"), "throughput (images/s)", "Throughput in images/s of all workers together"},
		{newStudy("tokens/s", "images/s", "tokens/s"), "throughput (images/s or tokens/s)", "Throughput in images/s (b) or tokens/s (a, c) of all workers together"},
	} {
		f, err := Throughput(c.study)
		check(t, err)
		if f.Plot().Y.Label.Text != c.axis || !strings.HasPrefix(f.Caption(), c.caption) {
			t.Errorf("axis %q, caption %q; want %q, %q", f.Plot().Y.Label.Text, f.Caption(), c.axis, c.caption)
		}
		weak, err := Options{}.WeakScaling(c.study)
		check(t, err)
		if weak.Plot().Y.Label.Text != c.axis {
			t.Errorf("weak scaling: axis %q, want %q", weak.Plot().Y.Label.Text, c.axis)
		}
	}
	many := make([]string, maxIndividualSeries+1)
	many[3] = "tokens/s"
	if _, err := Throughput(newStudy(many...)); err == nil || !strings.Contains(err.Error(), "different units of throughput (samples/s or tokens/s)") || !strings.Contains(err.Error(), "--series") {
		t.Errorf("the median of different units: error %v", err)
	}
}
