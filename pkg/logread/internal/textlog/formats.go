package textlog

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// formatID identifies a format of lines. The format with the most lines of a
// run determines the run's kind. If several formats have equally many lines,
// the last of them does. Commands come first, because they count only if the
// run has no lines of another format.
type formatID int

const (
	formatCommand formatID = iota
	formatSlurm
	formatBash
	formatGNUTime
	formatZshTime
	formatSeff
	formatNCCL
	formatOSU
	formatFailure
	formatMemory
	formatStudy
	formatRates
	formatTitan
	formatHorovod
	formatBenchy
	formatDLL
	formatMLPerf
	formatKeras
	formatSC21
	formatTqdm
	formatLightning
	formatImageNet
	formatTorchvision
	formatTimm
	formatNNUNet
	formatTFCNN
	formatNanoGPT
	formatDeepSpeed
	formatMegatron
	formatHuggingFace
)

const (
	// maxFormats is larger than the number of formats: those of the table that need no constant follow
	// formatHuggingFace.
	maxFormats = 48
	// formatLines is the format of lines that the templates of the user describe.
	formatLines formatID = maxFormats - 1
	// noBlock is the format of a block outside of blocks: commands have none.
	noBlock = formatCommand
)

// format describes the lines of one program.
type format struct {
	name  string // value of runs.Run.Kind for runs of this format
	lines []lineRule
	// templates describe further lines, whose values templatevalues.go adds to
	// the run. They are tried after the lines with a prefix.
	templates []string
	// applies reports whether the templates may match the current line. It is nil
	// if they always may.
	applies func(t *textLog) bool
	// countsFromZero is set if the number of the first epoch is 0.
	countsFromZero bool
	// anywhere reads a line that no rule recognizes by its beginning. It is nil if
	// the format has no such lines.
	anywhere func(t *textLog, m []byte) lineResult
	// endsWithValue reports whether a line, whose beginning no rule knows, ends
	// with a value; see lineRule.endsWithValue. It may be nil.
	endsWithValue func(m []byte) bool
	// readInBlock reads a line in a block, a group of lines whose meaning depends on its first line.
	// The function that reads the first line sets textLog.block. It is nil if the format has no blocks.
	readInBlock func(t *textLog, m []byte) lineResult
	// blockIsTable is set if each line of a block ends with a number.
	blockIsTable bool
	// finish is called at the end of each run of a file. It is nil if the
	// format needs no such call.
	finish func(r *textRun, report *record.Report)
}

// lineRule recognizes lines by their beginning, after labels were removed, and
// reads them.
type lineRule struct {
	// prefix is the text with which the line begins. If it is empty, first
	// lists the possible first bytes of the line; such rules are tried after
	// those with a prefix.
	prefix, first string
	// read reads the line m. It may return unknown, since programs of other
	// formats may print lines that begin in the same way.
	read func(t *textLog, m []byte) lineResult
	// templates describe the complete line, instead of read (package template).
	// use stores the values of the first one that matches, in the order of its
	// fields. A line with the prefix that no template matches is damaged and is
	// reported, unless mayBeOther is set.
	templates  []string
	use        func(t *textLog, v []template.Value) lineResult
	mayBeOther bool // programs of other formats print lines that begin in the same way
	// more reads the similar lines that follow a line of this rule, at a higher
	// speed, or is nil.
	more func(ctx context.Context, t *textLog, r *indexedRule)
	// endsWithValue is set if the line ends with a number. If the last line of
	// a file does so but has no line end, it is reported as torn.
	endsWithValue bool
}

