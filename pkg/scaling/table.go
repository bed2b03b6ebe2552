package scaling

import (
	"io"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
)

// spanField is a Span of a Point with its column's name.
type spanField struct {
	name  string
	brief bool
	span  func(Point) Span
}

// spanFields are those of a Point, in the table's order.
func spanFields() []spanField {
	return []spanField{
		{"epoch_seconds", true, func(p Point) Span { return p.EpochSeconds }},
		{"throughput", true, func(p Point) Span { return p.Throughput }},
		{"speedup", true, func(p Point) Span { return p.Speedup }},
		{"efficiency", true, func(p Point) Span { return p.Efficiency }},
		{"iou", true, func(p Point) Span { return p.IoU }},
		{"iou_constant", true, func(p Point) Span { return p.IoUConstant }},
		{"iou_untrained", true, func(p Point) Span { return p.IoUUntrained }},
		{"dice", true, func(p Point) Span { return p.Dice }},
		{"dice_constant", false, func(p Point) Span { return p.DiceConstant }},
		{"dice_untrained", false, func(p Point) Span { return p.DiceUntrained }},
		{"train_loss", false, func(p Point) Span { return p.TrainLoss }},
		{"val_loss", false, func(p Point) Span { return p.ValLoss }},
		{"test_loss", false, func(p Point) Span { return p.TestLoss }},
		{"accuracy", true, func(p Point) Span { return p.Accuracy }},
		{"val_accuracy", true, func(p Point) Span { return p.ValAccuracy }},
		{"per_worker", false, func(p Point) Span { return p.PerWorker }},
		{"train_seconds", false, func(p Point) Span { return p.TrainSeconds }},
		{"test_seconds", false, func(p Point) Span { return p.TestSeconds }},
		{"wall_seconds", true, func(p Point) Span { return p.WallSeconds }},
		{"energy_joules", false, func(p Point) Span { return p.EnergyJoules }},
	}
}

// deviates reports whether the field is measured in each run, so that it has a
// standard deviation.
func (f spanField) deviates() bool {
	return !slices.Contains([]string{"speedup", "efficiency", "iou_constant", "iou_untrained", "dice_constant", "dice_untrained"}, f.name)
}

// fewest are the columns that stand in the table even where nothing was
// measured, so that one sees what is not there.
func fewest() []string { return []string{"epoch_seconds", "throughput", "speedup", "efficiency"} }

// grid is the study's table.
func (s *Study) grid() grid[Point] {
	g := grid[Point]{what: "study", rows: s.Points, remarks: s.remarks(), columns: []column[Point]{
		{name: "series", brief: true, text: func(p Point) string { return p.Series }},
		{name: "workers", brief: true, count: func(p Point) int { return p.Workers }},
		{name: "runs", brief: true, count: func(p Point) int { return p.Runs }},
	}}
	fields := spanFields()
	for _, f := range fields {
		c := column[Point]{
			name: f.name, brief: f.brief, optional: !slices.Contains(fewest(), f.name),
			value: func(p Point) float64 { return f.span(p).Value },
		}
		if s.Rule.Repeats == Mean && f.deviates() {
			c.show = func(p Point) string { return f.span(p).withDeviation() }
		}
		g.columns = append(g.columns, c)
		if f.name == "speedup" {
			g.columns = append(g.columns, column[Point]{
				name: "speedup_interval", title: "interval", brief: true, optional: true, people: true,
				value: func(p Point) float64 {
					if p.Size == p.Baseline { // 1 over itself says nothing
						return nothing().Low
					}
					return p.Speedup.Low
				},
				show: func(p Point) string { return p.Speedup.interval() },
			})
		}
	}
	for _, f := range fields {
		if slices.Contains([]string{"iou_constant", "iou_untrained", "dice_constant", "dice_untrained"}, f.name) {
			continue // known once, not measured
		}
		for _, end := range []struct {
			name string
			pick func(Span) float64
		}{
			{"_min", func(s Span) float64 { return s.Min }},
			{"_max", func(s Span) float64 { return s.Max }},
			{"_low", func(s Span) float64 { return s.Low }},
			{"_high", func(s Span) float64 { return s.High }},
		} {
			g.columns = append(g.columns, column[Point]{name: f.name + end.name, value: func(p Point) float64 { return end.pick(f.span(p)) }})
		}
	}
	g.columns = append(g.columns,
		column[Point]{name: "failed", count: func(p Point) int { return p.Failed }, brief: true},
		column[Point]{name: "diverged", count: func(p Point) int { return p.Diverged }, brief: true, optional: true},
		column[Point]{name: "disturbed", count: func(p Point) int { return p.Disturbed }, brief: true, optional: true, people: true},
		column[Point]{name: "epochs", count: func(p Point) int { return p.Epochs }},
		column[Point]{name: "nodes", count: func(p Point) int { return p.Nodes }, brief: s.Rule.Per == PerNode},
		column[Point]{name: "size", count: func(p Point) int { return p.Size }},
		column[Point]{name: "baseline", count: func(p Point) int { return p.Baseline }},
		column[Point]{name: "scaling", text: func(p Point) string { return p.Scaling }},
		column[Point]{name: "batch_per_worker", count: func(p Point) int { return p.BatchPerWorker }},
		column[Point]{name: "global_batch", count: func(p Point) int { return p.GlobalBatch }},
		column[Point]{name: "samples_per_epoch", count: func(p Point) int { return p.SamplesPerEpoch }},
		column[Point]{name: "threads_per_worker", count: func(p Point) int { return p.ThreadsPerWorker }})
	for _, f := range fields {
		if f.deviates() {
			g.columns = append(g.columns, column[Point]{name: f.name + "_std", value: func(p Point) float64 { return f.span(p).Std }})
		}
	}
	return g
}

