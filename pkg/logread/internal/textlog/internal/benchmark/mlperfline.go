package benchmark

import (
	"math"

	"lockstep/pkg/logread/internal/scan"
)

// mlperfLine contains the members of a line's JSON document. A missing value is
// NaN or empty.
type mlperfLine struct {
	time               float64 // ms
	key, value, status []byte
	epoch, step, count float64
	epochs             float64 // number of epochs in a block
}

// parseMLPerf parses the JSON document of a line. It stops at the member "key"
// if lines with this key are not used. ok is false if the document is malformed
// or has no key or time.
func parseMLPerf(text []byte) (v mlperfLine, ok bool) {
	v = mlperfLine{time: math.NaN(), epoch: math.NaN(), step: math.NaN(), count: math.NaN(), epochs: math.NaN()}
	doc := scan.ObjectIterator{Text: text}
	for key, value := range doc.Members() {
		switch string(key) {
		case "time_ms":
			v.time, _ = scan.ParseJSONFloat(value)
		case "key":
			if v.key = scan.Unquote(value); !isUsedMLPerfKey(v.key) {
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
			v.status = scan.Unquote(value)
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

// epochNumber returns the epoch in a line's metadata. ok is false if it is
// missing or not an integer.
func epochNumber(v mlperfLine) (n int, ok bool) {
	if e := v.epoch; e >= 0 && e < 1<<31 && e == float64(int(e)) {
		return int(e), true
	}
	return 0, false
}

// evaluationStep returns the step of an evaluation in its curve: the epoch, or
// the number of samples if the line has no epoch.
func (v mlperfLine) evaluationStep() int64 {
	epoch, ok := epochNumber(v)
	if !ok && v.count >= 0 && v.count < 1<<53 {
		return int64(v.count)
	}
	return int64(epoch)
}

// stepOrEpoch returns the step of a tracked_stats line: the step in its
// metadata, or epoch if the metadata contains no step.
func (v mlperfLine) stepOrEpoch(epoch int) int64 {
	if v.step >= 0 && v.step < 1<<53 {
		return int64(v.step)
	}
	return int64(epoch)
}
