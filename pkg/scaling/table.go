package scaling

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/verdict"
)

type pointEstimateField struct {
	name  string
	brief bool
	of    func(*Point) *Estimate
}

// pointEstimateFields returns the fields of Point that are estimates, in the order of the table.
func pointEstimateFields() []pointEstimateField {
	return []pointEstimateField{
		{"epoch_seconds", true, func(p *Point) *Estimate { return &p.EpochSeconds }},
		{"throughput", true, func(p *Point) *Estimate { return &p.Throughput }},
		{"speedup", true, func(p *Point) *Estimate { return &p.Speedup }},
		{"efficiency", true, func(p *Point) *Estimate { return &p.Efficiency }},
		{"iou", true, func(p *Point) *Estimate { return &p.IoU }},
		{"iou_constant", true, func(p *Point) *Estimate { return &p.IoUConstant }},
		{"iou_untrained", true, func(p *Point) *Estimate { return &p.IoUUntrained }},
		{"dice", true, func(p *Point) *Estimate { return &p.Dice }},
		{"dice_constant", false, func(p *Point) *Estimate { return &p.DiceConstant }},
		{"dice_untrained", false, func(p *Point) *Estimate { return &p.DiceUntrained }},
		{"train_loss", false, func(p *Point) *Estimate { return &p.TrainLoss }},
		{"val_loss", false, func(p *Point) *Estimate { return &p.ValLoss }},
		{"test_loss", false, func(p *Point) *Estimate { return &p.TestLoss }},
		{"accuracy", true, func(p *Point) *Estimate { return &p.Accuracy }},
		{"val_accuracy", true, func(p *Point) *Estimate { return &p.ValAccuracy }},
		{"per_worker", false, func(p *Point) *Estimate { return &p.PerWorker }},
		{"train_seconds", false, func(p *Point) *Estimate { return &p.TrainSeconds }},
		{"test_seconds", false, func(p *Point) *Estimate { return &p.TestSeconds }},
		{"wall_seconds", true, func(p *Point) *Estimate { return &p.WallSeconds }},
		{"energy_joules", false, func(p *Point) *Estimate { return &p.EnergyJoules }},
	}
}

func findPointEstimateField(name string) pointEstimateField {
	all := pointEstimateFields()
	return all[slices.IndexFunc(all, func(f pointEstimateField) bool { return f.name == name })]
}

// hasDeviation reports whether the field is measured in each run and so has a standard deviation.
func (f pointEstimateField) hasDeviation() bool {
	return !slices.Contains([]string{"speedup", "efficiency", "iou_constant", "iou_untrained", "dice_constant", "dice_untrained"}, f.name)
}

