package table

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

type tableRun struct {
	part     *record.Part
	epochs   map[int]*record.RankEpochs // by rank; -1 if the rows have no rank
	list     *record.RankEpochs         // of listRank; see epochsOf
	listRank int
	curves   record.Curves
	last     int               // number of the epoch of the last row plus one
	line     int               // of the last row
	power    []powerIntegrator // of each GPU
	late     lateRows          // whose power is not in the integral

	lastStep int64             // of the last row; -1 if unknown
	rates    record.EpochRates // of the steps, by rank and epoch
	elapsed  record.ElapsedTimes
}

// powerIntegrator integrates the power of one GPU over time by the trapezoidal rule.
type powerIntegrator struct {
	time, watts float64 // of the latest sample
	joules      float64
	n           int
}

// addSample adds a sample of the power at time t. It ignores the sample and returns false if an earlier
// row has a later time, because that time is already covered.
func (s *powerIntegrator) addSample(t, watts float64) bool {
	if math.IsNaN(t) || math.IsNaN(watts) {
		return true
	}
	if s.n > 0 && t < s.time {
		return false
	}
	if s.n > 0 {
		s.joules += (t - s.time) * (watts + s.watts) / 2
	}
	s.time, s.watts = t, watts
	s.n++
	return true
}

// lateRows counts rows with an earlier time than the row before them.
type lateRows struct {
	rows int
	line int // of the first such row
	gpu  int // of that row
}

// runKeyFieldNames returns the fields by which rows are assigned to runs.
func runKeyFieldNames() []string {
	return []string{
		fields.Study, fields.Series, fields.Model, fields.Run, fields.Workers, fields.Nodes, fields.WorkersPerNode, fields.Seed, fields.Batch, fields.GlobalBatch,
	}
}

// findOrAddRun returns the current row's run, and adds it if it is new. It completes the epoch of the row.
func (t *tableReader) findOrAddRun(p *rowPosition) (*tableRun, error) {
	t.key = t.key[:0]
	for _, i := range t.keys {
		t.key = append(append(t.key, t.cells[i].Text...), 0)
	}
	run := t.last
	if run == nil || !bytes.Equal(t.key, t.lastKey) {
		run = t.byKey[string(t.key)]
	}
	if run != nil {
		begins, err := t.beginsRun(run, p)
		if err != nil {
			return nil, err
		}
		if begins {
			run = nil
		}
	}
	if run == nil {
		var err error
		if run, err = t.newRun(p.line); err != nil {
			return nil, err
		}
		t.byKey[string(t.key)] = run
		t.order = append(t.order, run)
	}
	if run != t.last {
		t.last, t.lastKey = run, append(t.lastKey[:0], t.key...)
	}
	if t.layout == rowsAreEpochs && p.epoch == noEpoch && t.epochAt < 0 { // the n-th row is epoch n
		p.epoch = run.last + 1
		if run.last == 0 {
			p.epoch = 2 // epochs are stored with their number plus one
			t.in.Report.AddAssumptionOnce("the rows are epochs in their order: no column numbers them")
		}
	}
	run.line, run.last, run.lastStep = p.line, max(p.epoch, 0), p.step
	return run, nil
}

// beginsRun reports whether the current row begins another run with the same properties. It returns
// an error if the row repeats the epoch of an earlier row.
func (t *tableReader) beginsRun(run *tableRun, p *rowPosition) (bool, error) {
	switch t.layout {
	case rowsAreRuns:
		if t.trialAt >= 0 && t.present[t.trialAt] || len(run.epochs) == 0 && run.part.Run.WallSeconds == 0 && len(run.part.Run.Trials) > 0 {
			return false, nil
		}
		if t.kind != joblogKind {
			t.in.Report.AddAssumptionOnce("rows with the same settings are repeats of a run")
		}
		return true, nil
	case rowsAreSteps:
		begins := t.kind == tableKind && p.step >= 0 && p.step < run.lastStep && p.rank < 0 && t.splitAt < 0 && !t.hasMetric
		if t.headerAgain > run.line {
			begins = p.step >= 0 && slices.ContainsFunc(run.curves.All, func(c *record.Curve) bool { return len(c.Steps) > 0 && p.step <= c.Steps[len(c.Steps)-1] })
			t.reportRepeatedHeader(begins)
		}
		return begins, nil
	case rowsAreEpochs:
		if p.split == "" && !t.hasMetric {
			return t.checkEpochOrder(run, p)
		}
	case rowsAreMoments, unknownLayout:
	}
	return false, nil
}

func (t *tableReader) reportRepeatedHeader(begins bool) {
	if begins {
		t.in.Report.AddAssumption("the header occurs again in line %d, and the numbers go back", t.headerAgain)
	} else {
		t.in.Report.AddAssumption("the header occurs again in line %d, and the numbers continue: one run, resumed", t.headerAgain)
	}
}

