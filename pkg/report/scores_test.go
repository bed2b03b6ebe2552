package report

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// TestScoresOfClassesAndImages: the page has a row per class, and the best, the median and the worst
// held-out image. An image without counted pixels is none of them.
func TestScoresOfClassesAndImages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ddp-n1-s1")
	page := func() string {
		run, err := runs.Read(dir)
		check(t, err)
		study, err := scaling.FromRuns([]runs.Run{run})
		check(t, err)
		r, err := New(study, Options{})
		check(t, err)
		return r.Page()
	}
	nan := math.NaN()
	w, err := runs.Create(dir, runs.Info{Study: "cells", Series: "ddp", Workers: 1, Seed: 1})
	check(t, err)
	check(t, w.AppendEpoch(runs.Epoch{Epoch: 1, Seconds: 2, Samples: 8, TrainLoss: 1, ValLoss: 1, IoU: 0.7, Dice: 0.8}))
	if p := page(); strings.Contains(p, `id="classes"`) || strings.Contains(p, `id="images"`) {
		t.Error("scores are shown although none were recorded")
	}
	check(t, w.WriteImages([]runs.NamedScores{
		{Name: "c.png", IoU: 0.5, Dice: 0.6, Pixels: 9},
		{Name: "empty.png", IoU: nan, Dice: nan},
		{Name: "<d>.png", IoU: 0.9, Dice: 0.95, Pixels: 9},
		{Name: "a.png", IoU: 0.25, Dice: 0.4, Pixels: 9},
		{Name: "b.png", IoU: 0.75, Dice: 0.8, Pixels: 9},
		{Name: "e.png", IoU: 0.8, Dice: 0.9, Pixels: 9},
	}))
	check(t, w.UpdateInfo(func(i *runs.Info) {
		i.Test = &runs.Test{IoU: 0.7, Classes: []runs.NamedScores{{Name: "background", IoU: 0.91, Dice: 0.95, Pixels: 80}, {Name: "cell", IoU: nan, Dice: nan}}}
	}))
	check(t, w.Finish(runs.StatusDone, nil))
	p := page()
	for _, want := range []string{
		"Best and worst held-out images", "mean IoU",
		`<td>best of 5</td><td>&lt;d&gt;.png</td><td class="number">0.900</td>`, `<td>median of 5</td><td>b.png</td><td class="number">0.750</td>`,
		`<td>worst of 5</td><td>a.png</td><td class="number">0.250</td><td class="number">0.400</td><td class="number">9</td>`,
		"<td>background</td>", "<td>cell</td>", "a class without pixels is in no held-out mask",
	} {
		if !strings.Contains(p, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(p, "Test on complete images") {
		t.Error("the page has a final test, which the run does not have")
	}
	check(t, os.WriteFile(filepath.Join(dir, "images.csv"), []byte("image,iou,dice,pixels\na.png,x,1,1\nb.png,1,1,1\n"), 0o644))
	if p := page(); !strings.Contains(p, "images.csv:2: expected a number, got &#34;x&#34;") {
		t.Error("the page does not name the damaged row")
	}
}

// TestFinalTest: with three parts of the data, the page has the scores of the test part, and says which
// images the others are of.
func TestFinalTest(t *testing.T) {
	final := runs.Test{Samples: 6, IoU: 0.625, IoUConstant: 0.25, Dice: 0.75, Loss: 0.5, Classes: []runs.NamedScores{{Name: "background", IoU: 0.875, Dice: 0.9}, {Name: "cell", IoU: 0.375, Dice: 0.6}}}
	run := runs.Run{Dir: "/logs/cells/ddp-n1-s1", Epochs: []runs.Epoch{{Epoch: 1, Seconds: 2, Samples: 8}}, Info: runs.Info{Study: "cells", Series: "ddp", Workers: 1, Status: runs.StatusDone, Final: &final}}
	study, err := scaling.FromRuns([]runs.Run{run})
	check(t, err)
	r, err := New(study, Options{})
	check(t, err)
	for _, want := range []string{
		`<td>ddp-n1-s1</td><td>mean</td><td class="number">6</td><td class="number">0.625</td><td class="number">0.250</td><td class="number">0.750</td><td class="number">0.500</td>`,
		`<td>cell</td><td class="number"></td><td class="number">0.375</td><td class="number">–</td>`, "All other scores are of the validation images.",
	} {
		if !strings.Contains(r.Page(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}
