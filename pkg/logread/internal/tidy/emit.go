package tidy

import (
	"math"

	"lockstep/pkg/runs"
)

// Emitter calls a function for the values of a run.
type Emitter struct {
	run    *runs.Run
	row    Row // the fields that the values share
	use    func(Row) error
	report func(runs.Problem)
}

// NewEmitter returns an Emitter for run. It calls use for each row, with name as the name of the
// run, and report for each problem.
func NewEmitter(run runs.Run, name string, use func(Row) error, report func(runs.Problem)) Emitter {
	row := Row{Run: name, Series: run.Info.Series, Workers: run.Info.Workers, Seed: run.Info.Seed, Rank: -1, Step: -1}
	return Emitter{&run, row, use, report}
}

// emitMeasuredValues calls use for each value that is not NaN.
func (g Emitter) emitMeasuredValues(values []Value) error {
	for _, x := range values {
		if !math.IsNaN(x.V) {
			if err := g.emitValue(x.Name, x.V); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g Emitter) emitValue(name string, v float64) error {
	g.row.Name, g.row.Value = name, v
	return g.use(g.row)
}

// EmitEpochs emits the values of each epoch and of the complete run.
func (g Emitter) EmitEpochs() error {
	exchanges, err := sumExchanges(g.run)
	if err != nil {
		return err
	}
	for _, e := range g.run.Epochs {
		g.row.Epoch = e.Epoch
		values := append(EpochValues(e), exchanges[e.Epoch].values()...)
		for _, c := range g.run.Classes {
			if c.Epoch == e.Epoch {
				values = append(values, classValues("", c.NamedScores)...)
			}
		}
		if err := g.emitMeasuredValues(values); err != nil {
			return err
		}
	}
	g.row.Epoch = 0
	return g.emitMeasuredValues(runValues(*g.run))
}

// EmitSteps emits the values of each rank's steps, which logs of other programs do not have.
func (g Emitter) EmitSteps() error {
	if g.run.Info.Schema == 0 { // logs of other programs have no steps
		return nil
	}
	ranks, err := runs.Ranks(g.run.Dir)
	if err != nil {
		return err
	}
	for _, g.row.Rank = range ranks {
		_, steps, problems, err := runs.ReadSteps(g.run.Dir, g.row.Rank)
		if err != nil {
			return err
		}
		for _, p := range problems { // reading the run checked only the form of the lines
			g.report(p)
		}
		for _, s := range steps {
			g.row.Epoch, g.row.Step = s.Epoch, s.Step
			if err := g.emitMeasuredValues(stepValues(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// EmitCurves emits the points of each curve.
func (g Emitter) EmitCurves() error {
	for _, c := range g.run.Curves {
		g.row.Rank = c.Rank
		for i, step := range c.Steps {
			if g.row.Step = int(step); g.row.Step < 0 {
				g.row.Step = -1
			}
			if err := g.emitValue(c.Name, c.Values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// EmitTrials emits the throughput of each trial and the times of an all-reduce benchmark.
func (g Emitter) EmitTrials() error {
	for _, t := range g.run.Trials {
		g.row.Step = -1
		if err := g.emitMeasuredValues([]Value{{t.Name + "_samples_per_second", t.Rate}, {t.Name + "_spread_samples_per_second", t.Spread}}); err != nil {
			return err
		}
		for i, rate := range t.Rates {
			g.row.Step = i + 1
			if err := g.emitValue(t.Name+"_trial_samples_per_second", rate); err != nil {
				return err
			}
		}
	}
	for _, a := range g.run.AllReduces {
		g.row.Step = int(a.Bytes)
		if err := g.emitValue("all_reduce_seconds", a.Seconds); err != nil {
			return err
		}
	}
	return nil
}

// EmitSpans emits two rows for each span: its start and its duration. Their step is the number of
// the span.
func (g Emitter) EmitSpans() error {
	for i, s := range g.run.Spans {
		g.row.Rank, g.row.Step = s.Rank, i+1
		if err := g.emitValue(s.Kind+"_start_seconds/"+s.Name, s.Start); err != nil {
			return err
		}
		if err := g.emitValue(s.Kind+"_seconds/"+s.Name, s.Seconds); err != nil {
			return err
		}
	}
	return nil
}

// exchangeTotals sums what a run's workers have exchanged in the steps of an epoch.
type exchangeTotals struct {
	steps, dropped, oldest int
	staleness, sent        float64
}

// sumExchanges sums the exchanges of all ranks in each epoch. It reads the steps in the folder of a
// run with several workers. For logs of other programs it returns nil.
func sumExchanges(run *runs.Run) (map[int]exchangeTotals, error) {
	if run.Info.Schema == 0 || run.Info.Workers < 2 {
		return nil, nil
	}
	ranks, err := runs.Ranks(run.Dir)
	if err != nil {
		return nil, err
	}
	sums := map[int]exchangeTotals{}
	for _, rank := range ranks {
		_, steps, _, err := runs.ReadSteps(run.Dir, rank) // Steps reports the problems
		if err != nil {
			return nil, err
		}
		for _, s := range steps {
			x := sums[s.Epoch]
			x.steps++
			x.sent += float64(s.Sent)
			x.staleness += float64(s.Staleness)
			x.oldest = max(x.oldest, s.Staleness)
			if s.Dropped {
				x.dropped++
			}
			sums[s.Epoch] = x
		}
	}
	return sums, nil
}

func (x exchangeTotals) values() []Value {
	var values []Value
	n := float64(x.steps)
	if x.sent > 0 {
		values = append(values, Value{"sent_bytes_per_step", x.sent / n})
	}
	if x.oldest > 0 {
		values = append(values, Value{"mean_staleness", x.staleness / n}, Value{"max_staleness", float64(x.oldest)})
	}
	if x.dropped > 0 {
		values = append(values, Value{"dropped_steps", float64(x.dropped)})
	}
	return values
}