func (s *Study) pointGrid() grid.Grid[*Point] {
	rows := make([]*Point, len(s.Points))
	for i := range s.Points {
		rows[i] = &s.Points[i]
	}
	g := grid.Grid[*Point]{What: "study", Rows: rows, Remarks: s.tableRemarks(), Columns: []grid.Column[*Point]{
		{Name: "series", Brief: true, Text: func(p *Point) string { return p.Series }},
		{Name: "workers", Brief: true, Count: func(p *Point) int { return p.Workers }},
		{Name: "runs", Brief: true, Count: func(p *Point) int { return p.Runs }},
	}}
	fields := pointEstimateFields()
	required := []string{"epoch_seconds", "throughput", "speedup", "efficiency"} // shown even without a measurement, so that one sees what is missing
	for _, f := range fields {
		c := grid.Column[*Point]{
			Name: f.name, Brief: f.brief, Optional: !slices.Contains(required, f.name),
			Value: func(p *Point) float64 { return f.of(p).Value },
		}
		if s.Rule.Repeats == Mean && f.hasDeviation() {
			c.Show = func(p *Point) string { return f.of(p).formatWithDeviation() }
		} else {
			c.Half = func(p *Point) float64 { return f.of(p).halfWidth() }
		}
		if f.name == "throughput" {
			s.showThroughputUnit(&c)
		}
		g.Columns = append(g.Columns, c)
		if f.name == "speedup" {
			g.Columns = append(g.Columns, grid.Column[*Point]{
				Name: "speedup_interval", Title: "interval", Brief: true, Optional: true, People: true, Interval: true,
				Value: func(p *Point) float64 {
					if p.Size == p.Baseline { // the interval of 1 over itself is meaningless
						return unknownEstimate().Low
					}
					return p.Speedup.Low
				},
				Show: func(p *Point) string { return p.Speedup.formatInterval() },
			})
		}
	}
	for _, f := range fields {
		if slices.Contains([]string{"iou_constant", "iou_untrained", "dice_constant", "dice_untrained"}, f.name) {
			continue // known once, not measured
		}
		for _, end := range []struct {
			name string
			pick func(Estimate) float64
		}{
			{"_min", func(s Estimate) float64 { return s.Min }},
			{"_max", func(s Estimate) float64 { return s.Max }},
			{"_low", func(s Estimate) float64 { return s.Low }},
			{"_high", func(s Estimate) float64 { return s.High }},
		} {
			g.Columns = append(g.Columns, grid.Column[*Point]{Name: f.name + end.name, Value: func(p *Point) float64 { return end.pick(*f.of(p)) }})
		}
	}
	g.Columns = append(g.Columns,
		grid.Column[*Point]{Name: "failed", Count: func(p *Point) int { return p.Failed }, Brief: true},
		grid.Column[*Point]{Name: "diverged", Count: func(p *Point) int { return p.Diverged }, Brief: true, Optional: true},
		grid.Column[*Point]{Name: "disturbed", Count: func(p *Point) int { return p.Disturbed }, Brief: true, Optional: true, People: true},
		grid.Column[*Point]{
			Name: "shared_cores", Title: "shared cores", Brief: true, Optional: true, People: true,
			Count: func(p *Point) int { return p.SharedCores }, Show: func(p *Point) string { return strconv.Itoa(p.SharedCores) },
		},
		grid.Column[*Point]{Name: "epochs", Count: func(p *Point) int { return p.Epochs }},
		grid.Column[*Point]{Name: "nodes", Count: func(p *Point) int { return p.Nodes }, Brief: s.Rule.Per == PerNode},
		grid.Column[*Point]{Name: "size", Count: func(p *Point) int { return p.Size }},
		grid.Column[*Point]{Name: "baseline", Count: func(p *Point) int { return p.Baseline }},
		grid.Column[*Point]{Name: "scaling", Text: func(p *Point) string { return p.Scaling }},
		grid.Column[*Point]{Name: "batch_per_worker", Count: func(p *Point) int { return p.BatchPerWorker }},
		grid.Column[*Point]{Name: "global_batch", Count: func(p *Point) int { return p.GlobalBatch }},
		grid.Column[*Point]{Name: "samples_per_epoch", Count: func(p *Point) int { return p.SamplesPerEpoch }},
		grid.Column[*Point]{Name: "threads_per_worker", Count: func(p *Point) int { return p.ThreadsPerWorker }})
	for _, f := range fields {
		if f.hasDeviation() {
			g.Columns = append(g.Columns, grid.Column[*Point]{Name: f.name + "_std", Value: func(p *Point) float64 { return f.of(p).Std }})
		}
	}
	g.Columns = append(g.Columns, grid.Column[*Point]{Name: "throughput_unit", Text: func(p *Point) string { return p.ThroughputUnit }})
	return g
}

// showThroughputUnit shows the unit of the throughput in the title of its column, unless it is
// samples per second. If the series have different units, it shows them in the cells instead.
func (s *Study) showThroughputUnit(c *grid.Column[*Point]) {
	units := s.throughputUnits()
	switch {
	case len(units) > 1:
		show := c.Show
		if show == nil {
			show = func(p *Point) string { return english.FormatNumber(p.Throughput.Value) }
		}
		c.Show = func(p *Point) string { return show(p) + " " + p.ThroughputUnit }
		c.Half = nil
	case len(units) == 1:
		if c.Unit = units[0]; c.Unit != observe.DefaultRateUnit {
			c.Title = "throughput (" + c.Unit + ")"
		}
	}
}

