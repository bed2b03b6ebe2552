package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// maxImageScoreRuns limits the runs whose held-out images are shown, because the page reads a file for
// each run.
const maxImageScoreRuns = 20

// analyzeClasses shows the scores of each class if there are several classes.
func (b *pageBuilder) analyzeClasses() (analysis, bool) {
	c := b.study.Classes()
	if len(c.Rows) == 0 {
		return analysis{}, false
	}
	return analysis{
		id: "classes", title: "Classes",
		html: c.FirstHTML(maxPoints) + formatNoteHTML(describeOmitted(len(c.Rows), maxPoints, "rows", "lockstep scaling --show classes")),
	}, true
}

// maxFinalTestRuns limits the runs whose final test the page shows.
const maxFinalTestRuns = 50

// analyzeFinalTest shows the scores on the complete images of the test part. It returns false if
// the data have no test part.
func (b *pageBuilder) analyzeFinalTest() (analysis, bool) {
	var rows [][]string
	tested := 0
	for _, r := range b.study.Runs {
		t := r.Info.Final
		if t == nil {
			continue
		}
		if tested++; tested > maxFinalTestRuns {
			continue
		}
		name := filepath.Base(r.Dir)
		what := "foreground"
		if t.Classes != nil {
			what = "mean"
		}
		rows = append(rows, []string{name, what, strconv.Itoa(t.Samples), formatNumber(t.IoU), formatNumber(t.IoUConstant), formatNumber(t.Dice), formatNumber(t.Loss)})
		for _, c := range t.Classes {
			rows = append(rows, []string{name, c.Name, "", formatNumber(c.IoU), "–", formatNumber(c.Dice), "–"})
		}
	}
	if len(rows) == 0 {
		return analysis{}, false
	}
	const texts = 2
	return analysis{
		id: "final", title: "Test on complete images",
		html: tableHTML([]string{"run", "class", "images", "IoU", "IoU of the constant predictor", "Dice", "loss"}, rows, texts) +
			formatNoteHTML("Scored once, after the training. All other scores are of the validation images.") +
			formatNoteHTML(describeOmitted(tested, maxFinalTestRuns, "runs", "run.json of each run folder")),
	}, true
}

// analyzeImageScores shows the best, the median and the worst held-out image of each run.
func (b *pageBuilder) analyzeImageScores() (analysis, bool) {
	var rows [][]string
	notes, parts, scored := "", []string{}, 0
	for _, r := range b.study.Runs {
		images, problems, err := runs.ReadImages(r.Dir)
		if err != nil { // not a folder
			continue
		}
		for _, p := range problems[:min(1, len(problems))] {
			notes += formatNoteHTML(p.String())
		}
		known := slices.DeleteFunc(images, func(s runs.NamedScores) bool { return !isMeasured(s.IoU) })
		if len(known) == 0 || r.Info.Unreal != "" {
			continue
		}
		if scored++; scored > maxImageScoreRuns {
			continue
		}
		if part := r.Info.EvaluatedPart(); !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
		slices.SortStableFunc(known, func(x, y runs.NamedScores) int { return cmp.Compare(y.IoU, x.IoU) })
		for _, place := range []struct {
			name  string
			index int
		}{{"best", 0}, {"median", len(known) / 2}, {"worst", len(known) - 1}} {
			s := known[place.index]
			name := fmt.Sprintf("%s of %d", place.name, len(known))
			rows = append(rows, []string{filepath.Base(r.Dir), name, s.Name, formatNumber(s.IoU), formatNumber(s.Dice), strconv.FormatInt(s.Pixels, 10)})
		}
	}
	if len(rows) == 0 {
		return analysis{}, false
	}
	const texts = 3
	return analysis{
		id: "images", title: "Best and worst " + english.JoinAnd(parts) + " images",
		html: tableHTML([]string{"run", "place", "image", "IoU", "Dice", "pixels"}, rows, texts) + notes +
			formatNoteHTML("After the last epoch, of all tiles of an image together. With several classes, IoU and Dice are the means over those in the image's mask.") +
			formatNoteHTML(describeOmitted(scored, maxImageScoreRuns, "runs", "images.csv of each run folder")),
	}, true
}
