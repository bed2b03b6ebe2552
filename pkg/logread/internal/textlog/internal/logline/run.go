package logline

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// Run is a run in a text log.
type Run struct {
	Line          int // number of the line at which the run begins
	Run           runs.Run
	Epochs        EpochsByRank
	LinesByFormat [MaxFormats]int // number of used lines, by format
	Lines         int             // number of used lines
	Ranks         map[int]bool    // ranks in the labels of used lines
	Trials        map[string]*runs.Trial
	Curves        record.Curves
	Closed        bool         // the next lines belong to another run
	SumRates      bool         // rates are per rank and must be summed
	Program       FormatID     // the program that trains; Command if unknown
	States        FormatStates // what the lines of single formats contain
	// Values that are stored in the run at its end.
	BarEpochs      EpochsByRank // epochs of progress bars; they count only if no other lines have epochs
	IterationRates []float64    // rates of a benchmark's iterations, per second and worker
	TableBegun     bool         // the line before a table of all-reduces was read
	HasKerasValues bool         // lines of Keras have set the values of an epoch
	HasTimes       bool         // lines have time stamps
	// First and last time stamp, in milliseconds since 1970.
	Started, Ended int64
	Done           int               // highest rank that reported its end, plus one
	SeedKnown      bool              // the lines contain the seed
	Evidence       []record.Evidence // what the command states about the run
	WorkersDerived bool              // Run.Info.Workers is computed from other numbers
	Devices        Devices           // that lines before the values state
	Resumes        bool              // a line before its values states that it resumes an earlier run
	ResumeLine     int               // number of the last line that states that the run itself was resumed or queued again
}

// Devices are the devices of a program, maybe only those of one node. Count is 0 if no line states it.
type Devices struct {
	Count, Line int
	Listed      bool
}

func newRun(line int, lines *scan.LineReader) *Run {
	return &Run{Line: line, Ranks: map[int]bool{}, Trials: map[string]*runs.Trial{}, Curves: record.Curves{Lines: lines}}
}

// CountLine counts the current line as one of the given format, and returns the run to which it
// belongs. It begins a new run if the current one has ended.
func (log *Log) CountLine(name FormatID) *Run {
	if log.Current.Closed {
		log.BeginRun()
	}
	if isTrainingProgram(name) {
		log.SelectProgram(name)
	}
	log.Current.LinesByFormat[name]++
	log.Current.Lines++
	if log.Rank >= 0 {
		log.Current.AddRank(log.Rank)
	}
	return log.Current
}

// isTrainingProgram reports whether format f is the output of a training program. Such a program
// excludes the lines of other training programs from its run.
func isTrainingProgram(f FormatID) bool {
	return f >= ImageNet && f <= HuggingFace || f == SC21 || f == Rates || f == Study
}

// SelectProgram makes program f the one that trains in the current run. It begins a run if another
// program has printed values of the current one.
func (log *Log) SelectProgram(f FormatID) {
	if !mayShareRun(log.Current.Program, f) || log.Current.Program == Command && (len(log.Current.BarEpochs.All) > 0 || log.Current.HasKerasValues) {
		log.BeginRun()
	}
	if log.Current.Program == Command {
		log.Current.Program = f
	}
}

// mayShareRun reports whether a line of format f can belong to a run of program, which is
// Command if unknown. DeepSpeed trains models of the Trainer and of Megatron-LM.
func mayShareRun(program, f FormatID) bool {
	if program == Command || program == f {
		return true
	}
	return (program == DeepSpeed || f == DeepSpeed) && max(program, f) >= Megatron
}

// AddRank adds the rank in the label of a used line to the run's ranks.
func (r *Run) AddRank(rank int) {
	if !r.Ranks[rank] && len(r.Ranks) < record.MaxWorkers {
		r.Ranks[rank] = true
	}
}

const maxRuns = 4096

