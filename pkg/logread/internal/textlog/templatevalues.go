package textlog

import (
	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// What the values in the lines of templates mean:
//
// A line with {epoch} sets values of that epoch, and several lines may add to one epoch. If
// the numbering starts again, a new run begins.
//
// A line with {step} adds points to curves that have the names of its fields. If its epoch
// is known, the last such line of the epoch also sets the epoch's values.
//
// A line with neither belongs to the epoch that a line with {epoch}, or a line of another
// format, of the same rank has opened. If there is none, the n-th line of a template is
// epoch n.
//
// A metric without a step becomes a curve by epoch. Fields of the run, such as {workers},
// set its properties.

type templateState struct {
	ranks        map[int]*templateRankState // by label or {rank}; -1 for lines without
	last         *templateRankState         // that findOrAddRank returned
	lastRank     int
	ratesOfRanks bool // lines with ranks contain rates
	// properties contains the functions that set the properties which templates have read, by
	// field. They also apply to later runs in the same file, until a line changes them.
	properties map[string]func(*logline.Log)
	// numbered is set if lines of the user's templates contain epoch numbers. firstNumber is the
	// first of them.
	numbered    bool
	firstNumber int
	elapsed     record.ElapsedTimes
}

// reportEpochNumbering adds a problem if other lines count epochs from 0, but the lines of the
// user's templates do not.
func (s *templateState) reportEpochNumbering(countsFromZero bool, epochs *logline.EpochsByRank, report *record.Report) {
	if !s.numbered || s.firstNumber == 0 {
		return
	}
	for _, list := range epochs.All {
		countsFromZero = countsFromZero || list.Find(0) != nil
	}
	if countsFromZero {
		report.AddProblem(0, "the lines of the templates count epochs from %d, and other lines from 0, so their values may be in the wrong epoch; write * in place of {epoch}: then the values belong to the epoch of the line before", s.firstNumber)
	}
}

func templateStateOf(r *logline.Run) *templateState {
	return logline.FormatState[templateState](&r.States, logline.UserTemplates)
}

type templateRankState struct {
	opened bool   // a line with {epoch} was read
	epoch  int    // its number
	final  uint64 // fields of this epoch that lines without {step} have set
	lines  []int  // number of lines without an epoch, by number of the template
	// unnumbered contains the templates of these lines.
	unnumbered []*templateRule
	stepped    bool             // a line with {step} was read
	first      int64            // the first step
	last       int64            // the last step, as logged
	lastIn     int              // epoch of the last step; 0 if unknown
	offset     int64            // added to the steps, if they are counted in each epoch
	anything   bool             // a value was read
	rates      record.StepRates // of the epoch rateEpoch
	rateEpoch  int
	rateRule   *templateRule // of the lines with the rates; nil if they have steps
}

// addRate adds a rate of an epoch, and returns the rate of the epoch so far. r is the template of lines that
// have no steps, or nil: the rates of several templates are not combined, since one may be a summary.
func (s *templateRankState) addRate(r *templateRule, epoch int, rate float64, report *record.Report) float64 {
	if s.rateEpoch != epoch || s.rateRule != r {
		s.rateEpoch, s.rateRule, s.rates = epoch, r, record.StepRates{}
	}
	s.rates.Add(rate)
	return s.rates.EpochRate(report)
}

func (s *templateState) findOrAddRank(rank int) *templateRankState {
	if s.last != nil && s.lastRank == rank { // usually
		return s.last
	}
	r := s.ranks[rank]
	if r == nil {
		r = &templateRankState{}
		record.PutInMap(&s.ranks, rank, r)
	}
	s.last, s.lastRank = r, rank
	return r
}

func readTemplateValues(log *logline.Log, r *templateRule, m []byte, values []template.Value) logline.Result {
	if r.rank >= 0 && values[r.rank].From >= 0 {
		rank := values[r.rank].Number
		if rank < 0 || rank >= record.MaxWorkers {
			return log.Refuse("got rank %g, want 0 to %d", rank, record.MaxWorkers-1)
		}
		log.Rank = int(rank)
	}
	epoch, ok := parseIntegerField(log, r.epoch, values, "epoch")
	if !ok {
		return logline.Unused
	}
	step, ok := parseIntegerField(log, r.step, values, "step")
	if !ok {
		return logline.Unused
	}
	if log.Current.Closed {
		log.BeginRun()
	}
	s := templateStateOf(log.Current).findOrAddRank(log.Rank)
	if r.numbered && epoch < 0 && step < 0 && !s.opened && log.LastEpoch() == nil && len(r.values) > 0 {
		return log.Refuse("the line with the number of the epoch is missing, so the epoch of this line is unknown")
	}
	if epoch >= 0 && startsNewRun(log, r, s, int(epoch), step, values) || epoch < 0 && step >= 0 && !s.opened && s.stepped && step <= s.first && s.last > s.first {
		beginRunKeepingProperties(log)
	}
	for i := range r.properties {
		if !setTemplateProperty(log, &r.properties[i], m, values) {
			return logline.Unused
		}
	}
	run := log.CountLine(r.format)
	s = templateStateOf(run).findOrAddRank(log.Rank)
	switch {
	case epoch >= 0 && (!s.opened || int(epoch) != s.epoch):
		if late := s.opened && int(epoch) < s.epoch; late {
			setTemplateEpoch(log, r, s, int(epoch), values, ^uint64(0))
			return logline.Used
		}
		if !s.opened {
			removeUnnumberedLines(log, s)
		}
		if all := templateStateOf(run); r.user && (!all.numbered || int(epoch) < all.firstNumber) {
			all.numbered, all.firstNumber = true, int(epoch)
		}
		s.opened, s.epoch, s.final = true, int(epoch), 0
	case epoch < 0 && step < 0 && !s.opened:
		return readUnnumberedLine(log, r, s, values)
	}
	if step >= 0 {
		addTemplatePoints(log, r, s, step, values)
		return logline.Used
	}
	setTemplateEpoch(log, r, s, s.epoch, values, s.final)
	return logline.Used
}

// parseIntegerField returns the value of the field at an index, or -1 without the field. If the value is
// negative or too large, it reports a problem and ok is false.
func parseIntegerField(log *logline.Log, index int, values []template.Value, name string) (n int64, ok bool) {
	if index < 0 || values[index].From < 0 {
		return -1, true
	}
	v := values[index].Number
	if v < 0 || v >= 1<<53 || name == fields.Epoch && v >= 1<<31 {
		log.AddProblem("got %s %g, want a count from 0", name, v)
		return -1, false
	}
	return int64(v), true
}

// startsNewRun reports whether a line begins a new run, since the rank's epochs are counted from the
// beginning again. A line with values that an earlier epoch lacks belongs to that epoch.
func startsNewRun(log *logline.Log, r *templateRule, s *templateRankState, epoch int, step int64, values []template.Value) bool {
	if !s.opened || epoch >= s.epoch {
		return false
	}
	e := log.Current.Epochs.Find(logline.RankID{Rank: log.Rank}).Find(epoch)
	if step >= 0 || e == nil || len(r.values) == 0 {
		return true
	}
	for i := range r.values {
		x := &r.values[i]
		if values[x.index].From >= 0 && x.isSetIn(e) {
			return true
		}
	}
	return false
}

func beginRunKeepingProperties(log *logline.Log) {
	before := log.Current
	if log.BeginRun(); log.Current == before {
		return
	}
	for field, set := range templateStateOf(before).properties {
		setLastingProperty(log, field, set)
	}
}

// setLastingProperty calls set, which sets a property of the current run, also for later runs in the file.
func setLastingProperty(log *logline.Log, field string, set func(*logline.Log)) {
	set(log)
	record.PutInMap(&templateStateOf(log.Current).properties, field, set)
}

// readUnnumberedLine reads a line without an epoch or step number when no epoch is open.
func readUnnumberedLine(log *logline.Log, r *templateRule, s *templateRankState, values []template.Value) logline.Result {
	switch {
	case len(r.values) == 0:
		return logline.Used // only properties of the run
	case len(r.values) == 1 && r.values[0].name == fields.Samples:
		n := values[r.values[0].index].Number
		if !(n >= 1) {
			return log.Refuse("got %g samples, want at least 1", n)
		}
		setLastingProperty(log, fields.Samples, func(log *logline.Log) { log.Current.Run.Info.SamplesPerEpoch = int(n) })
		return logline.Used
	}
	if last := log.LastEpoch(); len(s.lines) == 0 && last != nil { // a line of another format has opened it
		setTemplateEpoch(log, r, s, last.Epoch, values, ^uint64(0))
		return logline.Used
	}
	if len(s.lines) <= r.id {
		s.lines = append(s.lines, make([]int, r.id+1-len(s.lines))...)
	}
	s.lines[r.id]++
	if s.lines[r.id] == 1 {
		s.unnumbered = append(s.unnumbered, r)
		log.In.Report.AddAssumptionOnce("the n-th line of the form %q is epoch n, since the lines contain no number of the epoch", r.template)
	}
	setTemplateEpoch(log, r, s, s.lines[r.id], values, 0)
	return logline.Used
}

// removeUnnumberedLines is called at the first line with an epoch number. It removes the values of
// earlier lines, which were counted as epochs on the assumption that no line has a number.
func removeUnnumberedLines(log *logline.Log, s *templateRankState) {
	n := 0 // number of lines
	for _, r := range s.unnumbered {
		last := s.lines[r.id]
		n += last
		if list := log.Current.Epochs.Find(logline.RankID{Rank: log.Rank}); list != nil {
			list.Remove(1, last)
		}
		for i := range r.values {
			if c := log.Current.Curves.Find(r.values[i].name, max(log.Rank, -1)); c != nil {
				c.Clear()
			}
		}
	}
	s.unnumbered, s.lines = nil, nil
	if n > 0 {
		text := "1 line with values precedes this first line with the number of an epoch: its epoch is unknown, and it is not used"
		if n > 1 {
			text = english.FormatCount(n, "line") + " with values precede this first line with the number of an epoch: their epoch is unknown, and they are not used"
		}
		log.AddProblem("%s; values after such a line are those of its epoch; if they are those of the next one, write * in place of {epoch}", text)
	}
}

// setTemplateEpoch sets the values of an epoch. final contains the fields that have been set;
// setting them again is a problem.
func setTemplateEpoch(log *logline.Log, r *templateRule, s *templateRankState, n int, values []template.Value, final uint64) {
	if len(r.values) == 0 {
		return
	}
	s.anything = true
	var e *runs.Epoch
	for i := range r.values {
		x := &r.values[i]
		v := values[x.index]
		if e == nil && (x.isEpochField() || x.name == fields.Elapsed) {
			e = log.FindOrAddEpoch(n, 0)
		}
		switch {
		case v.From < 0:
		case !x.isEpochField():
			if x.isTime() && !record.IsPlausibleTime(v.Number) {
				log.AddProblem("got %s %g, which is no possible value; it is not used", x.name, v.Number)
				continue
			}
			if x.name == fields.Elapsed && log.Rank <= 0 {
				templateStateOf(log.Current).elapsed.Add(n, float64(n), v.Number)
			}
			log.AddPoint(x.curve, max(log.Rank, -1), int64(n), v.Number, log.StampSeconds())
		default:
			value, again := v.Number, false
			if x.name == fields.SamplesPerSecond && record.IsPlausibleTime(value) && n >= s.rateEpoch {
				again = s.rateEpoch == n && s.rateRule == r
				if rate := s.addRate(r, n, value, log.In.Report); again {
					value = rate
				}
			}
			if final&x.bit != 0 && x.isSetIn(e) && !again {
				log.AddProblem("duplicate %s of epoch %d; the later line counts", x.name, n)
			}
			setTemplateValue(log, x, e, value)
			if n == s.epoch {
				s.final |= x.bit
			}
		}
	}
}

// setTemplateValue sets a value of an epoch, or reports a problem if the value is impossible.
func setTemplateValue(log *logline.Log, x *valueField, e *runs.Epoch, v float64) {
	switch {
	case x.name == fields.EpochSeconds:
		v = log.EpochSecondsOrNaN(v)
	case x.isTime() && !record.IsPlausibleTime(v):
		log.AddProblem("got %s %g, which is no possible value; it is not used", x.name, v)
		return
	case x.name == fields.SamplesPerSecond:
		s := templateStateOf(log.Current)
		s.ratesOfRanks = s.ratesOfRanks || log.Rank >= 0
	case x.name == fields.Samples && v < 0:
		log.AddProblem("got %g samples, want at least 0", v)
		return
	case x.kind == fields.Fraction && v > 1:
		log.AddProblem("got %s %g, want 0 to 1; of a percentage without %%, write {%s:%%} in the template", x.name, v, x.name)
		return
	}
	if x.of == nil {
		e.Samples = int(v)
		return
	}
	*x.of(e) = v
}

// addTemplatePoints adds the values of a line with a step to curves and, if it is known, to the epoch.
func addTemplatePoints(log *logline.Log, r *templateRule, s *templateRankState, step int64, values []template.Value) {
	s.anything = true
	if s.stepped && s.opened && s.epoch > s.lastIn && step <= s.last {
		s.offset += s.last
		if r.steps >= 0 && values[r.steps].From >= 0 && int64(values[r.steps].Number) >= s.last {
			s.offset += int64(values[r.steps].Number) - s.last
		} else if s.first == 0 {
			s.offset++
		}
		log.In.Report.AddAssumptionOnce("steps are counted in each epoch; here they count from the beginning of the run")
	}
	if !s.stepped {
		s.stepped, s.first = true, step
	}
	s.last, s.lastIn = step, s.epoch
	now := log.StampSeconds()
	var e *runs.Epoch
	for i := range r.values {
		x := &r.values[i]
		v := values[x.index]
		if v.From < 0 {
			continue
		}
		log.AddPoint(x.curve, max(log.Rank, -1), s.offset+step, v.Number, now)
		if s.opened && x.isEpochField() && s.final&x.bit == 0 {
			if e == nil {
				e = log.FindOrAddEpoch(s.epoch, 0)
			}
			rate := v.Number
			if x.name == fields.SamplesPerSecond && record.IsPlausibleTime(rate) {
				rate = s.addRate(nil, s.epoch, rate, log.In.Report)
			}
			setTemplateValue(log, x, e, rate)
		}
		if s.opened && x.name == fields.Elapsed && log.Rank <= 0 {
			templateStateOf(log.Current).elapsed.Add(s.epoch, float64(s.epoch), v.Number)
		}
	}
}

// setTemplateProperty sets a property of the run. If the run has values and another value of the
// property, a new run begins. It returns false for an implausible value.
func setTemplateProperty(log *logline.Log, x *valueField, m []byte, values []template.Value) bool {
	v := values[x.index]
	if v.From < 0 {
		return true
	}
	text := string(m[v.From:v.To])
	if x.kind != fields.Text && (x.name != fields.Seed && v.Number < 1 || x.kind == fields.Whole && v.Number > 1<<53) || len(text) > 200 ||
		(x.name == fields.Workers || x.name == fields.Nodes || x.name == fields.Batch) && !record.IsPlausibleCount(v.Number) {
		log.AddProblem("got %s %.40s, which is not plausible", x.name, text)
		return false
	}
	n := int(v.Number)
	var has bool // the run has the value already
	var set func(log *logline.Log)
	info := &log.Current.Run.Info
	switch x.name {
	case fields.Workers:
		has, set = info.Workers == n, func(log *logline.Log) { log.Current.Run.Info.Workers = n }
	case fields.Nodes:
		has, set = info.Nodes == n, func(log *logline.Log) { log.Current.Run.Info.Nodes = n }
	case fields.Batch:
		log.In.Report.AddAssumptionOnce("{batch} is the number of samples per worker and step")
		has, set = info.BatchPerWorker == n, func(log *logline.Log) { log.Current.Run.Info.BatchPerWorker = n }
	case fields.Series:
		has, set = info.Series == text, func(log *logline.Log) { log.Current.Run.Info.Series = text }
	case fields.Seed:
		if log.Rank > 0 && log.Current.SeedKnown { // each rank may have its own seed; that of the first rank counts
			return true
		}
		has, set = log.Current.SeedKnown && info.Seed == int64(n), func(log *logline.Log) { log.Current.Run.Info.Seed, log.Current.SeedKnown = int64(n), true }
	case fields.Model:
		has, set = info.Config["model"] == text, func(log *logline.Log) { log.AddSetting("model", text) }
	default: // {epochs} and {steps}, which many lines repeat
		if info.Config[x.name] != v.Number {
			setLastingProperty(log, x.name, func(log *logline.Log) { log.AddSetting(x.name, v.Number) })
		}
		return true
	}
	s := templateStateOf(log.Current)
	if !has && s.findOrAddRank(log.Rank).anything {
		beginRunKeepingProperties(log)
	}
	if !has || s.properties[x.name] == nil {
		setLastingProperty(log, x.name, set)
	}
	return true
}