// Table has a row for each series and number of workers. The columns:
//
//	series                 what is compared
//	workers                data-parallel workers
//	runs                   runs that count
//	epoch_seconds          seconds of training per epoch, by the rule
//	throughput             samples per second, all workers together (NaN where the logs tell no samples)
//	speedup                over the baseline
//	efficiency             speed-up over the ideal one, 1 is perfect
//	iou                    intersection over union on the test set after training, 0 to 1
//	iou_constant           the same of the better of the all-0 and the all-1 predictor
//	iou_untrained          the same of the network before its first step
//	dice, dice_constant, dice_untrained   the same for the Dice coefficient
//	train_loss, val_loss   of the last epoch
//	test_loss              after training
//	accuracy, val_accuracy of the last epoch, 0 to 1
//	per_worker             samples per second and worker (node with Rule.Per "node")
//	train_seconds, test_seconds, wall_seconds   of all epochs, of the test, of the whole job
//	energy_joules          of all devices over a run
//	…_min, …_max           lowest and highest of the repeated runs
//	…_low, …_high          confidence interval, see Study.IntervalNote
//	failed                 runs that failed or were cancelled, and do not count
//	diverged               runs whose loss became NaN or infinite; their time counts
//	epochs                 epochs that count, of these runs together
//	nodes                  machines, 0 where unknown
//	size, baseline         what the rule counts (workers or nodes), and that of the baseline
//	scaling                weak, strong or unknown
//	batch_per_worker, global_batch, samples_per_epoch, threads_per_worker   0 where unknown
//	…_std                  standard deviation over the repeated runs, of what is measured in each
//
// The table for people also has a column disturbed where other load disturbed
// runs that count: how many.
func (s *Study) Table() dataframe.DataFrame { return s.grid().table() }

// Write writes the table as "table" (for people: rounded, the main columns,
// then the rule, notes and problems), "csv" (every column, exact numbers, an
// empty cell where nothing was measured) or "json" (an array of objects with
// the same names, null where nothing was measured).
func (s *Study) Write(w io.Writer, format string) error { return s.grid().write(w, format) }

// String is the table for people, with the rule, the notes and the problems.
func (s *Study) String() string { return s.grid().String() }

// HTML is the table for people in a notebook's cell.
func (s *Study) HTML() string { return s.grid().html() }

// remarks are the rule, how intervals were made, weak or strong scaling, the
// notes and the problems, a line each.
func (s *Study) remarks() []string {
	lines := []string{"rule: " + s.Rule.String()}
	if slices.ContainsFunc(s.Points, func(p Point) bool { return p.Runs > 1 }) {
		lines = append(lines, s.IntervalNote())
		if s.Rule.Repeats == Mean {
			lines = append(lines, "mean ± standard deviation over repeated runs; the interval of the speed-up is that of the line above")
		}
	} else if slices.ContainsFunc(s.Points, func(p Point) bool { return p.Epochs > 1 && !math.IsNaN(p.EpochSeconds.Value) }) {
		lines = append(lines, "intervals: none: each point is one run; how much its epochs scatter is in EpochSpreads (lockstep scaling --epoch-spread)")
	}
	for _, m := range s.modes {
		if m.Scaling != ScalingUnknown || m.Batch == neitherFixed {
			lines = append(lines, "scaling: "+m.String())
		}
	}
	for _, n := range s.Notes {
		lines = append(lines, "note: "+n)
	}
	for _, p := range s.Problems {
		lines = append(lines, "problem: "+p.String())
	}
	return lines
}
