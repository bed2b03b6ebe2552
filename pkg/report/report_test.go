package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/figure"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// TestMain demands that the browser's readers end with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// invented are runs of two series: t(N) = (2 + 0.2·(N−1)) s for 48 samples a
// worker, the second series 10 % slower; 2 % more with each seed.
func invented(t *testing.T, series ...string) *scaling.Study {
	t.Helper()
	var all []runs.Run
	for i, name := range series {
		for _, n := range []int{1, 2, 4, 8} {
			for seed := 1; seed <= 3; seed++ {
				dir := fmt.Sprintf("/logs/cells/%d-n%d-s%d", i, n, seed)
				r := runs.Run{Dir: dir, File: filepath.Join(dir, "epochs.csv"), Kind: "run folder", Info: runs.Info{
					Study: "cells", Series: name, Workers: n, Seed: int64(seed), Status: runs.StatusDone, BatchPerWorker: 4, GlobalBatch: 4 * n,
				}}
				for e := 1; e <= 5; e++ {
					seconds := (2 + 0.2*float64(n-1)) * (1 + 0.1*float64(i)) * (1 + 0.02*float64(seed))
					r.Epochs = append(r.Epochs, runs.Epoch{
						Epoch: e, Seconds: seconds, Samples: 48 * n, SamplesPerSecond: 48 * float64(n) / seconds,
						TrainLoss: 1 / float64(e), ValLoss: 1.1 / float64(e), IoU: 0.1 * float64(e), Dice: math.NaN(),
						ValSeconds: 0.5, LearningRate: 1e-3, Accuracy: math.NaN(), ValAccuracy: math.NaN(), Line: e + 1,
					})
				}
				all = append(all, r)
			}
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	return study
}

// TestCommunicationOfRuns: a series that run.json states to be without communication shows what
// communication costs, and is not compared as another series is.
func TestCommunicationOfRuns(t *testing.T) {
	all := invented(t, "blue", "green", "red").Runs
	for i := range all {
		r := &all[i]
		r.Info.Strategy = map[string]string{"blue": "ddp", "green": "zero1", "red": "ddp"}[r.Info.Series]
		if r.Info.Series == "red" {
			r.Info.Config = map[string]any{"strategy": map[string]any{"name": "ddp", "no_communication": true}}
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	r, err := New(study, Options{Only: []string{"speedup"}})
	check(t, err)
	said := strings.Join(r.Sentences, "\n")
	if !strings.Contains(said, "blue: communication costs") || strings.Contains(said, "than red") || strings.Contains(said, "red is faster") || !strings.Contains(said, "Yes: blue is faster") {
		t.Error(said)
	}
}

// TestPage looks for what every report has, and follows every link in it.
func TestPage(t *testing.T) {
	r, err := New(invented(t, "ddp", "horovod"), Options{Title: "Cells", Price: 2.5, Currency: "EUR", Budget: 1})
	check(t, err)
	page := r.Page()
	for _, want := range []string{
		"<title>Cells</title>",
		// 48·8/(3.4·1.04) over 48/(2·1.04): 8·2/3.4 = 4.706, of 8 that is 58.8 %.
		"ddp is 4.706 times as fast at 8 workers as at 1", "58.8 % of the ideal",
		"mean over the epochs of a run, the first left out",
		"weak scaling",
		"Laws of scaling", "Comparison of the series", "Cost, a device-hour at 2.5 EUR", "With 1 device-hours",
		"24 runs in 2 series at 1, 2, 4, 8 workers",
		"There were no problems.",
		"0-n8-s1/epochs.csv:3–6", // epochs 2 to 5 stand on these lines
		"epochs 2–5: seconds",
		`id="figure-speedup"`, `id="figure-loss_by_epoch"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	ids := map[string]int{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		ids[m[1]]++
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("id %q stands %d times in the page", id, n)
		}
	}
	links := regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(links) < 30 { // 7 of the navigation, 2·6 headlines, 8 speed-ups, the verdicts
		t.Errorf("%d links", len(links))
	}
	for _, m := range links {
		if !strings.HasPrefix(m[1], "#") || ids[strings.TrimPrefix(m[1], "#")] != 1 {
			t.Errorf("link %q leads nowhere in the page", m[1])
		}
	}
	if ids["speedup-ddp-8"] != 1 {
		t.Error("the speed-up at 8 workers has no section under the ID that Explain gives it")
	}
	if got := strings.Count(page, "<svg "); got != len(r.Figures) || got < 8 {
		t.Errorf("%d pictures of %d figures", got, len(r.Figures))
	}
}

// TestLawNeedsCounts: two worker counts name no law, and the page says so
// instead of contradicting its own percentage of the ideal.
func TestLawNeedsCounts(t *testing.T) {
	all := invented(t, "ddp").Runs
	study, err := scaling.FromRuns(slices.DeleteFunc(slices.Clone(all), func(r runs.Run) bool { return r.Info.Workers > 2 }))
	check(t, err)
	r, err := New(study, Options{})
	check(t, err)
	said := r.String()
	if !strings.Contains(said, "ddp: too few worker counts to fit a law: there are 2.") || strings.Contains(said, "every additional worker") {
		t.Error(said)
	}
	if page := r.Page(); !strings.Contains(page, `<section id="fits"`) || !strings.Contains(page, "got 6 runs at 2") {
		t.Error("the page does not say what a law needs")
	}
	one, err := scaling.FromRuns(slices.DeleteFunc(slices.Clone(all), func(r runs.Run) bool { return r.Info.Workers > 1 }))
	check(t, err)
	if r, err = New(one, Options{}); err != nil || strings.Contains(r.String(), "law") {
		t.Errorf("one worker count says nothing of scaling: %s, %v", r, err)
	}
}

// TestSettings: the headlines and a table of their own show what differs between
// the series, and nothing of it where nothing does.
func TestSettings(t *testing.T) {
	study := invented(t, "ddp", "large batches")
	all := slices.Clone(study.Runs)
	for i := range all {
		if all[i].Info.Series != "ddp" {
			all[i].Info.BatchPerWorker, all[i].Info.GlobalBatch = 16, 16*all[i].Info.Workers
			all[i].Info.Config = map[string]any{"optimizer": map[string]any{"learning_rate": 0.30000000000000004}}
		}
	}
	other, err := scaling.FromRuns(all)
	check(t, err)
	r, err := New(other, Options{Only: []string{"speedup"}})
	check(t, err)
	page := r.Page()
	for _, want := range []string{`<section id="settings"`, "What differs between the series", "<th>learning rate</th><th class=\"number\">batch per worker</th>", "<td>0.3</td>"} {
		if !strings.Contains(strings.ReplaceAll(page, `<th class="number">learning rate`, "<th>learning rate"), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "0.30000000000000004") {
		t.Error("a learning rate has 17 digits")
	}
	if r, err = New(study, Options{Only: []string{"speedup"}}); err != nil || strings.Contains(r.Page(), "What differs between") {
		t.Errorf("the same settings are shown as different, %v", err)
	}
}

// TestCollective writes step spans of the ring's model, 20 µs and 10 GB/s, at
// three numbers of workers.
func TestCollective(t *testing.T) {
	const alpha, beta, parameters = 20e-6, 1e-10, 2_000_000
	dir := t.TempDir()
	nan := math.NaN()
	for _, n := range []int{2, 4, 8} {
		for seed := range 2 {
			place := filepath.Join(dir, fmt.Sprintf("ddp-n%d-s%d", n, seed))
			w, err := runs.Create(place, runs.Info{Study: "cells", Series: "ddp", Workers: n, Seed: int64(seed), Parameters: parameters, Status: runs.StatusRunning})
			check(t, err)
			for rank := range n {
				steps, err := runs.OpenSteps(place, rank, runs.Worker{Rank: rank, WorldSize: n})
				check(t, err)
				for i := range 8 {
					f := float64(n)
					check(t, steps.AppendStep(runs.Step{Epoch: i/4 + 1, Step: i + 1, Forward: 0.1, AllReduce: 2*(f-1)*alpha + 2*(f-1)/f*4*parameters*beta}))
				}
				check(t, steps.Close())
			}
			for e := range 2 {
				check(t, w.AppendEpoch(runs.Epoch{
					Epoch: e + 1, Seconds: 1, Samples: 16 * n, SamplesPerSecond: nan, TrainLoss: 1, ValLoss: nan,
					IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
				}))
			}
			check(t, w.Finish(runs.StatusDone, nil))
		}
	}
	study, err := scaling.Read(dir)
	check(t, err)
	r, err := New(study, Options{})
	check(t, err)
	page := r.Page()
	for _, part := range []string{`<section id="collective"`, "each message of the all-reduce has a latency of 20.00 µs, and each rank transfers 10.00", `<a href="#collective">`} {
		if !strings.Contains(html.UnescapeString(page), part) {
			t.Errorf("the page does not say %q: %q", part, r.Sentences)
		}
	}
}

// TestSelfContained: nothing on the page is fetched, and nothing runs.
func TestSelfContained(t *testing.T) {
	r, err := New(invented(t, "ddp"), Options{})
	check(t, err)
	page := r.Page()
	for _, m := range regexp.MustCompile(`(?i)(src|href|xlink:href|action)="[^"#][^"]*"|url\([^)]*\)|@import|<script|<iframe|<link`).FindAllString(page, -1) {
		t.Errorf("the page holds %q", m)
	}
	for _, m := range regexp.MustCompile(`https?://[^"'\s]*`).FindAllString(page, -1) {
		if !strings.HasPrefix(m, "http://www.w3.org/") { // names of SVG's parts, which nobody fetches
			t.Errorf("the page names %q", m)
		}
	}
}

// TestEscapes: what logs say is text, whatever it looks like.
func TestEscapes(t *testing.T) {
	const evil = `<script>alert("1")</script>`
	s := invented(t, evil, `"><img src=x onerror=alert(1)>`)
	s.Problems = append(s.Problems, runs.Problem{File: evil, Line: 3, Reason: "<b>broken</b>"})
	s.Notes = append(s.Notes, "<i>note</i>")
	r, err := New(s, Options{Title: evil, Price: 1, Currency: "<u>"})
	check(t, err)
	for name, text := range map[string]string{"page": r.Page(), "cell": r.HTML()} {
		for _, bad := range []string{"<script", "<img", "<b>broken", "<i>note", "<u>"} {
			if strings.Contains(text, bad) {
				t.Errorf("the %s holds %q", name, bad)
			}
		}
		if !strings.Contains(text, "&lt;script&gt;") {
			t.Errorf("the %s does not show the series", name)
		}
	}
}

// TestSameBytes: the same logs give the same page, without a date.
func TestSameBytes(t *testing.T) {
	s := invented(t, "ddp", "horovod")
	var pages [2]string
	for i := range pages {
		r, err := New(s, Options{Costs: true})
		check(t, err)
		pages[i] = r.Page()
	}
	if pages[0] != pages[1] {
		t.Error("two reports of one study differ")
	}
	if m := regexp.MustCompile(`20[0-9]{2}-[01][0-9]-[0-3][0-9]`).FindString(pages[0]); m != "" {
		t.Errorf("the page has the date %s, which no log has", m)
	}
}

// TestLittle: studies that tell little still have a page, which says what
// there is.
func TestLittle(t *testing.T) {
	nan := math.NaN()
	one := runs.Run{Dir: "x", Info: runs.Info{Series: "ddp", Workers: 1, Status: runs.StatusDone}, Epochs: []runs.Epoch{{
		Epoch: 1, Seconds: nan, SamplesPerSecond: nan, TrainLoss: nan, ValLoss: nan, IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
	}}}
	s, err := scaling.FromRuns([]runs.Run{one})
	check(t, err)
	r, err := New(s, Options{})
	check(t, err)
	page := r.Page()
	wants := []string{"<h1>Scaling report</h1>", "1 run at 1 worker"}
	for _, p := range s.Problems {
		wants = append(wants, html.EscapeString(p.String()))
	}
	if len(s.Problems) == 0 {
		wants = append(wants, "There were no problems.", "The logs contain no times, no throughput and no trials.")
	}
	for _, want := range wants {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q; sentences %q", want, r.Sentences)
		}
	}
	if strings.Contains(page, `id="figures"`) {
		t.Error("there is a section of figures without any")
	}
}

// TestWrongUse is refused with what to do instead.
func TestWrongUse(t *testing.T) {
	s := invented(t, "ddp")
	for _, c := range []struct {
		study   *scaling.Study
		options Options
		want    string
	}{
		{nil, Options{}, "no study"},
		{s, Options{Price: -1}, "--price -1"},
		{s, Options{Budget: math.Inf(1)}, "--budget +Inf"},
		{s, Options{Only: []string{"speed"}}, "did you mean speedup?"},
		{s, Options{Figures: figure.Options{Series: []string{"mirrored"}}}, `unknown series "mirrored"`},
		{s, Options{Figures: figure.Options{Smooth: 2}}, "smooth is 2"},
	} {
		if _, err := New(c.study, c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected one with %q", err, c.want)
		}
	}
	r, err := New(s, Options{Only: []string{"speedup"}})
	check(t, err)
	if len(r.Figures) != 1 || r.Figures[0].Name() != "speedup" {
		t.Errorf("%d figures, expected the speed-up alone", len(r.Figures))
	}
	dir := t.TempDir()
	if err := r.Save(t.Context(), filepath.Join(dir, "report.docx")); err == nil || !strings.Contains(err.Error(), "use .html or .pdf") {
		t.Errorf("error %v", err)
	}
}

// TestSaveHTML writes the page whole, in a folder that it makes.
func TestSaveHTML(t *testing.T) {
	r, err := New(invented(t, "ddp"), Options{})
	check(t, err)
	path := filepath.Join(t.TempDir(), "new", "report.html")
	check(t, r.Save(t.Context(), path))
	data, err := os.ReadFile(path)
	check(t, err)
	if string(data) != r.Page() {
		t.Error("the file is not the page")
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v; want report.html alone", entries, err)
	}
}

// TestNoBrowser says what to install, and leaves no file.
func TestNoBrowser(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r, err := New(invented(t, "ddp"), Options{Only: []string{"speedup"}})
	check(t, err)
	path := filepath.Join(t.TempDir(), "report.pdf")
	err = r.Save(t.Context(), path)
	if !errors.Is(err, ErrNoBrowser) || !strings.Contains(err.Error(), "apt-get install --yes --no-install-recommends chromium") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
}

// TestBrowserFails passes on what a browser says that cannot print.
func TestBrowserFails(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "chromium"), []byte("#!/bin/sh\necho no display >&2\nexit 7\n"), 0o755))
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	r, err := New(invented(t, "ddp"), Options{Only: []string{"speedup"}})
	check(t, err)
	err = r.Save(t.Context(), filepath.Join(t.TempDir(), "report.pdf"))
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "no display") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Save(ctx, filepath.Join(t.TempDir(), "report.pdf")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected that of the context", err)
	}
}

// TestSavePDF prints with the real browser.
func TestSavePDF(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if _, err := FindBrowser(); err != nil {
		t.Skip("no chromium on this machine")
	}
	r, err := New(invented(t, "ddp"), Options{Only: []string{"speedup"}})
	check(t, err)
	path := filepath.Join(t.TempDir(), "a report.pdf")
	check(t, r.Save(t.Context(), path))
	data, err := os.ReadFile(path)
	check(t, err)
	if !bytes.HasPrefix(data, []byte("%PDF-")) || len(data) < 10_000 || !bytes.Contains(data, []byte("/Type /Page")) {
		t.Errorf("%d bytes that begin with %q", len(data), data[:min(8, len(data))])
	}
}
