package figure

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

type figureKind struct {
	name string
	draw func(Options, *scaling.Study) (*Figure, error)
	// inAll reports whether All draws the figure for a study; nil means that it always does. A
	// figure that would repeat another one is drawn only if it is requested by name.
	inAll func(*scaling.Study) bool
}

// figureKinds lists all kinds of figures, in the order of a report.
func figureKinds() []figureKind {
	return []figureKind{
		{name: "epoch_time", draw: Options.EpochTime},
		{name: "throughput", draw: Options.Throughput},
		{name: "speedup", draw: Options.Speedup, inAll: hasSeveralWorkerCounts},
		{name: "efficiency", draw: Options.Efficiency, inAll: hasSeveralWorkerCounts},
		{name: "speedup_iou", draw: Options.SpeedupIoU, inAll: hasSeveralWorkerCounts},
		{name: "iou", draw: Options.IoU},
		{name: "accuracy", draw: Options.Accuracy},
		{name: "loss_by_epoch", draw: Options.LossByEpoch},
		{name: "loss_by_time", draw: Options.LossByTime},
		{name: "loss_by_relative_time", draw: Options.LossByRelativeTime},
		{name: "learning_rate", draw: Options.LearningRate},
		{name: "train_test_time", draw: Options.TrainTestTime},
		{name: "trials", draw: Options.Trials},
		{name: "weak_scaling", draw: Options.WeakScaling, inAll: func(s *scaling.Study) bool {
			return len(s.CommunicationPairs()) > 0 || hasScalingMode(s, func(m scaling.Mode) bool { return m.Scaling == scaling.ScalingWeak }) ||
				hasSeveralWorkerCounts(s) && s.SplitTrials() != s
		}},
		{name: "strong_scaling", draw: Options.StrongScaling, inAll: func(s *scaling.Study) bool {
			return hasScalingMode(s, func(m scaling.Mode) bool { return m.Samples == "fixed" || m.Scaling == scaling.ScalingStrong }) ||
				!slices.ContainsFunc(s.Points, func(p scaling.Point) bool { return element.IsFinite(p.EpochSeconds.Value) })
		}},
		{name: "overhead", draw: Options.Overhead},
		{name: "fit", draw: Options.Fit},
		{name: "pareto", draw: Options.Pareto, inAll: hasSeveralWorkerCounts},
		{name: "quality", draw: Options.Quality},
		{name: "quality_by_rate", draw: Options.QualityByRate, inAll: func(*scaling.Study) bool { return false }}, // useful only for a sweep over learning rates
		{name: "time_use", draw: Options.TimeUse},
		{name: "timeline", draw: Options.Timeline},
		{name: "timelines", draw: Options.Timelines, inAll: hasSeveralSeriesWithSpans},
		{name: usageFigureName, draw: Options.Usage, inAll: func(*scaling.Study) bool { return false }}, // a page, which Panels does not accept
	}
}

func hasSeveralWorkerCounts(s *scaling.Study) bool {
	return slices.ContainsFunc(s.Points, func(p scaling.Point) bool { return p.Baseline > 0 && p.Size > p.Baseline })
}

func hasScalingMode(s *scaling.Study, matches func(scaling.Mode) bool) bool {
	return slices.ContainsFunc(s.Modes().Rows, matches)
}

// Names returns the names of the figures that Make draws, in the order of All. Transfers is not
// among them, because it draws recordings of the command lockstep transfers, not a study.
func Names() []string {
	var names []string
	for _, c := range figureKinds() {
		names = append(names, c.name)
	}
	return names
}

// Make draws one of Names, or a metric and an axis such as "Loss/train by step".
func (o Options) Make(name string, study *scaling.Study) (*Figure, error) {
	for _, c := range figureKinds() {
		if c.name == name {
			return c.draw(o, study)
		}
	}
	if i := strings.LastIndex(name, " by "); i > 0 {
		return o.Curve(study, name[:i], name[i+len(" by "):])
	}
	return nil, fmt.Errorf("draw figure %s: unknown figure %q%s; use %s, or a metric and an axis as in \"val_loss by epoch\"", name, name, nearest.Hint(name, Names()), strings.Join(Names(), ", "))
}

// All draws every figure that the study has data for. It returns an error if no figure can be
// drawn, or if a figure would be illegible at the size set in the options.
func (o Options) All(study *scaling.Study) ([]*Figure, error) { return o.First(study, math.MaxInt) }

