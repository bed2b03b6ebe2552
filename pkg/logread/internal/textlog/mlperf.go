package textlog

import (
	"fmt"
	"math"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// MLPerf's logging (github.com/mlcommons/logging, mllog) writes one JSON
// document per line. The time to train is from run_start to run_stop. An epoch
// is from epoch_start to epoch_stop (block_start and block_stop in older
// rules).
//
//	:::MLLOG {"namespace": "", "time_ms": 1714835509498, "event_type": "POINT_IN_TIME", "key": "tracked_stats",
//	          "value": {"throughput": 341.957}, "metadata": {"step": 1}}

// mlperfState is what the lines of a run have said so far, with times in ms.
type mlperfState struct {
	start, stop float64
	epochs      map[int]float64 // start of each open epoch
	label       int             // label of the rank whose lines count, plus 2; 0 before the first line
	result      string
}

// mlperfLine is the document of a line. A missing value is NaN or empty.
type mlperfLine struct {
	time               float64 // ms
	key, value, status []byte
	epoch, step, count float64
}

// parseMLPerf splits the document into its members. It stops at a key that is
// not used.
func parseMLPerf(text []byte) (v mlperfLine, ok bool) {
	v = mlperfLine{time: math.NaN(), epoch: math.NaN(), step: math.NaN(), count: math.NaN()}
	doc := scan.Object{Text: text}
	for {
		key, value, more := doc.Next()
		if !more {
			break
		}
		switch string(key) {
		case "time_ms":
			v.time, _ = scan.JSONFloat(value)
		case "key":
			if v.key = scan.Unquote(value); !mlperfKey(v.key) {
				return v, true
			}
		case "value":
			v.value = value
		case "metadata":
			v.metadata(value)
		}
	}
	return v, !doc.Bad && len(v.key) > 0 && v.time == v.time
}

// metadata reads the metadata.
func (v *mlperfLine) metadata(text []byte) {
	meta := scan.Object{Text: text}
	for {
		key, value, more := meta.Next()
		if !more {
			return
		}
		x, ok := scan.JSONFloat(value)
		switch name := string(key); {
		case name == "status":
			v.status = scan.Unquote(value)
		case !ok:
		case name == "epoch_num", name == "first_epoch_num" && v.epoch != v.epoch:
			v.epoch = x
		case name == "step":
			v.step = x
		case name == "samples_count":
			v.count = x
		}
	}
}

// mlperf reads a line of any form.
func (t *textLog) mlperf(m []byte) verdict {
	if s := t.mlperfShapes.Match(m); s != nil {
		return t.mlperfShaped(s)
	}
	text := m[len(":::MLLOG "):]
	v, ok := parseMLPerf(text)
	if ok && !mlperfKey(v.key) { // most keys describe the submission
		return idle
	}
	if !ok {
		t.in.Problem(t.l.Number, "MLLOG: expected an object with time_ms and key, whole up to its brace, got %.80q", text)
		return unused
	}
	if string(v.key) == "run_start" && (t.cur.mlperf.stop > 0 || t.cur.closed) {
		t.begin()
	}
	s := t.mlperfRank()
	if s == nil {
		return idle
	}
	epoch, hasEpoch := metaEpoch(v)
	switch string(v.key) {
	case "run_start":
		s.start = v.time
	case "run_stop":
		s.stop, s.result = v.time, string(v.status[:min(len(v.status), 100)])
		t.in.Report.Records++
	case "epoch_start", "block_start":
		if hasEpoch {
			if s.epochs == nil {
				s.epochs = map[int]float64{}
			}
			s.epochs[epoch] = v.time
		}
	case "epoch_stop", "block_stop":
		if start, ok := s.epochs[epoch]; ok && hasEpoch {
			e := t.mlperfEpoch(epoch)
			e.Seconds, e.Line = t.validSeconds((v.time-start)/1000), t.l.Number
			delete(s.epochs, epoch)
		}
	case "eval_accuracy", "eval_error", "eval_loss":
		t.mlperfQuality(v, epoch, hasEpoch)
	case "tracked_stats":
		t.mlperfStats(v, epoch)
		t.mlperfLearn(m)
	default:
		return t.mlperfSetting(v)
	}
	return used
}

// mlperfRank returns the state of the run if the line is of the rank whose
// lines count, since all ranks print the same; otherwise nil.
func (t *textLog) mlperfRank() *mlperfState {
	s := &t.form(formMLPerf).mlperf
	if s.label == 0 {
		s.label = t.rank + 2
	}
	if s.label != t.rank+2 {
		return nil
	}
	return s
}

// Meaning of the slots of a line of tracked_stats.
const (
	mlperfTime = 1 + iota
	mlperfValue
	mlperfEpoch
	mlperfStep
)

// mlperfLearn learns the shape of a line of tracked_stats that has just been
// read.
func (t *textLog) mlperfLearn(m []byte) {
	shape := t.mlperfShapes.Learn(m)
	if shape == nil {
		return
	}
	doc := scan.Object{Text: m[len(":::MLLOG "):]}
	for {
		key, value, more := doc.Next()
		if !more {
			break
		}
		switch string(key) {
		case "time_ms":
			shape.Key(0)
			shape.Add(scan.SlotNumber, scan.Unquote(value), mlperfTime, nil)
			shape.RequireEnd(scan.Unquote(value))
		case "key":
			shape.Key(1)
		case "value":
			shape.Key(2)
			shape.Members(value, func(name []byte) int {
				if len(name) > 100 {
					return 0
				}
				return mlperfValue
			})
		case "metadata":
			shape.Members(value, func(name []byte) int {
				switch string(name) {
				case "epoch_num", "first_epoch_num":
					shape.Key(3) // the first of both counts
					return mlperfEpoch
				case "step":
					return mlperfStep
				}
				return 0
			})
		default:
			shape.Member(value, 0, nil)
		}
	}
	shape.RequireKey(2) // a line without a value is a problem
	t.mlperfShapes.Keep(shape)
}

// mlperfShaped reads a line of tracked_stats of a known shape.
func (t *textLog) mlperfShaped(s *scan.Shape) verdict {
	if t.mlperfRank() == nil {
		return idle
	}
	v := mlperfLine{epoch: math.NaN(), step: math.NaN()}
	for i := range s.Slots {
		switch x := &s.Slots[i]; x.Field {
		case mlperfTime:
			v.time = x.Value
		case mlperfEpoch:
			v.epoch = x.Value
		case mlperfStep:
			v.step = x.Value
		}
	}
	epoch, _ := metaEpoch(v)
	step := v.statsStep(epoch)
	for i := range s.Slots {
		if x := &s.Slots[i]; x.Field == mlperfValue {
			t.point(x.Name, -1, step, x.Value, v.time/1000)
		}
	}
	return used
}

// mlperfKey reports whether lines with this key are used.
func mlperfKey(key []byte) bool {
	switch string(key) {
	case "run_start", "run_stop", "epoch_start", "epoch_stop", "block_start", "block_stop",
		"eval_accuracy", "eval_error", "eval_loss", "tracked_stats",
		"global_batch_size", "submission_benchmark", "submission_platform", "seed", "train_samples",
		"number_of_nodes", "accelerators_per_node", "number_of_ranks":
		return true
	}
	return false
}

// metaEpoch returns the epoch in a line's metadata.
func metaEpoch(v mlperfLine) (int, bool) {
	if e := v.epoch; e >= 0 && e < 1<<31 && e == float64(int(e)) {
		return int(e), true
	}
	return 0, false
}

// mlperfEpoch returns an epoch of the run, independent of the line's rank.
func (t *textLog) mlperfEpoch(n int) *runs.Epoch {
	rank := t.rank
	t.rank = -1
	defer func() { t.rank = rank }()
	return t.epoch(n, 0)
}

// mlperfQuality reads the result of an evaluation.
func (t *textLog) mlperfQuality(v mlperfLine, epoch int, hasEpoch bool) {
	x, ok := scan.JSONFloat(v.value)
	if !ok {
		t.in.Problem(t.l.Number, "MLLOG %s: expected a number, got %.40q", v.key, v.value)
		return
	}
	step := int64(epoch)
	if !hasEpoch && v.count >= 0 && v.count < 1<<53 {
		step = int64(v.count)
	}
	t.point(v.key, -1, step, x, v.time/1000)
	tr := t.cur.tracks.find(trackID{-1, 0})
	if !hasEpoch || tr == nil {
		return
	}
	e := tr.Find(epoch)
	switch {
	case e == nil:
	case string(v.key) == "eval_accuracy" && x >= 0 && x <= 1:
		e.ValAccuracy = x
	case string(v.key) == "eval_loss":
		e.ValLoss = x
	}
}

// statsStep returns the step of a line of tracked_stats.
func (v mlperfLine) statsStep(epoch int) int64 {
	if v.step >= 0 && v.step < 1<<53 {
		return int64(v.step)
	}
	return int64(epoch)
}

// mlperfStats reads a line of tracked_stats.
func (t *textLog) mlperfStats(v mlperfLine, epoch int) {
	step := v.statsStep(epoch)
	stats := scan.Object{Text: v.value}
	for {
		key, value, more := stats.Next()
		if !more {
			break
		}
		if x, ok := scan.JSONFloat(value); ok && len(key) <= 100 {
			t.point(key, -1, step, x, v.time/1000)
		}
	}
	if stats.Bad {
		t.in.Problem(t.l.Number, "MLLOG tracked_stats: expected an object, got %.40q", v.value)
	}
}

// mlperfSetting reads a setting of the run.
func (t *textLog) mlperfSetting(v mlperfLine) verdict {
	info := &t.cur.run.Info
	key := string(v.key)
	x, ok := scan.JSONFloat(v.value)
	if !ok {
		if text := scan.Unquote(v.value); len(text) < len(v.value) && len(text) <= 200 {
			t.set(key, string(text))
			if key == "submission_benchmark" {
				info.Series = string(text)
			}
		}
		return used
	}
	t.set(key, x)
	switch {
	case key == "seed" && x >= 0 && x < 1<<53:
		info.Seed, t.cur.seedKnown = int64(x), true
	case !record.IsCount(x):
	case key == "global_batch_size":
		info.GlobalBatch = int(x)
	case key == "train_samples":
		info.SamplesPerEpoch = int(x)
	case key == "number_of_ranks":
		info.Workers = int(x)
	}
	return used
}

// finishMLPerf computes the time to train and reads whether the target was
// reached.
func (r *textRun) finishMLPerf(report *record.Report) {
	s := r.mlperf
	if s.label == 0 {
		return
	}
	info := &r.run.Info
	switch {
	case s.start == 0 || s.stop == 0:
		report.Problem(r.line, "MLLOG: run_start and run_stop do not both stand there; the time to train is not known")
		if s.start > 0 {
			info.Status, info.Error = runs.StatusFailed, "MLLOG: the run did not stop by itself (no run_stop)"
		}
	case s.stop <= s.start:
		report.Problem(r.line, "MLLOG: run_stop is %g s before run_start: the clock was set; the time to train is not used", (s.start-s.stop)/1000)
	default:
		if info.Config == nil {
			info.Config = map[string]any{}
		}
		info.Config[record.TrainingSeconds] = (s.stop - s.start) / 1000
	}
	if s.result != "" && !strings.EqualFold(s.result, "success") {
		info.Status, info.Error = runs.StatusFailed, fmt.Sprintf("MLLOG: run_stop says %.100q", s.result)
	} else if s.result != "" {
		info.Status = runs.StatusDone
	}
	nodes, okNodes := record.ConfigNumber(info.Config, "number_of_nodes")
	perNode, okPer := record.ConfigNumber(info.Config, "accelerators_per_node")
	if info.Workers == 0 && okNodes && okPer && record.IsCount(nodes*perNode) {
		info.Workers, info.Nodes = int(nodes*perNode), int(nodes)
	}
}
