package benchmark

import (
	"fmt"
	"math"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// MLPerf's logging (github.com/mlcommons/logging, mllog) writes one JSON
// document per line. The time to train is the time from run_start to run_stop.
// An epoch lasts from epoch_start to epoch_stop (block_start and block_stop in
// older rules).
//
//	:::MLLOG {"namespace": "", "time_ms": 1714835509498, "event_type": "POINT_IN_TIME", "key": "tracked_stats",
//	          "value": {"throughput": 341.957}, "metadata": {"step": 1}}

// mlperfState contains what was read from the MLPerf lines of a run. Times are in milliseconds.
type mlperfState struct {
	start, stop float64
	epochs      map[int]mlperfBlock // open epochs and blocks of epochs by their first number
	label       int                 // label of the rank whose lines are used, plus 2; 0 before the first line
	result      string              // status in run_stop
	others      mlperfOtherRanks
}

// MLPerf returns the format of MLPerf's logging.
func MLPerf() logline.Format {
	return logline.Format{Name: "MLPerf log", Finish: finishMLPerf, Rules: []logline.Rule{
		{Prefix: ":::MLLOG ", Read: readMLPerf},
	}}
}

func mlperfStateOf(r *logline.Run) *mlperfState {
	return logline.FormatState[mlperfState](&r.States, logline.MLPerf)
}

type mlperfBlock struct {
	start float64 // ms
	count int     // number of epochs
}

// maxBlockEpochs limits the epochs in a block, and so the memory that a short line can take.
const maxBlockEpochs = 64

func readMLPerf(log *logline.Log, m []byte) logline.Result {
	text := m[len(":::MLLOG "):]
	v, ok := parseMLPerf(text)
	if ok && !isUsedMLPerfKey(v.key) { // most keys describe the submission
		return logline.Idle
	}
	if !ok {
		return log.Refuse("MLLOG: expected a complete JSON object with time_ms and key, got %.80q", text)
	}
	if string(v.key) == "run_start" {
		selectMLPerfRun(log)
	}
	s := mlperfStateOfUsedRank(log)
	if s == nil {
		return addOtherMLPerfRank(log, v)
	}
	epoch, hasEpoch := mlperfEpochNumber(v)
	switch string(v.key) {
	case "run_start":
		s.start = v.time
	case "run_stop":
		s.stop, s.result = v.time, string(v.status[:min(len(v.status), 100)])
		log.In.Report.Records++
	case "epoch_start", "block_start":
		if hasEpoch {
			return beginMLPerfBlock(log, s, epoch, v)
		}
	case "epoch_stop", "block_stop":
		if hasEpoch {
			endMLPerfBlock(log, s, epoch, v.time)
		}
	case "eval_accuracy", "eval_error", "eval_loss":
		addMLPerfQuality(log, v, epoch, hasEpoch)
	case "tracked_stats":
		addMLPerfStats(log, v, epoch)
	default:
		return addMLPerfSetting(log, v)
	}
	return logline.Used
}

func beginMLPerfBlock(log *logline.Log, s *mlperfState, epoch int, v mlperfLine) logline.Result {
	count := 1.0
	if v.epochs == v.epochs {
		count = v.epochs
	}
	if !(count >= 1 && count <= maxBlockEpochs && count == math.Trunc(count)) {
		return log.Refuse("a block of %g epochs has no time per epoch", count)
	}
	record.PutInMap(&s.epochs, epoch, mlperfBlock{v.time, int(count)})
	return logline.Used
}

// endMLPerfBlock sets the time of an epoch, or of each epoch in a block. end is in ms.
func endMLPerfBlock(log *logline.Log, s *mlperfState, epoch int, end float64) {
	block, ok := s.epochs[epoch]
	if !ok {
		return
	}
	delete(s.epochs, epoch)
	if block.count > 1 {
		log.In.Report.AddAssumptionOnce("MLLOG logs blocks of several epochs: the time of an epoch is the mean over its block")
	}
	seconds := log.EpochSecondsOrNaN((end - block.start) / 1000 / float64(block.count))
	for n := epoch; n < epoch+block.count; n++ {
		e := log.FindOrAddRunEpoch(n, logline.MLPerfOrdinal)
		e.Seconds, e.Line = seconds, log.Lines.Number
	}
}

// mlperfStateOfUsedRank returns the state of the run. It returns nil if the current line was
// written by a rank whose lines are not used. The lines of one rank suffice, because all ranks
// print the same values.
func mlperfStateOfUsedRank(log *logline.Log) *mlperfState {
	s := mlperfStateOf(log.CountLine(logline.MLPerf))
	if s.label == 0 {
		s.label = log.Rank + 2
	}
	if s.label != log.Rank+2 {
		return nil
	}
	return s
}

// addMLPerfQuality adds the result of an evaluation (eval_accuracy, eval_error or eval_loss) to its
// curve, and an accuracy or a loss also to the epoch, if the line has one (hasEpoch).
func addMLPerfQuality(log *logline.Log, v mlperfLine, epoch int, hasEpoch bool) {
	x, ok := scan.ParseJSONFloat(v.value)
	if !ok {
		log.AddProblem("MLLOG %s: expected a number, got %.40q", v.key, v.value)
		return
	}
	log.AddPoint(v.key, -1, v.evaluationStep(), x, v.time/1000)
	if hasEpoch {
		setMLPerfQuality(log.Current, string(v.key), epoch, x)
	}
}

func setMLPerfQuality(r *logline.Run, key string, epoch int, x float64) {
	e := r.Epochs.Find(logline.RankID{Rank: -1, Ordinal: logline.MLPerfOrdinal}).Find(epoch)
	switch {
	case e == nil:
	case key == "eval_accuracy" && x >= 0 && x <= 1:
		e.ValAccuracy = x
	case key == "eval_loss":
		e.ValLoss = x
	}
}

// addMLPerfStats adds a tracked_stats line to the run's curves, one point per value.
func addMLPerfStats(log *logline.Log, v mlperfLine, epoch int) {
	step := v.stepOrEpoch(epoch)
	stats := scan.ObjectIterator{Text: v.value}
	for key, value := range stats.Members() {
		if x, ok := scan.ParseJSONFloat(value); ok && len(key) <= 100 {
			log.AddPoint(key, -1, step, x, v.time/1000)
		}
	}
	if stats.Bad {
		log.AddProblem("MLLOG tracked_stats: expected an object, got %.40q", v.value)
	}
}

func addMLPerfSetting(log *logline.Log, v mlperfLine) logline.Result {
	info := &log.Current.Run.Info
	key := string(v.key)
	x, ok := scan.ParseJSONFloat(v.value)
	if !ok {
		if text := scan.UnquoteJSON(v.value); len(text) < len(v.value) && len(text) <= 200 {
			log.AddSetting(key, string(text))
			if key == "submission_benchmark" {
				info.Series = string(text)
			}
		}
		return logline.Used
	}
	if log.AddProperty(key, x); key == "seed" && x >= 0 && x < 1<<53 {
		info.Seed, log.Current.SeedKnown = int64(x), true
	}
	return logline.Used
}

func finishMLPerf(r *logline.Run, report *record.Report) {
	if mlperfStateOf(r).label == 0 {
		return
	}
	useOtherMLPerfRanks(r, report)
	s := *mlperfStateOf(r)
	info := &r.Run.Info
	switch {
	case s.start == 0 || s.stop == 0:
		report.AddProblem(r.Line, "MLLOG: run_start or run_stop is missing; the time to train is unknown")
		if s.start > 0 {
			info.Status, info.Error = runs.StatusFailed, "MLLOG: the run did not stop by itself (no run_stop)"
		}
	case s.stop <= s.start:
		report.AddProblem(r.Line, "MLLOG: run_stop is %g s before run_start: the clock was set; the time to train is not used", (s.start-s.stop)/1000)
	default:
		record.SetConfigValue(info, record.TrainingSecondsKey, (s.stop-s.start)/1000)
	}
	if s.result != "" && !strings.EqualFold(s.result, "success") {
		info.Status, info.Error = runs.StatusFailed, fmt.Sprintf("MLLOG: run_stop says %.100q", s.result)
	} else if s.result != "" {
		info.Status = runs.StatusDone
	}
	nodes, okNodes := record.ConfigNumber(info.Config, "number_of_nodes")
	perNode, okPer := record.ConfigNumber(info.Config, "accelerators_per_node")
	if info.Workers == 0 && okNodes && okPer && record.IsPlausibleCount(nodes*perNode) {
		info.Workers, info.Nodes = int(nodes*perNode), int(nodes)
	}
}

// mlperfLine contains the members of a line's JSON document. Missing values are NaN or empty.
type mlperfLine struct {
	time               float64 // ms
	key, value, status []byte
	epoch, step, count float64
	epochs             float64 // number of epochs in a block
}

// parseMLPerf parses the JSON document of a line, up to a key whose lines are not used. ok is false
// if the document is malformed or has no key or time.
func parseMLPerf(text []byte) (v mlperfLine, ok bool) {
	v = mlperfLine{time: math.NaN(), epoch: math.NaN(), step: math.NaN(), count: math.NaN(), epochs: math.NaN()}
	doc := scan.ObjectIterator{Text: text}
	for key, value := range doc.Members() {
		switch string(key) {
		case "time_ms":
			v.time, _ = scan.ParseJSONFloat(value)
		case "key":
			if v.key = scan.UnquoteJSON(value); !isUsedMLPerfKey(v.key) {
				return v, true
			}
		case "value":
			v.value = value
		case "metadata":
			v.parseMetadata(value)
		}
	}
	return v, !doc.Bad && len(v.key) > 0 && v.time == v.time
}

func (v *mlperfLine) parseMetadata(text []byte) {
	meta := scan.ObjectIterator{Text: text}
	for key, value := range meta.Members() {
		x, ok := scan.ParseJSONFloat(value)
		switch name := string(key); {
		case name == "status":
			v.status = scan.UnquoteJSON(value)
		case !ok:
		case name == "epoch_num", name == "first_epoch_num" && v.epoch != v.epoch:
			v.epoch = x
		case name == "step":
			v.step = x
		case name == "samples_count":
			v.count = x
		case name == "epoch_count":
			v.epochs = x
		}
	}
}

func isUsedMLPerfKey(key []byte) bool {
	switch string(key) {
	case "run_start", "run_stop", "epoch_start", "epoch_stop", "block_start", "block_stop",
		"eval_accuracy", "eval_error", "eval_loss", "tracked_stats",
		"global_batch_size", "submission_benchmark", "submission_platform", "seed", "train_samples",
		"number_of_nodes", "accelerators_per_node", "number_of_ranks":
		return true
	}
	return false
}

// mlperfEpochNumber returns the epoch in a line's metadata. ok is false unless it is an integer.
func mlperfEpochNumber(v mlperfLine) (n int, ok bool) {
	if e := v.epoch; e >= 0 && e < 1<<31 && e == float64(int(e)) {
		return int(e), true
	}
	return 0, false
}

// evaluationStep returns the step of an evaluation in its curve: the epoch, or else the number of samples.
func (v mlperfLine) evaluationStep() int64 {
	epoch, ok := mlperfEpochNumber(v)
	if !ok && v.count >= 0 && v.count < 1<<53 {
		return int64(v.count)
	}
	return int64(epoch)
}

// stepOrEpoch returns the step in the metadata of a tracked_stats line, or else epoch.
func (v mlperfLine) stepOrEpoch(epoch int) int64 {
	if v.step >= 0 && v.step < 1<<53 {
		return int64(v.step)
	}
	return int64(epoch)
}
