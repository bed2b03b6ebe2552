package scaling

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/runs"
)

// Reached is when a run reached the target, or that it did not.
type Reached struct {
	Series      string
	Workers     int
	Seed        int64
	Run         string
	Reached     bool
	Epoch       int     // the first at or past the target; 0 where none, or where the curve was logged by step
	Step        int64   // likewise, by step; 0 where the log tells none
	Seconds     float64 // of training up to then, validation not included; NaN where unknown
	WallSeconds float64 // since the run's start or its first record, validation included; NaN where unknown
	Best        float64 // the best value that the run reached
}

// TimeTo is the time to a target of every run. A cell shows it as a table.
type TimeTo struct {
	Metric   string
	Target   float64
	Below    bool // reached at or below the target; else at or above
	Rows     []Reached
	Problems []runs.Problem
	Sentence string
}

// below says whether less of a metric is better.
func below(metric string) bool {
	low := strings.ReplaceAll(strings.ToLower(metric), "accum", "") // of gradients, which is no accuracy
	for _, high := range []string{
		"iou", "jaccard", "dice", "acc", "f1", "auc", "precision", "recall", "top1", "top5", "bleu", "rouge", "score",
		"psnr", "ssim", "per_second", "per sec", "throughput",
	} {
		if strings.Contains(low, high) {
			return false
		}
	}
	words := strings.FieldsFunc(low, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return !slices.ContainsFunc(words, func(word string) bool {
		// Mean average precision, at a threshold too, and rates of torchtitan's, timm's and others' logs.
		return slices.Contains([]string{"map", "map50", "map75", "map95", "ap", "r2", "mfu", "tps", "ips", "fps", "tflops"}, word)
	})
}

// TimeTo says when each run first reached a target of a metric (one of
// Metrics): at or below it for losses, at or above it for IoU, accuracy and
// the like. Runs that never did are rows too.
func (s *Study) TimeTo(metric string, target float64) (*TimeTo, error) {
	if !finite(target) {
		return nil, fmt.Errorf("time to %s: the target is %g: give a number", metric, target)
	}
	t := &TimeTo{Metric: metric, Target: target, Below: below(metric)}
	axis := AxisEpoch
	if !slices.ContainsFunc(epochMetrics(), func(m struct {
		name  string
		value func(runs.Epoch) float64
	},
	) bool {
		return m.name == metric
	}) {
		axis = AxisStep
	}
	set, err := s.Curve(metric, axis)
	if err != nil {
		return nil, fmt.Errorf("time to %s %g: %w", metric, target, err)
	}
	t.Problems = set.Problems
	for _, l := range set.Lines {
		i := slices.IndexFunc(s.Runs, func(r runs.Run) bool { return r.Dir == l.Run })
		t.Rows = append(t.Rows, t.reached(l, s.Runs[i], axis))
	}
	t.Sentence = t.say()
	return t, nil
}

// past says whether a value is at or past the target.
func (t *TimeTo) past(v float64) bool {
	if t.Below {
		return v <= t.Target
	}
	return v >= t.Target
}

func (t *TimeTo) reached(l CurveLine, r runs.Run, axis string) Reached {
	out := Reached{
		Series: l.Series, Workers: l.Workers, Seed: l.Seed, Run: l.Run,
		Seconds: math.NaN(), WallSeconds: math.NaN(), Best: math.NaN(),
	}
	for i, v := range l.Y {
		if !finite(v) {
			continue
		}
		if math.IsNaN(out.Best) || t.Below == (v < out.Best) {
			out.Best = v
		}
		if out.Reached || !t.past(v) {
			continue
		}
		out.Reached = true
		if axis == AxisEpoch {
			out.atEpoch(r, int(l.X[i]))
		} else {
			out.Step = int64(l.X[i])
			out.atStep(r, l, i)
		}
	}
	return out
}

// atEpoch fills in when an epoch ended.
func (x *Reached) atEpoch(r runs.Run, epoch int) {
	x.Epoch = epoch
	x.Seconds, x.WallSeconds = 0, 0
	_, global := batches(r)
	for _, e := range r.Epochs {
		x.Seconds += e.Seconds
		x.WallSeconds += e.Seconds
		if e.ValSeconds > 0 {
			x.WallSeconds += e.ValSeconds
		}
		if global > 0 {
			x.Step += int64(math.Ceil(float64(e.Samples) / float64(global)))
		}
		if e.Epoch == epoch {
			return
		}
	}
}

// atStep fills in when the i-th point of a logged curve was written.
func (x *Reached) atStep(r runs.Run, l CurveLine, i int) {
	for _, c := range r.Curves {
		if c.Name == l.Name && c.Rank == l.Rank && len(c.Times) == len(l.Y) {
			x.WallSeconds = c.Times[i] - c.Times[0]
			return
		}
	}
}

func (t *TimeTo) say() string {
	sign := "≥"
	if t.Below {
		sign = "≤"
	}
	reached := slices.DeleteFunc(slices.Clone(t.Rows), func(r Reached) bool { return !r.Reached })
	text := fmt.Sprintf("%s %s %s: reached by %d of %s", t.Metric, sign, short(t.Target), len(reached), plural(len(t.Rows), "run"))
	known := slices.DeleteFunc(reached, func(r Reached) bool { return math.IsNaN(r.time()) })
	if len(known) == 0 {
		return text
	}
	first := slices.MinFunc(known, func(a, b Reached) int {
		if a.time() < b.time() {
			return -1
		}
		return 1
	})
	return text + fmt.Sprintf(", first by %s at %s after %s s", first.Series, plural(first.Workers, "worker"), short(first.time()))
}

// time is the training time, or else that of the clock.
func (x Reached) time() float64 {
	if math.IsNaN(x.Seconds) {
		return x.WallSeconds
	}
	return x.Seconds
}

func (t *TimeTo) grid() grid[Reached] {
	g := grid[Reached]{what: "time to target", rows: t.Rows, columns: []column[Reached]{
		{name: "series", brief: true, text: func(r Reached) string { return r.Series }},
		{name: "workers", brief: true, count: func(r Reached) int { return r.Workers }},
		{name: "seed", brief: true, count: func(r Reached) int { return int(r.Seed) }},
		{name: "run", text: func(r Reached) string { return r.Run }},
		{name: "reached", brief: true, flag: func(r Reached) bool { return r.Reached }},
		{name: "epoch", brief: true, optional: true, count: func(r Reached) int { return r.Epoch }},
		{name: "step", brief: true, optional: true, count: func(r Reached) int { return int(r.Step) }},
		{name: "seconds", brief: true, optional: true, value: func(r Reached) float64 { return r.Seconds }},
		{name: "wall_seconds", brief: true, optional: true, value: func(r Reached) float64 { return r.WallSeconds }},
		{name: "best", brief: true, value: func(r Reached) float64 { return r.Best }},
	}}
	g.remarks = []string{t.Sentence, "seconds are of training; wall_seconds hold validation too, as far as the log tells it"}
	for _, p := range t.Problems {
		g.remarks = append(g.remarks, "no row: "+p.String())
	}
	return g
}

// Table has a row a run: series, workers, seed, run, reached, epoch, step,
// seconds, wall_seconds, best. Epoch and step are 0 where there is none.
func (t *TimeTo) Table() dataframe.DataFrame { return t.grid().table() }

// String is the table for people.
func (t *TimeTo) String() string { return t.grid().String() }

// HTML is the table for a notebook's cell.
func (t *TimeTo) HTML() string { return t.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (t *TimeTo) Write(w io.Writer, format string) error { return t.grid().write(w, format) }