// formats returns all formats. To add a format, add one entry here and a file
// with its functions.
func formats() [maxFormats]format {
	return [maxFormats]format{
		formatCommand: {name: "command", lines: append(worldRules(),
			lineRule{first: "rusp+$mhtda", read: (*textLog).readCommand},
		)},
		formatSlurm: {name: "Slurm", lines: []lineRule{
			{prefix: "slurmstepd: ", read: (*textLog).readSlurmCancel},
		}},
		formatBash: {name: "bash time", lines: []lineRule{
			{prefix: "real", read: (*textLog).readBashRealTime},
			{prefix: "user", read: (*textLog).readBashCPUTime},
			{prefix: "sys", read: (*textLog).readBashCPUTime},
		}},
		formatGNUTime: {name: "GNU time", readInBlock: (*textLog).readGNUTimeLine, lines: []lineRule{
			{prefix: "Command being timed: ", read: (*textLog).readGNUTimeCommand},
			{prefix: "Elapsed (wall clock) time ", read: (*textLog).readGNUTimeElapsed, endsWithValue: true},
			{prefix: "Command exited with non-zero status ", read: (*textLog).readGNUTimeFailure},
			{prefix: "Command terminated by signal ", read: (*textLog).readGNUTimeFailure},
		}},
		// The lines of zsh begin with any command.
		formatZshTime: {name: "zsh time", anywhere: (*textLog).readTimeWithinLine, endsWithValue: isZshTime},
		formatSeff: {name: seffKind, readInBlock: (*textLog).readSeffLine, lines: []lineRule{
			{prefix: "Job ID: ", read: (*textLog).readSeffJob},
			{prefix: "Job Wall-clock time: ", read: (*textLog).readSeffLine, endsWithValue: true},
		}},
		formatNCCL: {name: "nccl-tests", readInBlock: (*textLog).readNCCLLine, blockIsTable: true, finish: (*textRun).finishNCCL, lines: []lineRule{
			{prefix: "# Collective test starting: ", read: (*textLog).readNCCLTest},
			{prefix: "# nThread ", read: (*textLog).readNCCLSettings},
		}},
		formatOSU: {name: "OSU micro-benchmarks", readInBlock: (*textLog).readOSULine, blockIsTable: true, lines: []lineRule{
			{prefix: "# OSU ", read: (*textLog).readOSUTitle},
		}},
		formatFailure: {name: "torchrun failure", readInBlock: (*textLog).readFailureLine, lines: []lineRule{
			{prefix: "Root Cause", read: (*textLog).readRootCause},
		}},
		formatMemory: {name: "out of memory", anywhere: (*textLog).readOutOfMemory},
		formatStudy: {name: "U-Net study stdout", readInBlock: (*textLog).readStudySetting, lines: []lineRule{
			{prefix: "[INFO] EPOCH: ", read: (*textLog).readStudyEpoch},
			{prefix: "Train loss: ", read: (*textLog).readStudyLoss, endsWithValue: true},
			{prefix: "Test loss: ", read: (*textLog).readStudyLoss, endsWithValue: true},
			{prefix: "IOU on test: ", read: (*textLog).readStudyIoU, endsWithValue: true},
			{prefix: "Elapsed execution time: ", read: (*textLog).readStudyElapsed},
			{prefix: "PyTorch Settings:", read: (*textLog).readStudySettings},
			{prefix: "TensorFlow Settings:", read: (*textLog).readStudySettings},
		}},
		formatRates: {name: "rates by rank", lines: []lineRule{
			{
				prefix: "Train samples ", use: (*textLog).addRate, more: readSimilarLines, endsWithValue: true,
				templates: []string{"Train samples {samples} time {seconds}s rate {samples_per_second} samples/s"},
			},
		}},
		formatTitan: {name: "torchtitan", lines: []lineRule{
			{prefix: "step:", read: (*textLog).readTitanStep, endsWithValue: true},
			{first: "\x1b", read: (*textLog).readColoredLine},
		}},
		formatHorovod: {name: "Horovod synthetic", finish: (*textRun).finishHorovod, lines: []lineRule{
			{prefix: "Model: ", read: (*textLog).readHorovodSetting},
			{prefix: "Batch size: ", read: (*textLog).readHorovodSetting},
			{prefix: "Number of GPUs: ", read: (*textLog).readHorovodSetting},
			{
				prefix: "Iter #", use: (*textLog).addHorovodIteration, more: readSimilarLines, endsWithValue: true,
				templates: []string{"Iter #{step}: {samples_per_second} img/sec per GPU", "Iter #{step}: {samples_per_second} img/sec per *"},
			},
			{
				prefix: "Img/sec per ", use: (*textLog).setHorovodMean, endsWithValue: true,
				templates: []string{"Img/sec per *: {samples_per_second} +-{interval}"},
			},
			{
				prefix: "Total img/sec on ", use: (*textLog).setHorovodTotal, endsWithValue: true,
				templates: []string{"Total img/sec on {workers} *: {samples_per_second} +-{interval}"},
			},
		}},
		formatBenchy: {name: "benchy", lines: []lineRule{
			{prefix: "BENCHY::", read: (*textLog).readBenchy, endsWithValue: true},
		}},
		formatDLL: {name: "DLLogger", lines: []lineRule{
			{prefix: "DLLL ", read: (*textLog).readDLLogger},
		}},
		formatMLPerf: {name: "MLPerf log", finish: (*textRun).finishMLPerf, lines: []lineRule{
			{prefix: ":::MLLOG ", read: (*textLog).readMLPerf},
		}},
		formatKeras: {name: "Keras log", finish: (*textRun).finishKeras, endsWithValue: containsKerasLoss, lines: []lineRule{
			{
				prefix: "Epoch ", use: (*textLog).beginKerasEpoch, mayBeOther: true, more: readKerasLines, endsWithValue: true,
				templates: []string{kerasEpochLine},
			},
			{first: "-", read: (*textLog).readKerasDashLine, more: readKerasLines},
			{first: "0123456789", read: (*textLog).readKerasSummary, more: readKerasLines},
		}},
		formatSC21: {name: "SC21 log", readInBlock: (*textLog).readSC21Setting, lines: []lineRule{
			{
				prefix: "Time taken for epoch ", use: (*textLog).addSC21Epoch, more: readEpochLines, endsWithValue: true,
				templates: []string{sc21EpochLine, "Time taken for epoch {epoch} is {seconds} sec"},
			},
			{
				prefix: "Avg train loss=", use: (*textLog).setSC21TrainLoss, more: readEpochLines, endsWithValue: true,
				templates: []string{sc21TrainLossLine},
			},
			{
				prefix: "Avg val loss=", use: (*textLog).setSC21ValLoss, more: readEpochLines, endsWithValue: true,
				templates: []string{sc21ValLossLine},
			},
			{
				prefix: "Total validation time: ", use: (*textLog).setSC21ValSeconds, more: readEpochLines,
				templates: []string{sc21ValSecondsLine},
			},
			{prefix: "Configuration name: ", read: (*textLog).readSC21Name},
			{prefix: "DONE ---- rank ", read: (*textLog).readSC21Done},
		}},
		// Bars have any text before them.
		formatTqdm:      {name: "tqdm bars", anywhere: (*textLog).readBar},
		formatLightning: {name: "Lightning bars", countsFromZero: true, lines: lightningRules()},
		formatImageNet: {name: "PyTorch ImageNet example", countsFromZero: true, finish: (*textRun).finishMeters, lines: []lineRule{
			{prefix: "Epoch: [", read: (*textLog).readMeterEpoch, endsWithValue: true},
			{prefix: "Test:", read: (*textLog).readMeterTest, endsWithValue: true},
			{prefix: "* ", read: (*textLog).readMeterSummary, endsWithValue: true},
			{prefix: "=> creating model '", read: (*textLog).readImageNetModel},
			{prefix: "=> using pre-trained model '", read: (*textLog).readImageNetModel},
		}},
		formatTorchvision: {name: "torchvision reference", countsFromZero: true, lines: []lineRule{
			{prefix: "| distributed init (rank ", read: (*textLog).readDistributedInit},
			{prefix: "Namespace(", read: (*textLog).readNamespace},
		}},
		formatTimm: {name: "timm", countsFromZero: true, lines: []lineRule{
			{prefix: "Train: ", read: (*textLog).readTimmTrain, endsWithValue: true},
			{prefix: "Training ", read: (*textLog).readTimmMode},
		}},
		formatNNUNet: {name: "nnU-Net", countsFromZero: true, templates: nnUNetTemplates(), applies: (*textLog).isNNUNetLine, lines: []lineRule{
			{prefix: "Pseudo dice ", read: (*textLog).readNNUNetDice},
			{prefix: "Average global foreground Dice: ", read: (*textLog).readNNUNetDice},
			{prefix: "I am local rank ", read: (*textLog).readNNUNetRank},
		}},
		formatTFCNN: {name: "tf_cnn_benchmarks", finish: (*textRun).finishTFCNN, lines: []lineRule{
			{prefix: "TensorFlow:  ", read: (*textLog).readTFCNNHeader},
			{prefix: "Model: ", read: (*textLog).readTFCNNModel},
			{prefix: "Dataset: ", read: (*textLog).readTFCNNModel},
			{prefix: "Batch size: ", read: (*textLog).readTFCNNBatch},
			{prefix: "total images/sec: ", read: (*textLog).readTFCNNTotal, endsWithValue: true},
			{first: "123456789", read: (*textLog).readTFCNNStep},
		}},
		formatNanoGPT: {name: "nanoGPT", templates: nanoGPTTemplates(), finish: (*textRun).finishNanoGPT, lines: []lineRule{
			{prefix: "tokens per iteration will be: ", read: (*textLog).readNanoGPTTokens, endsWithValue: true},
		}},
		formatDeepSpeed: {name: "DeepSpeed", templates: deepSpeedTemplates(), lines: []lineRule{
			{prefix: "dist_world_size=", read: (*textLog).readDeepSpeedWorldSize, endsWithValue: true},
			{prefix: "Discovered MPI settings of world_rank=", read: (*textLog).readDeepSpeedWorldSize},
		}},
		formatMegatron: {name: "Megatron-LM", lines: []lineRule{
			{prefix: "using world size: ", read: (*textLog).readMegatronWorldSize},
			{prefix: "iteration ", read: (*textLog).readMegatronIteration},
			{prefix: "validation loss at ", read: (*textLog).readMegatronValidation},
		}},
		formatHuggingFace: {name: "Hugging Face Trainer", finish: (*textRun).finishHuggingFace, lines: huggingFaceRules()},
		// Lines that match a template of the user.
		formatLines: {name: "lines"},
	}
}