// checkEpochOrder checks the epoch of a row against the earlier rows of its run. begins is set if the
// epochs go back: the row begins another run, or resumes this one, as package identity decides.
func (t *tableReader) checkEpochOrder(run *tableRun, p *rowPosition) (begins bool, err error) {
	list := run.epochsOf(p.rank)
	if list == nil || len(list.Epochs) == 0 {
		return false, nil
	}
	again := t.headerAgain > run.line
	n := max(p.epoch, 0)
	if p.epoch == noEpoch && t.epochAt < 0 {
		return false, nil
	}
	e := list.Find(n)
	last := list.Epochs[len(list.Epochs)-1].Epoch
	switch {
	case e == nil && again:
		t.reportRepeatedHeader(false)
	case e == nil, t.splitAt >= 0 && math.IsNaN(e.TrainLoss) && math.IsNaN(e.Seconds) && math.IsNaN(e.Accuracy): // the row of the validation came first
	case n > 0 && (n < last || again):
		if again {
			t.reportRepeatedHeader(true)
		}
		return true, nil
	case n == last && n > list.Epochs[0].Epoch && !t.duplicates: // resumed from before the last epoch
		return true, nil
	default:
		t.duplicates = true
		return false, fmt.Errorf("duplicate epoch %d of this run; add the column \"seed\" to distinguish repeats", max(n-1, 0))
	}
	return false, nil
}

func (t *tableReader) newRun(line int) (*tableRun, error) {
	info := runs.Info{Study: t.fieldText(fields.Study), Series: t.fieldText(fields.Series), Source: t.source, Config: map[string]any{}}
	for _, c := range []struct {
		name        string
		least, most float64
		to          *int
	}{
		{fields.Workers, 1, record.MaxWorkers, &info.Workers},
		{fields.Nodes, 1, record.MaxWorkers, &info.Nodes},
		{fields.Batch, 1, 1 << 31, &info.BatchPerWorker},
		{fields.GlobalBatch, 1, 1 << 31, &info.GlobalBatch},
	} {
		n, ok, err := t.fieldCount(c.name, c.least, c.most)
		if err != nil {
			return nil, err
		}
		if !ok && c.name == fields.Workers && t.hasAnyField(fields.Workers) && t.kind != wandbKind && t.kind != mlflowTableKind {
			return nil, fmt.Errorf("column %q: expected a number, got an empty cell", t.columns[t.at[fields.Workers]].name)
		}
		*c.to = n
	}
	perNode, ok, err := t.fieldCount(fields.WorkersPerNode, 1, record.MaxWorkers)
	if err != nil {
		return nil, err
	}
	if ok && info.Workers == 0 && info.Nodes > 0 && perNode <= record.MaxWorkers/info.Nodes {
		info.Workers = perNode * info.Nodes
		t.in.Report.AddAssumptionOnce("the number of workers is %s × %s", fields.Nodes, fields.WorkersPerNode)
	}
	seed, seeded, err := t.fieldCount(fields.Seed, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	info.Seed = int64(seed)
	info.GlobalBatch = cmp.Or(info.GlobalBatch, info.BatchPerWorker*info.Workers)
	if model := t.fieldText(fields.Model); model != "" {
		info.Config["model"] = model
		if t.kind == nvidiaKind {
			info.Accelerator, info.Config = model, map[string]any{}
		} else if info.Series == "" && t.layout == rowsAreRuns {
			info.Series = model
		}
	}
	if id := t.fieldText(fields.Run); id != "" {
		info.Config["run"] = id
	}
	if host := t.fieldText(fields.Host); host != ":" { // as GNU parallel calls the local host
		info.Host.Name = host
	}
	role := record.Principal
	if t.kind == nvidiaKind {
		role = record.Companion
	}
	return &tableRun{
		part:   &record.Part{Role: role, Line: line, SeedKnown: seeded, Run: runs.Run{Kind: t.kind, Info: info}},
		epochs: map[int]*record.RankEpochs{}, curves: record.Curves{Lines: t.l},
	}, nil
}

func (run *tableRun) epochsOf(rank int) *record.RankEpochs {
	if run.list == nil || run.listRank != rank {
		run.list, run.listRank = run.epochs[rank], rank
	}
	return run.list
}

func (t *tableReader) findOrAddEpoch(run *tableRun, rank, n int) *runs.Epoch {
	if run.epochsOf(rank) == nil {
		run.list = &record.RankEpochs{}
		run.epochs[rank] = run.list
	}
	return run.list.FindOrAdd(n, t.l)
}
