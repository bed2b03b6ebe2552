package curve

import (
	"math"
	"slices"
	"strings"
	"unicode"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
)

// TargetTime describes whether and when a run reached a target; see scaling.TargetTime.
type TargetTime struct {
	Series      string
	Workers     int
	Seed        int64
	Run         string
	Reached     bool
	Epoch       int
	Step        int64
	Seconds     float64
	WallSeconds float64
	Best        float64
}

// LowerIsBetter reports whether lower values of a metric are better.
func LowerIsBetter(metric string) bool {
	low := strings.ReplaceAll(strings.ToLower(metric), "accum", "") // "accumulation" must not match "acc"
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
		// Mean average precision, also at a threshold, and rates in the logs of torchtitan, timm
		// and others.
		return slices.Contains([]string{"map", "map50", "map75", "map95", "ap", "r2", "mfu", "tps", "ips", "fps", "tflops"}, word)
	})
}

// FindTargetTime returns when a run first reached the target: a value at or below it if below is
// set, else at or above it.
func FindTargetTime(l Line, r runs.Run, axis string, target float64, below bool) TargetTime {
	past := func(v float64) bool {
		if below {
			return v <= target
		}
		return v >= target
	}
	out := TargetTime{
		Series: l.Series, Workers: l.Workers, Seed: l.Seed, Run: l.Run,
		Seconds: math.NaN(), WallSeconds: math.NaN(), Best: math.NaN(),
	}
	for i, v := range l.Y {
		if !observe.IsFinite(v) {
			continue
		}
		if math.IsNaN(out.Best) || below == (v < out.Best) {
			out.Best = v
		}
		if out.Reached || !past(v) {
			continue
		}
		out.Reached = true
		if axis == AxisEpoch {
			out.setEpochTimes(r, int(l.X[i]))
		} else {
			out.Step = int64(l.X[i])
			out.setStepTime(r, l, i)
		}
	}
	return out
}

func (x *TargetTime) setEpochTimes(r runs.Run, epoch int) {
	x.Epoch = epoch
	x.Seconds, x.WallSeconds = 0, 0
	_, global := observe.BatchSizes(r)
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

func (x *TargetTime) setStepTime(r runs.Run, l Line, i int) {
	for _, c := range r.Curves {
		if c.Name == l.Name && c.Rank == l.Rank && len(c.Times) == len(l.Y) {
			x.WallSeconds = c.Times[i] - c.Times[0]
			return
		}
	}
}
