package logline

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// FormatID identifies a format of lines. The kind of a run is the format that most of its lines
// have, or the last of several such formats. Commands have the lowest ID, because they determine
// the kind only of a run that has no other lines.
type FormatID int

// The formats. A format that consists only of templates needs no constant.
const (
	Command FormatID = iota
	Slurm
	BashTime
	GNUTime
	ZshTime
	Seff
	NCCLTests
	OSU
	Torchrun
	OutOfMemory
	Study
	Rates
	Titan
	Horovod
	Benchy
	DLLogger
	MLPerf
	Keras
	SC21
	Tqdm
	Lightning
	ImageNet
	Torchvision
	Timm
	NNUNet
	TFCNN
	NanoGPT
	DeepSpeed
	Megatron
	HuggingFace
)

// Special format IDs, which do not belong to a program.
const (
	// MaxFormats is larger than the number of formats. Formats without a constant follow HuggingFace.
	MaxFormats = 48
	// UserTemplates is the format of the lines of the user's templates.
	UserTemplates FormatID = MaxFormats - 1
	// NoBlock is the format outside of blocks: commands have none.
	NoBlock = Command
)

// Format describes the lines of one program.
type Format struct {
	Name  string // value of runs.Run.Kind for runs of this format
	Rules []Rule
	// Templates describe further lines. They are tried after the Rules with a prefix.
	// textlog/templatevalues.go stores their values.
	Templates []string
	// Applies, if not nil, reports whether the Templates may match the current line.
	Applies func(log *Log) bool
	// CountsFromZero is set if the number of the first epoch is 0.
	CountsFromZero bool
	// Anywhere, if not nil, reads a line that no rule recognizes by its beginning.
	Anywhere func(log *Log, m []byte) Result
	// EndsWithValue, if not nil, reports whether line m, whose beginning no rule recognizes, ends
	// with a number; see Rule.EndsWithValue.
	EndsWithValue func(m []byte) bool
	// ReadInBlock, if not nil, reads a line in a block: lines whose meaning depends on the block's
	// first line. The function that reads the first line sets Log.Block.
	ReadInBlock func(log *Log, m []byte) Result
	// NotInBlock lists the formats whose lines with a prefix ReadInBlock does not get.
	NotInBlock []FormatID
	// BlockIsTable is set if each line of a block ends with a number.
	BlockIsTable bool
	// Finish, if not nil, is called at the end of each run of a file.
	Finish func(r *Run, report *record.Report)
}

// Rule describes how to read lines with a certain beginning. Labels of launchers and loggers have
// already been removed from the lines.
type Rule struct {
	// Prefix is the beginning of the line. It may be empty if Templates are set. If it is empty,
	// First lists the possible first bytes of the line. Rules without a prefix are tried last.
	Prefix, First string
	// Read reads line m. It returns Unknown if another program printed the line, which only begins
	// in the same way.
	Read func(log *Log, m []byte) Result
	// Templates, instead of Read, describe the complete line (package template). Use stores the
	// values of the first one that matches, in the order of its fields. A line with the prefix that
	// no template matches is reported as damaged, unless MayBeOther is set.
	Templates  []string
	Use        func(log *Log, v []template.Value) Result
	MayBeOther bool // programs of other formats print lines that begin in the same way
	// EndsWithValue is set if the line ends with a number, so that it is reported as torn at the
	// end of a file without line end. It need not be set if a template ends with a number.
	EndsWithValue bool

	compiled []*template.Template // of Templates
}

// Compile parses the templates of the rule before the first ReadLine.
func (r *Rule) Compile() {
	for i, text := range r.Templates {
		t := template.MustParse(text)
		r.compiled, r.EndsWithValue = append(r.compiled, t), r.EndsWithValue || t.EndsWithNumber()
		if i == 0 {
			r.Prefix = text
		}
		for !strings.HasPrefix(text, r.Prefix) || strings.ContainsAny(r.Prefix, "{*") {
			r.Prefix = r.Prefix[:len(r.Prefix)-1]
		}
	}
}

// WorkersRule returns a rule for a line with the number of workers that a program prints before its
// values. The templates describe the line. also, if not nil, is then called with the run.
func WorkersRule(also func(*Run), templates ...string) Rule {
	return Rule{Templates: templates, MayBeOther: true, Use: func(log *Log, v []template.Value) Result {
		if !record.IsPlausibleCount(v[0].Number) {
			return Unknown
		}
		run := log.BeginHeader()
		run.Run.Info.Workers = int(v[0].Number)
		if also != nil {
			also(run)
		}
		return Used
	}}
}

// ReadLine reads line m, which begins with the prefix of the rule.
func (r *Rule) ReadLine(log *Log, m []byte) Result {
	if r.Read != nil {
		return r.Read(log, m)
	}
	for _, tmpl := range r.compiled {
		values := log.ValueBuffer(tmpl)
		if !tmpl.Match(m, values) {
			continue
		}
		if !log.Lines.Ended && IsTornLine(m, values) {
			return log.Refuse("last line is torn: %.80q", m)
		}
		return r.Use(log, values)
	}
	if r.MayBeOther {
		return Unknown
	}
	return log.Refuse("expected %s, got %.80q", r.describeExpected(), m)
}

func (r *Rule) describeExpected() string {
	var quoted []string
	for _, text := range r.Templates {
		quoted = append(quoted, fmt.Sprintf("%q", text))
	}
	return strings.Join(quoted, " or ")
}

// ValueBuffer returns a slice for the values of a template's fields. The slice is reused for the
// next line.
func (log *Log) ValueBuffer(tmpl *template.Template) []template.Value {
	n := len(tmpl.Fields())
	if len(log.values) < n {
		log.values = make([]template.Value, n)
	}
	return log.values[:n]
}

// IsTornLine reports whether the last line of a file, which has no line end, may end with an incomplete value.
func IsTornLine(m []byte, values []template.Value) bool {
	end := m[len(m)-1]
	if !scan.IsDigit(end) && !scan.IsLetter(end) && end != '.' {
		return false
	}
	return slices.ContainsFunc(values, func(v template.Value) bool { return v.To == len(m) })
}
