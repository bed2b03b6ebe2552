package textlog

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// textRun is a run that a text log describes.
type textRun struct {
	line     int
	run      runs.Run
	tracks   tracks
	forms    [formCount]int        // number of used lines, by format
	lines    int                   // number of used lines
	ranks    map[int]bool          // labels of used lines
	seen     [fewRanks / 64]uint64 // bit set of the small labels
	trials   map[string]*runs.Trial
	curves   map[string]*runCurve
	last     *runCurve // to which the last point was added
	closed   bool      // what follows belongs to another run
	sumRates bool      // rates are per rank
	keras    kerasState
	mlperf   mlperfState
	dll      dllState
	rates    horovodState
	hasTimes bool // lines have time stamps:
	// the first and the last, in milliseconds since 1970
	started, ended int64
	done           int  // highest rank that has reported its end, plus one
	seedKnown      bool // the seed is in the lines
}

// newRun returns a run that begins with a line.
func (t *textLog) newRun(line int) *textRun {
	return &textRun{
		line: line, ranks: map[int]bool{}, trials: map[string]*runs.Trial{}, curves: map[string]*runCurve{},
	}
}

// form counts a used line in the current run. After the end of a run it begins
// a new one.
func (t *textLog) form(name form) *textRun {
	if t.cur.closed {
		t.begin()
	}
	t.cur.forms[name]++
	t.cur.lines++
	if t.rank >= 0 {
		t.cur.addRank(t.rank)
	}
	return t.cur
}

// addRank notes the label of a used line.
func (r *textRun) addRank(rank int) {
	if rank < fewRanks {
		word, bit := &r.seen[rank/64], uint64(1)<<(rank%64)
		if *word&bit != 0 {
			return
		}
		*word |= bit
	}
	if len(r.ranks) < record.MaxWorkers {
		r.ranks[rank] = true
	}
}

// runCurve is a curve of a run. next is the curve to which the point after the
// last point of this one was added.
type runCurve struct {
	record.Curve
	next *runCurve
}

// maxRuns limits the runs that are kept per file.
const maxRuns = 4096

// begin begins a run with the current line.
func (t *textLog) begin() {
	if t.cur.lines > 0 {
		if len(t.runs) < maxRuns {
			t.runs = append(t.runs, t.cur)
		} else {
			t.in.Problem(t.l.Number, "the file holds more than %d runs; the one that ends here is not kept", maxRuns)
		}
		labels := t.cur.keras.labels
		t.cur = t.newRun(t.l.Number)
		t.cur.keras.labels = labels
	}
	t.setConfig(t.config)
	t.config = nil
}

// setConfig adds settings to the run's configuration.
func (t *textLog) setConfig(c map[string]any) {
	if len(c) > 0 && t.cur.run.Info.Config == nil {
		t.cur.run.Info.Config = map[string]any{}
	}
	maps.Copy(t.cur.run.Info.Config, c)
}

// set sets a value of the run's configuration.
func (t *textLog) set(key string, v any) {
	if t.cur.run.Info.Config == nil {
		t.cur.run.Info.Config = map[string]any{}
	}
	if len(t.cur.run.Info.Config) < record.MaxSettings {
		t.cur.run.Info.Config[key] = v
	}
}

// epoch returns epoch n of the current line's rank. nth distinguishes ranks
// without labels.
func (t *textLog) epoch(n, nth int) *runs.Epoch {
	id := trackID{t.rank, nth}
	tr := t.cur.tracks.find(id)
	if tr == nil {
		tr = t.cur.tracks.add(id)
	}
	e := tr.Find(n)
	if e == nil {
		e = tr.Add(n, t.l)
		t.in.Report.Records++
	}
	return e
}

// last returns the last epoch of the current line's rank, or nil.
func (t *textLog) last() *runs.Epoch {
	tr := t.cur.tracks.find(trackID{t.rank, 0})
	if tr == nil || len(tr.Epochs) == 0 {
		return nil
	}
	return &tr.Epochs[len(tr.Epochs)-1]
}

// validSeconds returns an epoch's time. If it is not positive, because the clock was set
// back during the epoch, it returns NaN.
func (t *textLog) validSeconds(seconds float64) float64 {
	if seconds > 0 || seconds != seconds {
		return seconds
	}
	t.in.Problem(t.l.Number, "an epoch of %g s: the clock was set while it ran; its time is not used", seconds)
	return math.NaN()
}

// trial returns the run's trial of that name.
func (t *textLog) trial(name string) *runs.Trial {
	tr := t.cur.trials[name]
	if tr == nil {
		tr = &runs.Trial{Name: name, Rate: math.NaN(), Spread: math.NaN()}
		t.cur.trials[name] = tr
	}
	return tr
}