// BeginRun begins a run at the current line.
func (log *Log) BeginRun() {
	if log.Current.Lines > 0 {
		if len(log.Runs) < maxRuns {
			log.Runs = append(log.Runs, log.Current)
		} else {
			log.AddProblem("the file has more than %d runs; the one that ends before this line is not kept", maxRuns)
		}
		last, line := log.LastEpoch(), log.Current.ResumeLine
		log.Current = newRun(log.Lines.Number, log.Lines)
		log.Current.Resumes = line > 0 && (last == nil || line > last.Line)
		log.Current.Devices, log.NextDevices = log.NextDevices, Devices{}
	}
	log.AddConfig(log.Config)
	log.Config = nil
}

// BeginHeader counts the current line as one that programs print before the values of a run, and
// returns the run. It begins a run if the current one has values.
func (log *Log) BeginHeader() *Run {
	if log.Current.Closed || log.Current.HasValues() {
		log.BeginRun()
	}
	log.Current.Lines++
	return log.Current
}

// HasValues reports whether the run has epochs, trials or curves.
func (r *Run) HasValues() bool {
	return len(r.Epochs.All)+len(r.BarEpochs.All)+len(r.Trials)+len(r.Curves.All)+len(r.IterationRates) > 0
}

// AddConfig adds settings to the run's configuration, unless it has them.
func (log *Log) AddConfig(c map[string]any) {
	for key, v := range c {
		if _, known := log.Current.Run.Info.Config[key]; !known {
			log.AddSetting(key, v)
		}
	}
}

// AddHeaderSetting adds a setting that a program prints before the values of a run. After its values, the
// setting belongs to the next run, which another learning rate, for example, begins.
func (log *Log) AddHeaderSetting(key, text string) Result {
	v := ParseNumberOrText([]byte(text))
	switch strings.ToLower(text) {
	case "true", "enabled", "on":
		v = true
	case "false", "disabled", "off", "none":
		v = false
	}
	if log.Current.Closed || log.Current.HasValues() {
		before, known := log.Current.Run.Info.Config[key]
		if record.PutInMap(&log.Config, key, v); !known || before == v || !slices.Contains([]string{"lr", "learning_rate", "epochs", "arch", "model"}, key) {
			return Idle
		}
	}
	log.BeginHeader()
	log.AddConfig(map[string]any{key: v})
	return Used
}

// AddSetting adds one setting to the run's configuration.
func (log *Log) AddSetting(key string, v any) {
	if info := &log.Current.Run.Info; len(info.Config) < record.MaxRunSettings {
		record.SetConfigValue(info, key, v)
	}
}

// AddProperty adds a setting to the run's configuration. A known key, such as the batch size, also
// sets the run's property.
func (log *Log) AddProperty(key string, v any) {
	log.AddSetting(key, v)
	n, _ := v.(float64)
	info := &log.Current.Run.Info
	switch {
	case !record.IsPlausibleCount(n):
	case key == "world_size" || key == "num_gpus" || key == "n_gpus" || key == "number_of_ranks":
		info.Workers = int(n)
	case key == "global_batch_size":
		info.GlobalBatch = int(n)
	case key == "local_batch_size":
		info.BatchPerWorker = int(n)
	case key == "train_samples":
		info.SamplesPerEpoch = int(n)
	}
}

// ParseNumberOrText returns text as a number if it is one, and otherwise as a string without
// surrounding blanks.
func ParseNumberOrText(text []byte) any {
	word := strings.TrimSpace(string(text))
	if v, err := strconv.ParseFloat(word, 64); err == nil {
		return v
	}
	return word
}

// FindOrAddEpoch returns epoch n of the current line's rank, and adds it if it is new. ordinal
// distinguishes ranks without labels; see RankID.
func (log *Log) FindOrAddEpoch(n, ordinal int) *runs.Epoch {
	list := log.Current.Epochs.FindOrAdd(RankID{log.Rank, ordinal})
	before := len(list.Epochs)
	e := list.FindOrAdd(n, log.Lines)
	log.In.Report.Records += int64(len(list.Epochs) - before)
	return e
}

