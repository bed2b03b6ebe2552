package textlog

import (
	"maps"
	"math"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// textRun is one run that a text log describes.
type textRun struct {
	line          int // number of the line at which the run begins
	run           runs.Run
	epochs        epochsByRank
	linesByFormat [maxFormats]int              // number of used lines, by format
	lines         int                          // number of used lines
	ranks         map[int]bool                 // ranks in the labels of used lines
	seen          [maxIndexedRanks / 64]uint64 // bit set of those ranks below maxIndexedRanks
	trials        map[string]*runs.Trial
	curves        map[string]*runCurve // the first curve of each name; see runCurve.otherRank
	curveCount    int
	last          *runCurve // curve to which the last point was added
	closed        bool      // the next lines belong to another run
	sumRates      bool      // rates are per rank and must be summed
	ratesOfRanks  bool      // lines of templates with ranks contain rates
	program       formatID  // the program that trains; formatCommand if unknown
	states        states    // what the lines of single formats contain
	// Values that become values of the run at its end.
	barEpochs      epochsByRank // epochs of progress bars; they count only if no other lines have epochs
	iterationRates []float64    // rates of a benchmark's iterations, per second and worker
	tableBegun     bool         // the line before a table of all-reduces was read
	hasKerasValues bool         // lines of Keras have set the values of an epoch
	hasTimes       bool         // lines have time stamps
	// First and last time stamp, in milliseconds since 1970.
	started, ended int64
	done           int            // highest rank that reported its end, plus one
	seedKnown      bool           // the lines contain the seed
	claims         []record.Claim // what the command states about the run
}

// newRun returns a run that begins at the given line.
func newRun(line int) *textRun {
	return &textRun{
		line: line, ranks: map[int]bool{}, trials: map[string]*runs.Trial{}, curves: map[string]*runCurve{},
	}
}

// countLine counts the current line as a line of the given format, and returns
// the run to which it belongs. If the current run has ended, countLine begins a
// new one.
func (t *textLog) countLine(name formatID) *textRun {
	if t.cur.closed {
		t.beginRun()
	}
	if isProgram(name) {
		t.selectProgram(name)
	}
	t.cur.linesByFormat[name]++
	t.cur.lines++
	if t.rank >= 0 {
		t.cur.addRank(t.rank)
	}
	return t.cur
}

// isProgram reports whether a format describes the output of one training program, which other
// programs do not print beside their own.
func isProgram(f formatID) bool {
	return f >= formatImageNet && f <= formatHuggingFace || f == formatSC21 || f == formatRates || f == formatStudy
}

// selectProgram makes program f the one that trains in the current run. It begins a run if
// another program has printed values of the current one.
func (t *textLog) selectProgram(f formatID) {
	if !belongTogether(t.cur.program, f) || t.cur.program == formatCommand && (len(t.cur.barEpochs.all) > 0 || t.cur.hasKerasValues) {
		t.beginRun()
	}
	if t.cur.program == formatCommand {
		t.cur.program = f
	}
}

// belongTogether reports whether a line of format f can belong to a run of a program, which is
// formatCommand if it is unknown. DeepSpeed trains models of the Trainer and of Megatron-LM.
func belongTogether(program, f formatID) bool {
	if program == formatCommand || program == f {
		return true
	}
	return (program == formatDeepSpeed || f == formatDeepSpeed) && max(program, f) >= formatMegatron
}

// addRank adds the rank in the label of a used line to the run's ranks.
func (r *textRun) addRank(rank int) {
	if rank < maxIndexedRanks {
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

// runCurve is a curve of a run.
type runCurve struct {
	record.Curve
	next      *runCurve // the curve that got the next point after the latest point of this one
	otherRank *runCurve // the next curve of the same name, of another rank; nil if none
}

// maxRuns is the maximum number of runs that are kept per file.
const maxRuns = 4096

// beginRun begins a run at the current line.
func (t *textLog) beginRun() {
	if t.cur.lines > 0 {
		if len(t.runs) < maxRuns {
			t.runs = append(t.runs, t.cur)
		} else {
			t.in.AddProblem(t.l.Number, "the file has more than %d runs; the one that ends before this line is not kept", maxRuns)
		}
		t.cur = newRun(t.l.Number)
	}
	t.addConfig(t.config)
	t.config = nil
}

// beginHeader counts the current line as a line that programs print before the values of a
// run, and returns that run. It begins a run if the current one has values.
func (t *textLog) beginHeader() *textRun {
	if t.cur.closed || t.cur.hasValues() {
		t.beginRun()
	}
	t.cur.lines++
	return t.cur
}

// hasValues reports whether the run has epochs, trials or curves.
func (r *textRun) hasValues() bool {
	return len(r.epochs.all)+len(r.barEpochs.all)+len(r.trials)+len(r.curves)+len(r.iterationRates) > 0
}

// addConfig adds settings to the run's configuration.
func (t *textLog) addConfig(c map[string]any) {
	if len(c) > 0 && t.cur.run.Info.Config == nil {
		t.cur.run.Info.Config = map[string]any{}
	}
	maps.Copy(t.cur.run.Info.Config, c)
}

// addSetting adds one setting to the run's configuration.
func (t *textLog) addSetting(key string, v any) {
	if t.cur.run.Info.Config == nil {
		t.cur.run.Info.Config = map[string]any{}
	}
	if len(t.cur.run.Info.Config) < record.MaxSettings {
		t.cur.run.Info.Config[key] = v
	}
}

// findOrAddEpoch returns epoch n of the current line's rank, and adds it if it
// is new. ordinal distinguishes ranks without labels; see rankID.
func (t *textLog) findOrAddEpoch(n, ordinal int) *runs.Epoch {
	id := rankID{t.rank, ordinal}
	list := t.cur.epochs.find(id)
	if list == nil {
		list = t.cur.epochs.add(id)
	}
	e := list.Find(n)
	if e == nil {
		e = list.Add(n, t.l)
		t.in.Report.Records++
	}
	return e
}

// lastEpoch returns the last epoch of the current line's rank, or nil if it has
// none.
func (t *textLog) lastEpoch() *runs.Epoch {
	list := t.cur.epochs.find(rankID{t.rank, 0})
	if list == nil || len(list.Epochs) == 0 {
		return nil
	}
	return &list.Epochs[len(list.Epochs)-1]
}

// checkSeconds returns the time of an epoch unchanged if it is positive or NaN.
// Otherwise the clock was set back during the epoch: it reports a problem and
// returns NaN.
func (t *textLog) checkSeconds(seconds float64) float64 {
	if seconds > 0 || seconds != seconds {
		return seconds
	}
	t.in.AddProblem(t.l.Number, "got an epoch of %g s: the clock was set during the epoch; its time is not used", seconds)
	return math.NaN()
}

// findOrAddTrial returns the run's trial with the given name, and adds it if it
// is new.
func (t *textLog) findOrAddTrial(name string) *runs.Trial {
	tr := t.cur.trials[name]
	if tr == nil {
		tr = &runs.Trial{Name: name, Rate: math.NaN(), Spread: math.NaN()}
		t.cur.trials[name] = tr
	}
	return tr
}

// addPoint adds a point to the run's curve with the given name and rank: its step, its
// value v, and its time in seconds since 1970 or NaN. All lines list their
// values in the same order. So each curve has a field next, the curve that got
// the next value of an earlier line, and addPoint tries that curve first.
func (t *textLog) addPoint(name []byte, rank int, step int64, v, seconds float64) {
	last := t.cur.last
	if last == nil || last.next == nil || last.next.Name != string(name) || last.next.Rank != rank {
		first := t.cur.curves[string(name)]
		c := first
		for c != nil && c.Rank != rank {
			c = c.otherRank
		}
		if c == nil {
			if t.cur.curveCount >= record.MaxCurveNames {
				t.in.AddProblem(t.l.Number, "the file has more than %d names of values; %.40q is not used", record.MaxCurveNames, name)
				return
			}
			t.cur.curveCount++
			c = &runCurve{Curve: *record.NewCurve(string(name), rank, seconds == seconds)}
			if first == nil {
				t.cur.curves[c.Name] = c
			} else {
				c.otherRank, first.otherRank = first.otherRank, c
			}
		}
		if last == nil {
			last = c
		}
		last.next = c
	}
	t.cur.last = last.next
	t.cur.last.Add(step, v, seconds)
	t.in.Report.Records++
}

// statedWorkers returns the number of workers that a line or else the command
// states, or 0.
func (r *textRun) statedWorkers() int {
	if r.run.Info.Workers > 0 {
		return r.run.Info.Workers
	}
	for _, c := range r.claims {
		if c.Property == runs.PropertyWorkers {
			return int(c.Number)
		}
	}
	return 0
}