// Table returns one row per series and worker count. The columns:
//
//	series                 name of the series
//	workers                data-parallel workers
//	runs                   runs that count
//	epoch_seconds          seconds of training per epoch, by the rule
//	throughput             samples per second, all workers together (NaN if the logs have neither sample counts nor a throughput)
//	speedup                over the baseline
//	efficiency             speed-up over the ideal speed-up; 1 is perfect
//	iou                    intersection over union on the test set after training, 0 to 1; the mean over several classes, see Classes
//	iou_constant           IoU of the best constant prediction
//	iou_untrained          IoU of the network before its first training step
//	dice, dice_constant, dice_untrained   likewise for the Dice coefficient
//	train_loss, val_loss   of the last epoch
//	test_loss              after training
//	accuracy, val_accuracy of the last epoch, 0 to 1
//	per_worker             throughput per worker (per node if Rule.Per is "node")
//	train_seconds, test_seconds, wall_seconds   of all epochs, of the test, of the whole job
//	energy_joules          of all devices over a run
//	…_min, …_max           lowest and highest of the repeated runs
//	…_low, …_high          confidence interval, see Study.IntervalNote
//	failed                 runs that failed or were canceled; they do not count
//	diverged               runs whose loss became NaN or infinite; their time counts
//	epochs                 counted epochs of these runs together
//	nodes                  machines; 0 if unknown
//	size, baseline         size of the point and of its baseline, in workers or nodes (Rule.Per)
//	scaling                weak, strong or unknown
//	batch_per_worker, global_batch, samples_per_epoch, threads_per_worker   0 if unknown
//	…_std                  standard deviation over repeated runs, for columns measured in each run
//	throughput_unit        unit of throughput and per_worker: samples/s, images/s, tokens/s
//
// If there are any, the human-readable table also has the columns disturbed, the number of counted runs
// that were disturbed by other load, and shared cores, the number of cores on which more threads ran.
func (s *Study) Table() dataframe.DataFrame { return s.pointGrid().Table() }

// Write writes the table in the given format. "table" is human-readable: the main columns, rounded,
// then the rule, notes and problems. "csv" has every column with exact numbers, and empty cells for
// values that were not measured. "json" is an array of objects with the same names, with null for
// values that were not measured. "markdown" and "latex" are for a paper: the main columns with
// units, and intervals as ±. LaTeX needs the package booktabs, and has the notes as comments.
func (s *Study) Write(w io.Writer, format string) error { return s.pointGrid().Write(w, format) }

// WriteCSV writes the table to a CSV file, as Write does. It returns an error if the file is one of
// the logs that the study was read from.
func (s *Study) WriteCSV(path string) error {
	if err := wholefile.CheckOverwrite(path, s.paths...); err != nil {
		return fmt.Errorf("write study: %w", err)
	}
	err := wholefile.Write(path, 0o644, func(f *os.File) error { return s.Write(f, FormatCSV) })
	if err != nil {
		return fmt.Errorf("write study: %w", err)
	}
	return nil
}

// String returns the human-readable table, with the rule, the notes and the problems.
func (s *Study) String() string { return s.pointGrid().String() }

// HTML returns the human-readable table as HTML for a notebook.
func (s *Study) HTML() string { return s.pointGrid().HTML() }

// tableRemarks returns the lines below the table: the cautions, the rule, how intervals are computed,
// the scaling mode of each series, other notes, and the problems.
func (s *Study) tableRemarks() []string {
	notes := s.unshownNotes()
	cautions := slices.DeleteFunc(s.Cautions(), func(text string) bool { return !slices.Contains(notes, text) })
	lines := formatCautions(cautions)
	lines = append(lines, "rule: "+s.Rule.String())
	if slices.ContainsFunc(s.Points, func(p Point) bool { return p.Runs > 1 }) {
		lines = append(lines, s.IntervalNote())
		if s.Rule.Repeats == Mean {
			lines = append(lines, "mean ± standard deviation over repeated runs; the interval of the speed-up is computed as in the line above")
		}
	} else if slices.ContainsFunc(s.Points, func(p Point) bool { return p.Epochs > 1 && !math.IsNaN(p.EpochSeconds.Value) }) {
		lines = append(lines, "intervals: none, because each point is one run; lockstep scaling --show epoch-spread prints the spread of its epochs")
	}
	if s.HasClasses() {
		lines = append(lines, "iou and dice are means over classes; lockstep scaling --show classes lists each class")
	}
	for _, m := range s.modes {
		if m.Scaling != ScalingUnknown || m.Batch == verdict.FixedNeither {
			lines = append(lines, "scaling: "+m.String())
		}
	}
	for _, n := range notes {
		if !slices.Contains(cautions, n) {
			lines = append(lines, "note: "+n)
		}
	}
	return append(lines, problemLines(s.Problems)...)
}

func problemLines(problems []runs.Problem) []string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, "problem: "+p.String())
	}
	return lines
}
