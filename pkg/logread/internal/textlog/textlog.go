package textlog

import (
	"bytes"
	"context"
	"fmt"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// textLogKind is the name of this file format in reports. The kind of a run is
// the name of its lines' format.
const textLogKind = "text log"

// Format returns the format of text logs. It recognizes every text and examines
// every line, so it must be tried last.
func Format() record.Format {
	return record.Format{Name: textLogKind, Recognizes: isText, Read: readFile}
}

// isText reports whether head can be the beginning of a text: it is not
// empty and contains no NUL byte.
func isText(_ string, head []byte) bool {
	return len(head) > 0 && bytes.IndexByte(head, 0) < 0
}

// lineResult is the result of reading a line.
type lineResult int

const (
	unknown lineResult = iota // no format recognizes the line
	used                      // the values of the line are used
	idle                      // the line has a known format but contains no value
	unused                    // the line should contain a value, and a problem explains why it is not used
	pending                   // the line is counted as used or ignored at the end of the run
)

// The reasons for ignoring lines.
const (
	otherLine = "of unknown form"
	idleLine  = "of a known form without a value (settings, warm-up, headings)"
)

// textLog is the reader of one text log.
type textLog struct {
	in      *record.Input
	formats *formatIndex
	l       *scan.LineReader
	user    *userTemplates // nil if the user has given no templates
	cur     *textRun       // the current run
	runs    []*textRun     // the runs before it
	// Properties of the current line.
	rank  int    // rank in the label; -1 if the line has no label
	stamp []byte // time stamp; empty if the line has none
	// config contains settings outside of a run. They belong to the next run,
	// or to the last run if no run follows.
	config        map[string]any
	counts        [2]int64 // numbers of unknown and of idle lines
	firsts        [2]int   // number of the first unknown and the first idle line
	block         formatID // the format to whose block of lines the next line belongs; noBlock outside of blocks
	states        states   // what single formats have read of the log
	day           dayCache // date of the last time stamp
	heading       []byte   // the last "- name - LEVEL - "
	zoneReported  bool     // the report contains the assumed time zone
	nodesReported bool     // the report contains how the ranks of several nodes are numbered
	// last is the rule that has read the current line; nil if its values were
	// not used. The field epochParser reads lines of epochs, and the field ahead
	// later chunks of the file in advance.
	last        *indexedRule
	parsedBytes int64 // number of bytes that epochParser has parsed
	epochParser epochLineParser
	ahead       *readAheadState
	minChunk    int64 // minimum bytes of a chunk that is read ahead; 0 means minAheadBytes
	// Values of the current line, if a template matches it.
	values      []template.Value
	compared    int // number of lines that were compared with unused templates
	stampBuffer []byte
	// The current line, and the line before it, have a time stamp with microseconds and a colon.
	microStamp, afterMicroStamp bool
	shapes                      [maxFormats]*scan.ShapeCache // see shapesOf
}

// readFile reads a text log and returns its runs.
func readFile(ctx context.Context, in *record.Input) ([]*record.Part, error) {
	t := newTextLog(in)
	err := t.read(ctx)
	t.finishSeff() // counts the lines of its last job
	report := in.Report
	report.Lines = int64(t.l.Number)
	for i, reason := range []string{otherLine, idleLine} {
		if t.counts[i] > 0 {
			report.Ignored = append(report.Ignored, record.IgnoredLines{Reason: reason, Lines: t.counts[i], First: t.firsts[i]})
		}
	}
	if err != nil {
		return nil, err
	}
	parts := t.finish()
	if len(parts) == 0 && len(report.Unused) == 0 && !report.MatchesTemplate() {
		return nil, record.ErrUnknownFormat
	}
	return parts, nil
}

// newTextLog returns a reader of a text log.
func newTextLog(in *record.Input) *textLog {
	t := &textLog{in: in, l: scan.NewLineReader(in.Reader, in.Size), formats: sharedFormatIndex()}
	t.l.KeepLast = true
	t.l.Overwritten = func(text []byte) {
		t.rank, t.stamp = -1, nil
		t.l.Number++ // the line of the text, which is not complete yet
		t.readOverwritten(text)
		t.l.Number--
	}
	if t.user = newUserTemplates(in.Lines); t.user != nil {
		in.Report.Templates = make([]record.TemplateUse, len(in.Lines))
	}
	t.cur = t.newRun(1)
	return t
}

// read reads all lines.
func (t *textLog) read(ctx context.Context) error {
	defer func() { t.ahead.stop() }()
	for {
		line, ok := t.l.Next()
		if !ok && t.adoptChunks() {
			continue
		} else if !ok {
			break
		}
		if t.l.Number&0xffff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		t.parseLine(line)
		if t.user != nil { // the fast paths do not know the user's templates
			continue
		}
		if r := t.last; r != nil && r.more != nil {
			r.more(ctx, t, r)
		}
		t.last = nil
	}
	if t.l.Err != nil {
		return fmt.Errorf("read %s after line %d: %w", t.in.Path, t.l.Number, t.l.Err)
	}
	return nil
}

// parseLine reads a line of any form.
func (t *textLog) parseLine(line []byte) {
	if t.l.TooLong {
		t.in.AddProblem(t.l.Number, "line is longer than %d bytes", scan.MaxLine)
		return
	}
	t.rank, t.stamp = -1, nil
	t.microStamp, t.afterMicroStamp = false, t.microStamp
	overwritten := false
	if t.l.HasCR { // a progress bar has overwritten the line; the text after the last \r counts
		line, overwritten = t.cutOverwritten(line)
	}
	message := t.stripPrefix(line)
	if len(message) == 0 {
		t.countUnused(0)
		return
	}
	v := unknown
	if t.user != nil {
		v = t.readUserLine(line, message)
	}
	if v == unknown && !t.l.Ended && scan.IsDigit(message[len(message)-1]) {
		// The last number may be incomplete.
		if overwritten { // the bars are counted at the end of the run
			return
		}
		if t.formats.endsWithValue(message) || t.formats.formats[t.block].blockIsTable {
			t.in.AddProblem(t.l.Number, "last line is torn: %.80q", line)
		} else {
			t.countUnused(0)
		}
		return
	}
	if v == unknown && t.block != noBlock {
		v = t.formats.formats[t.block].readInBlock(t, message)
	}
	if v == unknown {
		v = t.formats.applyRule(t, message)
	}
	if overwritten && (v == unknown || v == idle) {
		v = pending // the bars are counted at the end of the run
	}
	switch v {
	case used:
		t.in.Report.LinesUsed++
		if len(t.stamp) > 0 {
			t.updateTimes()
		}
	case unknown:
		t.countUnused(0)
	case idle:
		t.countUnused(1)
	case unused, pending:
	}
}

// isCutAfterPoint reports whether the last line of a file, which has no line end, ends with a
// decimal point, after which digits may be missing.
func (t *textLog) isCutAfterPoint(m []byte) bool {
	return !t.l.Ended && len(m) > 0 && m[len(m)-1] == '.'
}

// countUnused counts the current line as not used. i is the index of the counter
// in t.counts: 0 for unknown lines, 1 for lines of a known format without values.
func (t *textLog) countUnused(i int) {
	if t.counts[i] == 0 {
		t.firsts[i] = t.l.Number
	}
	t.counts[i]++
}

// countUnknown counts lines, the first of which has the given number, as lines of unknown form.
func (t *textLog) countUnknown(first, lines int) {
	if t.counts[0] == 0 || t.firsts[0] > first {
		t.firsts[0] = first
	}
	t.counts[0] += int64(lines)
}

// states contains what formats have read so far, by format: of one run, or of a whole log.
type states [maxFormats]any

// stateOf returns what format f has read so far. At the first call, this is a T without values.
func stateOf[T any](s *states, f formatID) *T {
	if state, ok := s[f].(*T); ok {
		return state
	}
	state := new(T)
	s[f] = state
	return state
}

// shapesOf returns the shapes of a format's frequent lines.
func (t *textLog) shapesOf(f formatID) *scan.ShapeCache {
	if t.shapes[f] == nil {
		t.shapes[f] = &scan.ShapeCache{}
	}
	return t.shapes[f]
}
