package textlog

import (
	"bytes"
	"encoding/binary"
	"sync"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// form numbers the formats of lines. If two formats have equally many lines in a
// run, the later one gives the run its kind; commands come first, since any other
// format does.
type form int

const (
	formCommand form = iota
	formSlurm
	formBash
	formFailure
	formMemory
	formStudy
	formRates
	formTitan
	formHorovod
	formBenchy
	formDLL
	formMLPerf
	formKeras
	formSC21
	formCount
)

// format describes one format of lines.
type format struct {
	name  string // as runs.Run.Kind has it
	lines []lineRule
	// finish is called at the end of each run that the file describes; nil if the
	// format needs no such call.
	finish func(r *textRun, report *record.Report)
}

// lineRule recognizes a line by how it begins, after its labels, and reads it.
type lineRule struct {
	// prefix is how the line begins. If it is empty, first lists the bytes with
	// which the line may begin; rules with a prefix are tried before.
	prefix, first string
	// read takes the values of the line. It may return unknown: programs of other
	// formats print lines that begin alike.
	read func(t *textLog, m []byte) verdict
	// values: the line ends with a number that counts, so that a last line without
	// its end is reported as torn.
	values bool
}

// formats is the table of all formats. A new format is one more entry, and a file
// with its functions.
func formats() [formCount]format {
	return [formCount]format{
		formCommand: {name: "command", lines: []lineRule{
			{first: "rusp+$mhtda", read: (*textLog).command},
		}},
		formSlurm: {name: "Slurm", lines: []lineRule{
			{prefix: "slurmstepd: ", read: (*textLog).slurmCancel},
		}},
		formBash: {name: "bash time", lines: []lineRule{
			{prefix: "real", read: (*textLog).bashReal},
			{prefix: "user", read: (*textLog).bashOther},
			{prefix: "sys", read: (*textLog).bashOther},
		}},
		formFailure: {name: "torchrun failure", lines: []lineRule{
			{prefix: "Root Cause", read: (*textLog).rootCause},
		}},
		// Messages about memory are looked for in lines that no rule recognizes.
		formMemory: {name: "out of memory"},
		formStudy: {name: "U-Net study stdout", lines: []lineRule{
			{prefix: "[INFO] EPOCH: ", read: (*textLog).studyEpoch},
			{prefix: "Train loss: ", read: (*textLog).studyLoss, values: true},
			{prefix: "Test loss: ", read: (*textLog).studyLoss, values: true},
			{prefix: "IOU on test: ", read: (*textLog).studyIoU, values: true},
			{prefix: "Elapsed execution time: ", read: (*textLog).studyElapsed},
			{prefix: "PyTorch Settings:", read: (*textLog).studySettings},
			{prefix: "TensorFlow Settings:", read: (*textLog).studySettings},
		}},
		formRates: {name: "rates by rank", lines: []lineRule{
			{prefix: "Train samples ", read: (*textLog).rate, values: true},
		}},
		formTitan: {name: "torchtitan", lines: []lineRule{
			{prefix: "step:", read: (*textLog).titan, values: true},
			{first: "\x1b", read: (*textLog).colored},
		}},
		formHorovod: {name: "Horovod synthetic", finish: (*textRun).finishHorovod, lines: []lineRule{
			{prefix: "Model: ", read: (*textLog).horovodSetting},
			{prefix: "Batch size: ", read: (*textLog).horovodSetting},
			{prefix: "Number of GPUs: ", read: (*textLog).horovodSetting},
			{prefix: "Iter #", read: (*textLog).horovodRate, values: true},
			{prefix: "Img/sec per ", read: (*textLog).horovodRate, values: true},
			{prefix: "Total img/sec on ", read: (*textLog).horovodTotal, values: true},
		}},
		formBenchy: {name: "benchy", lines: []lineRule{
			{prefix: "BENCHY::", read: (*textLog).benchy, values: true},
		}},
		formDLL: {name: "DLLogger", lines: []lineRule{
			{prefix: "DLLL ", read: (*textLog).dllogger},
		}},
		formMLPerf: {name: "MLPerf log", finish: (*textRun).finishMLPerf, lines: []lineRule{
			{prefix: ":::MLLOG ", read: (*textLog).mlperf},
		}},
		formKeras: {name: "Keras log", finish: (*textRun).finishKeras, lines: []lineRule{
			{prefix: "Epoch ", read: (*textLog).kerasEpoch, values: true},
			{first: "-", read: (*textLog).kerasDash},
			{first: "0123456789", read: (*textLog).kerasSummary},
		}},
		formSC21: {name: "SC21 log", lines: []lineRule{
			{prefix: "Time taken for epoch ", read: (*textLog).sc21Epoch, values: true},
			{prefix: "Avg train loss=", read: (*textLog).sc21Loss, values: true},
			{prefix: "Avg val loss=", read: (*textLog).sc21Loss, values: true},
			{prefix: "Total validation time: ", read: (*textLog).sc21Validation},
			{prefix: "Configuration name: ", read: (*textLog).sc21Name},
			{prefix: "DONE ---- rank ", read: (*textLog).sc21Done},
		}},
	}
}

// String returns the name of the format.
func (f form) String() string { return formats()[f].name }

// formatIndex holds the rules of all formats by the first byte of the line.
type formatIndex [256][]indexedRule

// indexedRule is a rule with the first bytes of its prefix as a word, since every
// line is compared with the rules.
type indexedRule struct {
	lineRule
	word, mask uint64
}

func newIndexedRule(r lineRule) indexedRule {
	x := indexedRule{lineRule: r}
	for i := range min(len(r.prefix), 8) {
		x.word |= uint64(r.prefix[i]) << (8 * i)
		x.mask |= 0xff << (8 * i)
	}
	return x
}

// matches reports whether m begins with the prefix.
func (r *indexedRule) matches(m []byte) bool {
	w := m[:cap(m)]
	if len(w) < 8 {
		return scan.HasPrefix(m, r.prefix)
	}
	if (binary.LittleEndian.Uint64(w)^r.word)&r.mask != 0 || len(m) < len(r.prefix) {
		return false
	}
	return len(r.prefix) <= 8 || string(m[8:len(r.prefix)]) == r.prefix[8:]
}

// sharedIndex returns the index, which is built once and not changed.
var sharedIndex = sync.OnceValue(newFormatIndex)

func newFormatIndex() *formatIndex {
	var x formatIndex
	for _, f := range formats() {
		for _, r := range f.lines {
			if r.prefix != "" {
				x[r.prefix[0]] = append(x[r.prefix[0]], newIndexedRule(r))
			}
		}
	}
	for _, f := range formats() {
		for _, r := range f.lines {
			for _, c := range []byte(r.first) {
				x[c] = append(x[c], newIndexedRule(r))
			}
		}
	}
	return &x
}

// read reads a line by the first rule that recognizes it. It returns unknown if
// none does.
func (x *formatIndex) read(t *textLog, m []byte) verdict {
	rules := x[m[0]]
	for i := range rules {
		if rules[i].matches(m) {
			return rules[i].read(t, m)
		}
	}
	return unknown
}

// holdValues reports whether a line, judged by how it begins, holds values.
func (x *formatIndex) holdValues(m []byte) bool {
	for _, r := range x[m[0]] {
		if r.values && r.matches(m) {
			return true
		}
	}
	return bytes.Contains(m, []byte("s - loss: ")) // of Keras, whose lines begin with any number
}
