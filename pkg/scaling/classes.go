package scaling

import (
	"slices"
	"strconv"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
)

// ClassRow contains the scores of one class in the runs of a series at one worker count.
type ClassRow struct {
	Series    string
	Workers   int
	Class     string
	Runs      int      // with a score of the class
	IoU, Dice Estimate // after training, on the held-out set; NaN if its masks do not have the class
	Pixels    int      // of the class in the held-out masks
}

// Classes contains the scores of each class for segmentation into several classes.
//
// Its table has one row per series, worker count and class: series, workers, class, runs, iou and
// dice, each with _low and _high, and pixels.
type Classes struct {
	analysis
	Rows []ClassRow
}

// Classes returns the scores of each class after training. It has no rows if no run recorded scores
// of classes. Point and Quality contain the means over the classes that occur in the held-out
// masks.
func (s *Study) Classes() *Classes {
	out := &Classes{}
	out.analysis = analysis{out}
	for i, p := range s.Points {
		var names []string
		scores := map[string][]runs.NamedScores{}
		for _, r := range s.cells[i].Runs {
			for _, c := range finalClassScores(r) {
				if scores[c.Name] == nil {
					names = append(names, c.Name)
				}
				scores[c.Name] = append(scores[c.Name], c)
			}
		}
		for _, name := range names {
			row := ClassRow{Series: p.Series, Workers: p.Workers, Class: name, Runs: len(scores[name])}
			var iou, dice []float64
			for _, c := range scores[name] {
				iou, dice, row.Pixels = append(iou, c.IoU), append(dice, c.Dice), max(row.Pixels, int(c.Pixels))
			}
			row.IoU, row.Dice = s.estimate(iou, false), s.estimate(dice, false)
			out.Rows = append(out.Rows, row)
		}
	}
	return out
}

// finalClassScores returns the scores of each class after training, or after the last recorded
// epoch if training has not ended. It returns nil if r has no such scores.
func finalClassScores(r runs.Run) []runs.NamedScores {
	if r.Info.Test != nil && r.Info.Test.Classes != nil {
		return r.Info.Test.Classes
	}
	last := 0
	var classes []runs.NamedScores
	for _, c := range r.Classes {
		if c.Epoch > last {
			last, classes = c.Epoch, nil
		}
		if c.Epoch == last {
			classes = append(classes, c.NamedScores)
		}
	}
	return classes
}

// HasClasses reports whether the IoU of any counted run is the mean over several classes.
func (s *Study) HasClasses() bool {
	return slices.ContainsFunc(s.cells, func(c observe.RunGroup) bool {
		return slices.ContainsFunc(c.Runs, func(r runs.Run) bool { return finalClassScores(r) != nil })
	})
}

func (c *Classes) table(maxRows int) resultTable {
	g := grid.Grid[ClassRow]{What: "classes", Rows: limitRows(c.Rows, maxRows), Columns: []grid.Column[ClassRow]{
		{Name: "series", Brief: true, Text: func(r ClassRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r ClassRow) int { return r.Workers }},
		{Name: "class", Brief: true, Text: func(r ClassRow) string { return r.Class }},
		{Name: "runs", Brief: true, Count: func(r ClassRow) int { return r.Runs }},
	}}
	g.Columns = append(g.Columns, estimateColumns("iou", func(r ClassRow) Estimate { return r.IoU })...)
	g.Columns = append(g.Columns, estimateColumns("dice", func(r ClassRow) Estimate { return r.Dice })...)
	g.Columns = append(g.Columns, grid.Column[ClassRow]{
		Name: "pixels", Brief: true, Count: func(r ClassRow) int { return r.Pixels },
		Show: func(r ClassRow) string { return strconv.Itoa(r.Pixels) }, // and "-" if the class is absent
	})
	switch {
	case len(c.Rows) == 0:
		g.Remarks = append(g.Remarks, "no run has scores of several classes")
	case slices.ContainsFunc(c.Rows, func(r ClassRow) bool { return r.Pixels == 0 }):
		g.Remarks = append(g.Remarks, "a class without pixels is in no held-out mask, and is left out of the means")
	}
	return g
}