// FormatNames returns the names of the formats whose lines are recognized. Commands and messages
// that memory ran out are read beside lines of other formats, so they are not listed.
func FormatNames() []string {
	var names []string
	for id, f := range sharedFormatIndex().formats {
		if id := formatID(id); f.name != "" && id != formatCommand && id != formatMemory && id != formatLines {
			names = append(names, f.name)
		}
	}
	return names
}

// String returns the name of the format.
func (f formatID) String() string { return sharedFormatIndex().formats[f].name }

// formatIndex contains what is known about the lines of all formats.
type formatIndex struct {
	formats  [maxFormats]format
	byFirst  [256][]indexedRule                      // rules by the first byte of the line
	anywhere []func(t *textLog, m []byte) lineResult // format.anywhere
	ends     []func(m []byte) bool                   // format.endsWithValue
}

// indexedRule is a rule with the first bytes of its prefix as a word, for fast
// comparison.
type indexedRule struct {
	lineRule
	word, mask uint64
	compiled   []*template.Template // of templates
	format     formatID
}

// newIndexedRule returns rule r of a format with up to 8 bytes of its prefix in a machine word,
// and the mask of these bytes.
func newIndexedRule(name formatID, r lineRule) indexedRule {
	x := indexedRule{lineRule: r, format: name}
	for _, text := range r.templates {
		x.compiled = append(x.compiled, template.MustParse(text))
	}
	for i := range min(len(r.prefix), 8) {
		x.word |= uint64(r.prefix[i]) << (8 * i)
		x.mask |= 0xff << (8 * i)
	}
	return x
}

