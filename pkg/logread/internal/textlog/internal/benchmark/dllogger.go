package benchmark

import (
	"math"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// NVIDIA's DLLogger writes one JSON document per line. The step is "PARAMETER"
// (a setting), [] (the whole run), [epoch], [epoch, iteration] or [epoch,
// iteration, total].
//
//	DLLL {"timestamp": "1587451057.91385", "datetime": "…", "elapsedtime": "91.665232", "type": "LOG",
//	      "step": [0, 0], "data": {"average_loss": 3.62}}

// dlloggerState contains what is needed to number iterations across the epochs of a run.
type dlloggerState struct {
	epoch, iteration, offset int64    // of the last iteration; offset is the number of iterations in earlier epochs
	elapsed                  float64  // elapsed time at the end of the last epoch, in seconds
	started                  bool     // an iteration was read
	first                    [2]int64 // step of the first iteration
	epochs                   int      // number of lines of epochs
	firstEpoch               int64    // number of the first of these epochs
	reported                 bool     // the report contains the source of the epochs' seconds
}

// DLLogger returns the format of DLLogger.
func DLLogger() logline.Format {
	return logline.Format{Name: "DLLogger", Rules: []logline.Rule{
		{Prefix: "DLLL ", Read: readDLLogger},
	}}
}

func dlloggerStateOf(r *logline.Run) *dlloggerState {
	return logline.FormatState[dlloggerState](&r.States, logline.DLLogger)
}

// pendingDLLoggerSettings returns the settings after the values of a run, which belong to the next values.
func pendingDLLoggerSettings(log *logline.Log) *[][2]string {
	return logline.FormatState[[][2]string](&log.States, logline.DLLogger)
}

type dlloggerLine struct {
	stamp, elapsed   float64 // NaN if missing
	kind, step, data []byte
}

// parseDLLoggerLine parses the JSON document of a line. ok is false if it is malformed.
func parseDLLoggerLine(text []byte) (v dlloggerLine, ok bool) {
	v = dlloggerLine{stamp: math.NaN(), elapsed: math.NaN()}
	doc := scan.ObjectIterator{Text: text}
	for key, value := range doc.Members() {
		switch string(key) {
		case "timestamp":
			v.stamp = scan.JSONFloat(value)
		case "elapsedtime":
			v.elapsed = scan.JSONFloat(value)
		case "type":
			v.kind = scan.UnquoteJSON(value)
		case "step":
			v.step = value
		case "data":
			v.data = value
		}
	}
	return v, !doc.Bad
}

// forEachValue calls use for each member of the data with a name that is not too long. It returns
// false if the data is malformed.
func (v dlloggerLine) forEachValue(use func(name, value []byte)) bool {
	data := scan.ObjectIterator{Text: v.data}
	for key, value := range data.Members() {
		if len(key) <= 100 {
			use(key, value)
		}
	}
	return !data.Bad
}

func readDLLogger(log *logline.Log, m []byte) logline.Result {
	v, ok := parseDLLoggerLine(m[len("DLLL "):])
	if !ok {
		return log.Refuse("DLLL: expected a complete JSON object, got %.80q", m)
	}
	if string(v.kind) == "METADATA" { // describes units
		return logline.Idle
	}
	step, n := parseDLLoggerStep(v.step)
	if n < 0 {
		return log.Refuse("DLLL: expected the step \"PARAMETER\", [], [e] or [e, i], got %.40q", v.step)
	}
	if n > 0 {
		applyDLLoggerSettings(log, step, n)
	}
	run := log.CountLine(logline.DLLogger)
	switch {
	case string(v.step) == `"PARAMETER"` && dlloggerStateOf(run).hasValues():
		later := pendingDLLoggerSettings(log)
		ok = v.forEachValue(func(k, x []byte) {
			if len(*later) < record.MaxRunSettings {
				*later = append(*later, [2]string{string(k), string(x)})
			}
		})
	case string(v.step) == `"PARAMETER"`:
		ok = v.forEachValue(func(k, x []byte) { addDLLoggerSetting(log, string(k), x) })
	case n == 0:
		ok = v.forEachValue(func(k, x []byte) { addDLLoggerSetting(log, "summary/"+string(k), x) })
	case n == 1:
		ok = addDLLoggerEpoch(log, run, step[0], v)
	default:
		at := dlloggerStateOf(run).globalIteration(step)
		ok = v.forEachValue(func(k, x []byte) {
			if f, ok := scan.ParseJSONFloat(x); ok {
				log.AddPoint(k, -1, at, f, v.stamp)
			}
		})
	}
	if !ok {
		log.AddProblem("DLLL: expected a JSON object as data, got %.40q", v.data)
	}
	return logline.Used
}

func (s *dlloggerState) hasValues() bool { return s.started || s.epochs > 0 }

// applyDLLoggerSettings applies the settings after the values of the current run: the program was
// started again and appends to the log. The next line has the given step of n numbers. If this is
// the current run's first step, it begins another run; otherwise the run was resumed.
func applyDLLoggerSettings(log *logline.Log, step [2]int64, n int) {
	later := pendingDLLoggerSettings(log)
	if len(*later) == 0 {
		return
	}
	s := dlloggerStateOf(log.Current)
	if n == 1 && s.epochs > 0 && step[0] == s.firstEpoch || n > 1 && s.started && step == s.first {
		log.BeginRun()
	}
	for _, setting := range *later {
		addDLLoggerSetting(log, setting[0], []byte(setting[1]))
	}
	*later = nil
}

// globalIteration converts step, an epoch and an iteration within it, to the number of the
// iteration across all epochs. The iterations must be passed in the order of the log.
func (s *dlloggerState) globalIteration(step [2]int64) int64 {
	if s.started && step[0] != s.epoch && step[1] <= s.iteration {
		s.offset += s.iteration + 1
	}
	if !s.started {
		s.first, s.started = step, true
	}
	s.epoch, s.iteration = step[0], step[1]
	return s.offset + step[1]
}

// parseDLLoggerStep parses the step of a line. step contains its first two numbers, and n is how
// many numbers it has: -1 if the step is malformed, and 0 for "PARAMETER".
func parseDLLoggerStep(text []byte) (step [2]int64, n int) {
	if string(text) == `"PARAMETER"` {
		return step, 0
	}
	c := scan.Cursor{Rest: text}
	c.Expect("[").SkipBlanks()
	for n = 0; !c.Failed && !c.Accept("]"); n++ {
		if n > 0 {
			c.Expect(",").SkipBlanks()
		}
		v := 0
		if !c.Accept("null") {
			v = c.ReadInteger()
		}
		if n < len(step) {
			step[n] = int64(v)
		}
		c.SkipBlanks()
	}
	if !c.IsComplete() {
		return step, -1
	}
	return step, n
}

// addDLLoggerSetting adds a setting to the run's configuration. A known key, such as the batch
// size, also sets the run's property.
func addDLLoggerSetting(log *logline.Log, key string, x []byte) {
	if v, ok := scan.ParseJSONFloat(x); ok {
		log.AddProperty(key, v)
	} else {
		log.AddSetting(key, string(scan.UnquoteJSON(x[:min(len(x), 1000)])))
	}
}

// addDLLoggerEpoch adds epoch n with the values in its line. Without a duration, it uses the time
// since the previous epoch's line and reports this. It returns false if the line's data is malformed.
func addDLLoggerEpoch(log *logline.Log, run *logline.Run, n int64, line dlloggerLine) bool {
	e := log.FindOrAddRunEpoch(int(n), logline.DLLoggerOrdinal)
	total, compute := math.NaN(), math.NaN() // throughput with and without the time for loading data
	good := line.forEachValue(func(k, x []byte) {
		v, ok := scan.ParseJSONFloat(x)
		if !ok {
			return
		}
		f, name := fields.Lookup(string(k)), fields.Normalize(string(k))
		switch {
		case name == "traintotalips":
			total = v
		case name == "traincomputeips":
			compute = v
		case f == nil:
		case f.Name == fields.EpochSeconds || f.Name == fields.TrainingTime:
			e.Seconds = log.EpochSecondsOrNaN(v)
		case f.OfEpoch != nil && f.Kind == fields.Fraction:
			*f.OfEpoch(e) = percentageToFraction(v)
		case f.OfEpoch != nil:
			*f.OfEpoch(e) = v
		}
		log.AddPoint(k, -1, n, v, math.NaN())
	})
	switch {
	case total == total:
		e.SamplesPerSecond = total
	case e.SamplesPerSecond != e.SamplesPerSecond && compute == compute:
		log.In.Report.AddAssumptionOnce("the throughput is train.compute_ips, which does not include loading data")
		e.SamplesPerSecond = compute
	}
	s := dlloggerStateOf(run)
	if s.epochs == 0 {
		s.firstEpoch = n
	}
	s.epochs++
	if s.elapsed > 0 && e.Seconds != e.Seconds && line.elapsed > s.elapsed {
		if !s.reported {
			log.In.Report.AddAssumption("seconds of an epoch: elapsedtime between the lines of the previous epoch and of this one, including validation; unknown for the first epoch")
			s.reported = true
		}
		e.Seconds = line.elapsed - s.elapsed
	}
	if line.elapsed > 0 {
		s.elapsed = line.elapsed
	}
	return good
}

// percentageToFraction converts a percentage to a fraction. Values up to 1 are fractions.
func percentageToFraction(v float64) float64 {
	if v > 1 {
		return v / 100
	}
	return v
}