// First draws the first n figures that All would draw.
func (o Options) First(study *scaling.Study, n int) ([]*Figure, error) {
	if study == nil {
		return nil, errors.New("draw figures: no study; read one with scaling.Read")
	}
	if n < 1 {
		return nil, fmt.Errorf("draw figures: invalid count %d; use 1 or more", n)
	}
	var figures []*Figure
	var failed error
	for _, c := range figureKinds() {
		if len(figures) == n {
			return figures, nil
		}
		if c.inAll != nil && !c.inAll(study) {
			continue
		}
		f, err := c.draw(o, study)
		if small := (*SizeError)(nil); errors.As(err, &small) {
			return nil, err
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		figures = append(figures, f)
	}
	logged := o.drawLoggedCurves(study, figures)
	figures = append(figures, logged...)
	figures = figures[:min(n, len(figures))]
	if len(figures) == 0 {
		return nil, failed
	}
	return figures, nil
}

// drawLoggedCurves draws the first eight curves that were logged by step. It draws none if drawn
// contains loss_by_epoch.
func (o Options) drawLoggedCurves(study *scaling.Study, drawn []*Figure) []*Figure {
	if slices.ContainsFunc(drawn, func(f *Figure) bool { return f.name == "loss_by_epoch" }) {
		return nil
	}
	const most = 8
	var out []*Figure
	for _, metric := range study.Metrics() {
		if !slices.ContainsFunc(study.Runs, func(r runs.Run) bool {
			return slices.ContainsFunc(r.Curves, func(c runs.Curve) bool { return c.Name == metric })
		}) {
			continue // a value per epoch, which has separate figures
		}
		if f, err := o.Curve(study, metric, scaling.AxisStep); err == nil && len(out) < most {
			out = append(out, f)
		}
	}
	return out
}

// The following functions draw with the default options.

// All draws every figure that the study has data for; see Options.All.
func All(study *scaling.Study) ([]*Figure, error) { return Options{}.All(study) }

// First draws the first n figures that All would draw; see Options.First.
func First(study *scaling.Study, n int) ([]*Figure, error) { return Options{}.First(study, n) }

// Make draws a figure by its name, one of Names; see Options.Make.
func Make(name string, study *scaling.Study) (*Figure, error) { return Options{}.Make(name, study) }

// EpochTime draws the seconds of training per epoch against the workers; see Options.EpochTime.
func EpochTime(study *scaling.Study) (*Figure, error) { return Options{}.EpochTime(study) }

// Throughput draws the samples per second of all workers together; see Options.Throughput.
func Throughput(study *scaling.Study) (*Figure, error) { return Options{}.Throughput(study) }

// Speedup draws the speed-up over the baseline of each series, with the ideal line; see Options.Speedup.
func Speedup(study *scaling.Study) (*Figure, error) { return Options{}.Speedup(study) }

// Efficiency draws the speed-up divided by the ideal speed-up, in percent; see Options.Efficiency.
func Efficiency(study *scaling.Study) (*Figure, error) { return Options{}.Efficiency(study) }

// IoU draws the intersection over union on the test set after training; see Options.IoU.
func IoU(study *scaling.Study) (*Figure, error) { return Options{}.IoU(study) }

// Accuracy draws the accuracy after training; see Options.Accuracy.
func Accuracy(study *scaling.Study) (*Figure, error) { return Options{}.Accuracy(study) }

// SpeedupIoU draws the speed-up on the left axis and the IoU on the right one; see Options.SpeedupIoU.
func SpeedupIoU(study *scaling.Study) (*Figure, error) { return Options{}.SpeedupIoU(study) }

// LossByEpoch draws training and validation loss against the epoch; see Options.LossByEpoch.
func LossByEpoch(study *scaling.Study) (*Figure, error) { return Options{}.LossByEpoch(study) }

// LossByTime draws the loss against the cumulative training time; see Options.LossByTime.
func LossByTime(study *scaling.Study) (*Figure, error) { return Options{}.LossByTime(study) }

// LossByRelativeTime draws the loss against the time since the start, validation included; see Options.LossByRelativeTime.
func LossByRelativeTime(study *scaling.Study) (*Figure, error) {
	return Options{}.LossByRelativeTime(study)
}

// LearningRate draws the learning rate of each epoch; see Options.LearningRate.
func LearningRate(study *scaling.Study) (*Figure, error) { return Options{}.LearningRate(study) }

// TrainTestTime draws the time of training and of the test as bars; see Options.TrainTestTime.
func TrainTestTime(study *scaling.Study) (*Figure, error) { return Options{}.TrainTestTime(study) }

// Trials draws the throughput of the trials IO, SYNTHETIC and FULL as bars; see Options.Trials.
func Trials(study *scaling.Study) (*Figure, error) { return Options{}.Trials(study) }

// WeakScaling draws throughput for a fixed batch per worker; see Options.WeakScaling.
func WeakScaling(study *scaling.Study) (*Figure, error) { return Options{}.WeakScaling(study) }

// StrongScaling draws the time for a fixed amount of work; see Options.StrongScaling.
func StrongScaling(study *scaling.Study) (*Figure, error) { return Options{}.StrongScaling(study) }

// Overhead draws the share of the speed that communication costs; see Options.Overhead.
func Overhead(study *scaling.Study) (*Figure, error) { return Options{}.Overhead(study) }

// Fit draws the fitted scaling model, its band and its predictions; see Options.Fit.
func Fit(study *scaling.Study) (*Figure, error) { return Options{}.Fit(study) }

// Pareto draws time against device-hours; see Options.Pareto.
func Pareto(study *scaling.Study) (*Figure, error) { return Options{}.Pareto(study) }

// Quality draws the quality of the model against the global batch; see Options.Quality.
func Quality(study *scaling.Study) (*Figure, error) { return Options{}.Quality(study) }

// QualityByRate draws the quality of the model against the learning rate; see Options.QualityByRate.
func QualityByRate(study *scaling.Study) (*Figure, error) { return Options{}.QualityByRate(study) }

// TimeUse draws where the time of a step goes, as stacked bars; see Options.TimeUse.
func TimeUse(study *scaling.Study) (*Figure, error) { return Options{}.TimeUse(study) }

// Timeline draws when each rank did what; see Options.Timeline.
func Timeline(study *scaling.Study) (*Figure, error) { return Options{}.Timeline(study) }

// Timelines draws when each rank did what with each series; see Options.Timelines.
func Timelines(study *scaling.Study) (*Figure, error) { return Options{}.Timelines(study) }

// Curve draws a metric of every run over an axis; see Options.Curve.
func Curve(study *scaling.Study, metric, axis string) (*Figure, error) {
	return Options{}.Curve(study, metric, axis)
}