// matches reports whether m begins with the prefix of the rule.
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

// sharedFormatIndex returns the index of all formats, which is built only once.
var sharedFormatIndex = sync.OnceValue(newFormatIndex)

// newFormatIndex builds the index of all formats.
func newFormatIndex() *formatIndex {
	x := formatIndex{formats: formats()}
	for name, f := range x.formats {
		for _, r := range f.lines {
			if r.prefix != "" {
				x.byFirst[r.prefix[0]] = append(x.byFirst[r.prefix[0]], newIndexedRule(formatID(name), r))
			}
		}
	}
	x.addTemplates()
	for name, f := range x.formats {
		for _, r := range f.lines {
			for _, c := range []byte(r.first) {
				x.byFirst[c] = append(x.byFirst[c], newIndexedRule(formatID(name), r))
			}
		}
	}
	for _, f := range x.formats {
		if f.anywhere != nil {
			x.anywhere = append(x.anywhere, f.anywhere)
		}
		if f.endsWithValue != nil {
			x.ends = append(x.ends, f.endsWithValue)
		}
	}
	return &x
}

// addTemplates adds the templates of all formats.
func (x *formatIndex) addTemplates() {
	id := 0
	for name, f := range x.formats {
		for _, text := range f.templates {
			described := newTemplateRule(template.MustParse(text), id, formatID(name))
			described.numbered = slices.ContainsFunc(f.templates, func(text string) bool { return strings.Contains(text, "{"+template.Epoch+"}") })
			r := described.lineRule()
			id++
			if read := r.read; f.applies != nil {
				r.read = func(t *textLog, m []byte) lineResult {
					if !f.applies(t) {
						return unknown
					}
					return read(t, m)
				}
			}
			if r.prefix != "" {
				x.byFirst[r.prefix[0]] = append(x.byFirst[r.prefix[0]], newIndexedRule(formatID(name), r))
				continue
			}
			for c := range x.byFirst {
				x.byFirst[c] = append(x.byFirst[c], newIndexedRule(formatID(name), r))
			}
		}
	}
}

