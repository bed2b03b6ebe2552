package textlog

import (
	"context"
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/record"
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
	// notInBlock lists the formats whose lines, which a prefix identifies, are not read by readInBlock.
	notInBlock []formatID
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
	more func(ctx context.Context, t *textLog, r *lineRule)
	// endsWithValue is set if the line ends with a number. If the last line of
	// a file does so but has no line end, it is reported as torn.
	endsWithValue bool

	compiled []*template.Template // of templates
}

// compile parses the templates of the rule, which must be done before the rule reads a line.
func (r *lineRule) compile() {
	for _, text := range r.templates {
		r.compiled = append(r.compiled, template.MustParse(text))
	}
}

// readLine reads line m, which begins with the prefix of the rule.
func (r *lineRule) readLine(t *textLog, m []byte) lineResult {
	if r.read != nil {
		return r.read(t, m)
	}
	for _, tmpl := range r.compiled {
		values := t.valuesOf(tmpl)
		if !tmpl.Match(m, values) {
			continue
		}
		if !t.l.Ended && isTorn(m, values) {
			t.in.AddProblem(t.l.Number, "last line is torn: %.80q", m)
			return unused
		}
		return r.use(t, values)
	}
	if r.mayBeOther {
		return unknown
	}
	t.in.AddProblem(t.l.Number, "expected %s, got %.80q", r.expected(), m)
	return unused
}

// expected returns the templates of the rule, for messages.
func (r *lineRule) expected() string {
	var quoted []string
	for _, text := range r.templates {
		quoted = append(quoted, fmt.Sprintf("%q", text))
	}
	return strings.Join(quoted, " or ")
}
