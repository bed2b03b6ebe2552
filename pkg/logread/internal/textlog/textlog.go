package textlog

import (
	"bytes"
	"context"
	"fmt"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
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

// The reasons for ignoring lines.
const (
	otherLine = "of unknown form"
	idleLine  = "of a known form without a value (settings, warm-up, headings)"
)

// readFile reads a text log and returns its runs.
func readFile(ctx context.Context, in *record.Input) ([]*record.Part, error) {
	t := newReader(in)
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

// reader reads one text log.
type reader struct {
	*textLog
	formats  *formatIndex
	user     *userTemplates // nil if the user has given no templates
	compared int            // number of lines that were compared with unused templates
	last     *indexedRule   // the rule that has read the current line; nil if its values were not used
}

// newReader returns a reader of a text log.
func newReader(in *record.Input) *reader {
	t := &reader{textLog: newTextLog(in), formats: sharedFormatIndex()}
	t.l.Overwritten = func(text []byte) {
		t.rank, t.stamp = -1, nil
		t.l.Number++ // the line of the text, which is not complete yet
		t.readOverwritten(text)
		t.l.Number--
	}
	if t.user = newUserTemplates(in.Lines); t.user != nil {
		in.Report.Templates = make([]record.TemplateUse, len(in.Lines))
	}
	return t
}

// read reads all lines.
func (t *reader) read(ctx context.Context) error {
	defer func() { epochReaderOf(t.textLog).ahead.stop() }()
	for {
		line, ok := t.l.Next()
		if !ok && epochReaderOf(t.textLog).adoptChunks() {
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
			r.more(ctx, t.textLog, &r.lineRule)
		}
		t.last = nil
	}
	if t.l.Err != nil {
		return fmt.Errorf("read %s after line %d: %w", t.in.Path, t.l.Number, t.l.Err)
	}
	return nil
}

// parseLine reads a line of any form.
func (t *reader) parseLine(line []byte) {
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
		v = t.formats.readBlockLine(t.textLog, message)
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

// cutOverwritten returns the text after the last \r of a line. Before, it reads the bars in
// the text that was overwritten, and reports whether it has read some.
func (t *reader) cutOverwritten(line []byte) (last []byte, found bool) {
	i := bytes.LastIndexByte(line, '\r')
	if i < 0 {
		return line, false
	}
	return line[i+1:], t.readOverwritten(line[:i])
}
