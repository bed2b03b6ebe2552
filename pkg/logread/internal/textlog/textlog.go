package textlog

import (
	"bytes"
	"context"
	"fmt"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/logread/internal/textlog/internal/system"
	"lockstep/pkg/logread/internal/textlog/internal/trainer"
)

// textLogKind is the format's name in reports. The kind of a run is the format of its lines.
const textLogKind = "text log"

// Format returns the format of text logs. It must be tried last, since it recognizes every text.
func Format() record.Format {
	return record.Format{Name: textLogKind, Recognizes: isText, Read: readTextLog}
}

// isText reports whether head is not empty and contains no NUL byte.
func isText(_ string, head []byte) bool {
	return len(head) > 0 && bytes.IndexByte(head, 0) < 0
}

const idleLineReason = "of a known form without a value (settings, warm-up, headings)"

func readTextLog(_ context.Context, in *record.Input) ([]*record.Part, error) {
	t := newReader(in)
	err := t.read()
	system.FinishSeff(t.Log) // counts the lines of its last job
	report := in.Report
	report.Lines = int64(t.Lines.Number)
	if err != nil {
		return nil, err
	}
	parts := t.finish()
	if len(parts) == 0 && len(report.Unused) == 0 && !report.MatchesTemplate() {
		return nil, record.ErrUnknownFormat
	}
	return parts, nil
}

type reader struct {
	*logline.Log
	formats  *formatIndex
	user     []*templateRule // of the user's templates, in their order
	compared int             // number of lines that were compared with unused templates
}

func newReader(in *record.Input) *reader {
	t := &reader{Log: logline.New(in), formats: sharedFormatIndex()}
	t.Lines.Overwritten = func(text []byte) {
		t.Rank, t.Stamp = -1, nil
		t.Lines.Number++ // the line of the text, which is not complete yet
		trainer.ReadOverwrittenBars(t.Log, text)
		t.Lines.Number--
	}
	for i, tmpl := range in.Lines {
		t.user = append(t.user, newTemplateRule(tmpl, i, logline.UserTemplates))
		in.Report.Templates = append(in.Report.Templates, record.TemplateUse{})
	}
	return t
}

func (t *reader) read() error {
	for line, ok := t.Lines.Next(); ok; line, ok = t.Lines.Next() {
		t.parseLine(line)
	}
	if t.Lines.Err != nil {
		return fmt.Errorf("read %s after line %d: %w", t.In.Path, t.Lines.Number, t.Lines.Err)
	}
	return nil
}

func (t *reader) parseLine(line []byte) {
	if t.Lines.TooLong {
		t.AddProblem("line is longer than %d bytes", scan.MaxLine)
		return
	}
	t.Rank, t.Stamp = -1, nil
	t.MicroStamp, t.AfterMicroStamp = false, t.MicroStamp
	overwritten := false
	if t.Lines.HasCR { // a progress bar has overwritten the line; the text after the last \r counts
		line, overwritten = t.cutOverwritten(line)
	}
	message := t.StripPrefix(line)
	if len(message) == 0 {
		t.IgnoreUnknown()
		return
	}
	v := logline.Unknown
	if t.user != nil {
		v = t.readUserLine(line, message)
	}
	if n := len(message); v == logline.Unknown && !t.Lines.Ended && (scan.IsDigit(message[n-1]) || n > 1 && message[n-1] == '.' && scan.IsDigit(message[n-2])) {
		// The last number may be incomplete.
		if overwritten { // the bars are counted at the end of the run
			return
		}
		if t.formats.endsWithValue(message) || t.formats.formats[t.Block].BlockIsTable {
			t.AddProblem("last line is torn: %.80q", line)
		} else {
			t.IgnoreUnknown()
		}
		return
	}
	if v == logline.Unknown && t.Block != logline.NoBlock {
		v = t.formats.readBlockLine(t.Log, message)
	}
	if v == logline.Unknown {
		v = t.formats.applyRule(t.Log, message)
	}
	if overwritten && (v == logline.Unknown || v == logline.Idle) {
		v = logline.Pending // the bars are counted at the end of the run
	}
	switch v {
	case logline.Used:
		t.In.Report.LinesUsed++
		if len(t.Stamp) > 0 {
			t.UpdateTimes()
		}
	case logline.Unknown:
		t.NoteResume(message)
		t.IgnoreUnknown()
	case logline.Idle:
		t.In.Report.AddIgnored(t.Lines.Number, idleLineReason)
	case logline.Unused, logline.Pending:
	}
}

// cutOverwritten returns the text after the last \r of a line. It first reads the bars in the
// overwritten text, and reports whether there were any.
func (t *reader) cutOverwritten(line []byte) (last []byte, found bool) {
	i := bytes.LastIndexByte(line, '\r')
	if i < 0 {
		return line, false
	}
	return line[i+1:], trainer.ReadOverwrittenBars(t.Log, line[:i])
}