// applyRule applies the first rule with the beginning of line m that can read it,
// or else the first format whose lines have any beginning. It returns unknown if
// none can.
func (x *formatIndex) applyRule(t *textLog, m []byte) lineResult {
	rules := x.byFirst[m[0]]
	for i := range rules {
		if r := &rules[i]; r.matches(m) {
			if v := r.readLine(t, m); v != unknown {
				if v == used {
					t.last = r
				}
				return v
			}
		}
	}
	for _, read := range x.anywhere {
		if v := read(t, m); v != unknown {
			return v
		}
	}
	return unknown
}

// hasPrefixOf reports whether line m begins with a prefix of the given format.
func (x *formatIndex) hasPrefixOf(m []byte, name formatID) bool {
	rules := x.byFirst[m[0]]
	for i := range rules {
		if r := &rules[i]; r.format == name && r.prefix != "" && r.matches(m) {
			return true
		}
	}
	return false
}

// endsWithValue reports whether a line ends with a value, judging by its
// beginning.
func (x *formatIndex) endsWithValue(m []byte) bool {
	for _, r := range x.byFirst[m[0]] {
		if r.endsWithValue && r.matches(m) {
			return true
		}
	}
	return slices.ContainsFunc(x.ends, func(ends func(m []byte) bool) bool { return ends(m) })
}