// FindOrAddRunEpoch is like FindOrAddEpoch for a logger that prints the same lines for all ranks.
func (log *Log) FindOrAddRunEpoch(n, ordinal int) *runs.Epoch {
	rank := log.Rank
	log.Rank = -1
	defer func() { log.Rank = rank }()
	return log.FindOrAddEpoch(n, ordinal)
}

// LastEpoch returns the last epoch of the current line's rank, or nil.
func (log *Log) LastEpoch() *runs.Epoch {
	list := log.Current.Epochs.Find(RankID{log.Rank, 0})
	if list == nil || len(list.Epochs) == 0 {
		return nil
	}
	return &list.Epochs[len(list.Epochs)-1]
}

// EpochSecondsOrNaN returns the time of an epoch if it is positive and finite. Otherwise it reports a
// problem and returns NaN: the clock was set back, or the number is no time.
func (log *Log) EpochSecondsOrNaN(seconds float64) float64 {
	switch {
	case math.IsNaN(seconds) || math.IsInf(seconds, 0):
		log.AddProblem("expected the seconds of an epoch, got %g; its time is not used", seconds)
		return math.NaN()
	case seconds > 0:
		return seconds
	}
	log.AddProblem("got an epoch of %g s: the clock was set during the epoch; its time is not used", seconds)
	return math.NaN()
}

// FindOrAddTrial returns the run's trial with the given name, and adds it if it is new.
func (log *Log) FindOrAddTrial(name string) *runs.Trial {
	tr := log.Current.Trials[name]
	if tr == nil {
		tr = &runs.Trial{Name: name, Rate: math.NaN(), Spread: math.NaN()}
		log.Current.Trials[name] = tr
	}
	return tr
}

// AddPoint adds a point to a curve of the run: its step, its value v, and its time in seconds since
// 1970 or NaN.
func (log *Log) AddPoint(name []byte, rank int, step int64, v, seconds float64) {
	c := log.Current.Curves.FindOrAdd(name, rank, seconds == seconds)
	if c == nil {
		log.AddProblem("the file has more than %d names of values; %.40q is not used", record.MaxCurveNames, string(name))
		return
	}
	c.AddPoint(step, v, seconds)
	log.In.Report.Records++
}

// HasAllRanks reports whether the ranks in the lines are 0, 1, 2, … on each node. Otherwise only
// some ranks have printed lines.
func (r *Run) HasAllRanks() bool {
	for rank := range r.Ranks {
		if rank%reservedRanksPerNode != 0 && !r.Ranks[rank-1] {
			return false
		}
	}
	return true
}

// DeriveWorkers sets the run's workers to n, computed from other numbers, unless the log states them. If
// the program states another number of devices, n is not used.
func (r *Run) DeriveWorkers(n int) {
	if r.Devices.Count > 1 && r.Devices.Count != n {
		return
	}
	if r.Run.Info.Workers == 0 {
		r.Run.Info.Workers, r.WorkersDerived = n, true
		return
	}
	r.Evidence = append(r.Evidence, record.Evidence{Property: runs.PropertyWorkers, Number: int64(n), Kind: record.Derived, Origin: runs.Origin{Source: runs.SourceContent}})
}

// StatedWorkers returns the number of workers that a line states or, if none does, the command. It
// returns 0 if neither does.
func (r *Run) StatedWorkers() int {
	if r.Run.Info.Workers > 0 {
		return r.Run.Info.Workers
	}
	for _, c := range r.Evidence {
		if c.Property == runs.PropertyWorkers {
			return int(c.Number)
		}
	}
	return 0
}

// SetDevices sets the devices of the run or, after its values, of the next run. A list of devices counts
// rather than a number.
func (log *Log) SetDevices(n int, listed bool) Result {
	if n < 1 || n > record.MaxWorkers {
		return Unknown
	}
	d, v := &log.NextDevices, Idle
	if !log.Current.Closed && !log.Current.HasValues() {
		d, v = &log.CountLine(Command).Devices, Used
	}
	if listed && !d.Listed || listed == d.Listed && n > d.Count {
		*d = Devices{Count: n, Listed: listed, Line: log.Lines.Number}
	}
	return v
}