// point adds a point to the run's curve of that name. Lines list their values
// in the same order, so the curve is usually the one that followed the last one
// before.
func (t *textLog) point(name []byte, rank int, step int64, v, at float64) {
	last := t.cur.last
	if last == nil || last.next == nil || last.next.Name != string(name) {
		c := t.cur.curves[string(name)]
		if c == nil {
			if len(t.cur.curves) >= record.MaxCurveNames {
				t.in.Problem(t.l.Number, "more than %d names of values; %.40q is not used", record.MaxCurveNames, name)
				return
			}
			c = &runCurve{Curve: *record.NewCurve(string(name), rank, at == at)}
			t.cur.curves[c.Name] = c
		}
		if last == nil {
			last = c
		}
		last.next = c
	}
	t.cur.last = last.next
	t.cur.last.Add(step, v, at)
	t.in.Report.Records++
}

// finish returns the parts of the file.
func (t *textLog) finish() []*record.Part {
	t.failed()
	if len(t.config) > 0 {
		t.setConfig(t.config)
	}
	if t.cur.lines > 0 {
		t.runs = append(t.runs, t.cur)
	} else {
		t.cur.finishHorovod(t.in.Report) // settings at the end that belong to no run
	}
	var parts []*record.Part
	kinds := map[string]bool{}
	for _, r := range t.runs {
		if p := r.part(t.in.Report); p != nil {
			if len(parts) > 0 {
				p.Run.Dir = fmt.Sprintf("%s#%d", t.in.Path, len(parts)+1)
			}
			parts = append(parts, p)
			kinds[p.Run.Kind] = true
		}
	}
	if len(kinds) > 0 {
		t.in.Report.Kind = strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
	}
	return parts
}

// part returns the run, or nil if its lines have no values, such as a command
// alone.
func (r *textRun) part(report *record.Report) *record.Part {
	for _, f := range formats() {
		if f.finish != nil {
			f.finish(r, report)
		}
	}
	if r.hasTimes {
		r.run.Info.Started, r.run.Info.Ended = time.UnixMilli(r.started).UTC(), time.UnixMilli(r.ended).UTC()
	}
	by := make([][]runs.Epoch, len(r.tracks.all))
	for i, tr := range r.tracks.all {
		by[i] = tr.Epochs
	}
	switch {
	case len(by) == 1:
		if r.run.Epochs = by[0]; r.tracks.all[0].Index != nil { // they were out of order
			slices.SortStableFunc(r.run.Epochs, record.CompareEpochs)
		}
	case len(by) > 1:
		r.run.Epochs = record.JoinEpochs(by, r.sumRates)
		report.Assume("the lines of %d ranks are one run: the slowest rank's time, the mean of losses and accuracies", len(by))
	}
	if len(r.run.Epochs) > 0 && r.run.Epochs[0].Epoch == 0 {
		report.Assume("the log counts epochs from 0; here they count from 1")
		for i := range r.run.Epochs {
			r.run.Epochs[i].Epoch++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.curves)) {
		r.run.Curves = append(r.run.Curves, r.curves[name].Finish(report))
	}
	for _, name := range slices.Sorted(maps.Keys(r.trials)) {
		r.run.Trials = append(r.run.Trials, *r.trials[name])
	}
	finishTrials(r.run.Trials, report)
	r.finishMemory(report)
	if len(r.run.Epochs) == 0 && len(r.run.Curves) == 0 && len(r.run.Trials) == 0 && r.run.WallSeconds == 0 && r.run.Info.Status == "" {
		return nil
	}
	r.run.Kind = r.kind()
	r.workers(report)
	return &record.Part{Run: r.run, Role: record.Principal, Line: r.line, SeedKnown: r.seedKnown}
}

// kind returns the name of the format with the most lines, apart from commands.
func (r *textRun) kind() string {
	best := formCommand
	for f := best + 1; f < formCount; f++ {
		if r.forms[f] > 0 && (best == formCommand || r.forms[f] >= r.forms[best]) {
			best = f
		}
	}
	return best.String()
}

// workers derives the world size from the lines if none of them states it.
func (r *textRun) workers(report *record.Report) {
	if r.run.Info.Workers > 0 {
		return
	}
	switch {
	case len(r.ranks) > 1:
		r.run.Info.Workers = len(r.ranks)
		report.Assume("%d workers: the lines bear so many ranks", len(r.ranks))
	case r.done > 1:
		r.run.Info.Workers = r.done
		report.Assume("%d workers: rank %d said it was done", r.done, r.done-1)
	case len(r.tracks.all) > 1:
		r.run.Info.Workers = len(r.tracks.all)
		report.Assume("%d workers: each epoch stands there so many times", len(r.tracks.all))
	}
}
