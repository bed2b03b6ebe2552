package textlog

import (
	"bytes"
	"context"
	"fmt"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// kind is the name of this file format in reports. The kind of a run is more specific: the
// name of the format of its lines.
const kind = "text log"

// Format returns the format of text logs. It recognizes every text and looks
// at every line, so that it has to be tried last.
func Format() record.Format {
	return record.Format{Name: kind, Recognizes: recognizes, Read: readFile}
}

// recognizes reports whether head can be text, which has no NUL.
func recognizes(_ string, head []byte) bool {
	return len(head) > 0 && bytes.IndexByte(head, 0) < 0
}

// verdict says what became of a line.
type verdict int

const (
	unknown verdict = iota // no format recognizes it
	used                   // its values are used
	idle                   // of a known format, without a value
	unused                 // should have a value; a problem says why it is not used
	pending                // decided, and counted, at the end of the run
)

// Reasons for ignoring lines.
const (
	otherLine = "of no known form"
	idleLine  = "of a known form that holds no value of its own (settings, warm-up, headings)"
)

// textLog reads a text log.
type textLog struct {
	in      *record.Input
	formats *formatIndex
	l       *scan.Lines
	cur     *textRun
	runs    []*textRun
	// The current line:
	rank  int    // -1 if the line has no label
	stamp []byte // its time stamp, or empty
	// config are settings outside a run. They belong to the next run, or to the
	// last if there is none.
	config        map[string]any
	counts        [2]int64 // of unknown and of idle lines
	firsts        [2]int
	inBlock       block
	failing       failure
	day           calendar // of the last time stamp
	heading       []byte   // the last "- name - LEVEL - "
	zoneReported  bool     // the report names the assumed time zone
	nodesReported bool     // the report says how the ranks of several nodes are numbered
	// usual is the format of the current line if lines that differ from it only
	// in their numbers may follow, otherwise formCommand. fast reads such lines
	// of epochs, and ahead those in later pieces of the file.
	usual      form
	usualBytes int64 // number of bytes that fast has read
	fast       epochLines
	ahead      *ahead
	least      int64 // least bytes of a piece that is read ahead; 0 means leastAhead
	// Shapes of lines that occur a million times.
	kerasShapes, mlperfShapes, dllShapes scan.Shapes
}

// block is a group of lines that only mean something together.
type block int

const (
	noBlock       block = iota
	sc21Block           // settings of an SC21 run
	settingsBlock       // settings of the U-Net study
	failureBlock        // torchrun's root cause
)

// readFile reads a text log.
func readFile(ctx context.Context, in *record.Input) ([]*record.Part, error) {
	t := newTextLog(in)
	err := t.read(ctx)
	report := in.Report
	report.Lines = int64(t.l.Number)
	for i, reason := range []string{otherLine, idleLine} {
		if t.counts[i] > 0 {
			report.Ignored = append(report.Ignored, record.Ignored{Reason: reason, Lines: t.counts[i], First: t.firsts[i]})
		}
	}
	if err != nil {
		return nil, err
	}
	parts := t.finish()
	if len(parts) == 0 && len(report.Unused) == 0 {
		return nil, record.ErrUnknown
	}
	return parts, nil
}

// newTextLog returns a reader of a text log.
func newTextLog(in *record.Input) *textLog {
	t := &textLog{in: in, l: scan.NewLines(in.Reader, in.Size), formats: sharedIndex()}
	t.cur = t.newRun(1)
	return t
}

// read reads all lines.
func (t *textLog) read(ctx context.Context) error {
	defer func() { t.ahead.wait() }()
	for {
		line, ok := t.l.Next()
		if !ok && t.nextPiece() {
			continue
		} else if !ok {
			break
		}
		if t.l.Number&0xffff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		t.readLine(line)
		switch t.usual {
		case formSC21:
			t.epochLines(ctx)
		case formKeras:
			t.usualLines(t.kerasLine)
		case formHorovod:
			t.usualLines(t.horovodLine)
		case formRates:
			t.usualLines(t.rateLine)
		}
		t.usual = formCommand
	}
	if t.l.Err != nil {
		return fmt.Errorf("read %s after line %d: %w", t.in.Path, t.l.Number, t.l.Err)
	}
	return nil
}

// usualLines reads the following lines in the buffer as long as the function
// line can. line reads the line that b begins with and returns its length with
// the line end, or 0 if the line has another form. TestUsualLines compares the
// result with that of readLine.
func (t *textLog) usualLines(line func(b []byte) (n int, used verdict)) {
	if t.inBlock != noBlock {
		return
	}
	l := t.l
	for l.End-l.Start >= usualLine {
		t.rank, t.stamp = -1, nil
		l.Number++
		n, v := line(l.Buf[l.Start:l.End])
		if n == 0 {
			l.Number--
			return
		}
		l.Start += n
		if v == used {
			t.in.Report.LinesUsed++
			if len(t.stamp) > 0 {
				t.clock()
			}
		}
	}
}

// usualLine is more bytes than a usual line has, so that parsing needs no
// checks for the end of the text.
const usualLine = 160

// readLine reads a line of any form.
func (t *textLog) readLine(line []byte) {
	if t.l.TooLong {
		t.in.Problem(t.l.Number, "line is longer than %d bytes", scan.MaxLine)
		return
	}
	if t.l.HasCR { // a progress bar overwrote itself; the last text is visible
		line = line[bytes.LastIndexByte(line, '\r')+1:]
	}
	t.rank, t.stamp = -1, nil
	message := t.strip(line)
	if len(message) == 0 {
		t.count(0)
		return
	}
	if !t.l.Ended && scan.IsDigit(message[len(message)-1]) {
		// The last number may be incomplete.
		if t.formats.holdValues(message) {
			t.in.Problem(t.l.Number, "last line is torn: %.80q", line)
		} else {
			t.count(0)
		}
		return
	}
	v := unknown
	if t.inBlock != noBlock {
		v = t.blockLine(message)
	}
	if v == unknown {
		v = t.formats.read(t, message)
	}
	if v == unknown {
		v = t.outOfMemory(message)
	}
	switch v {
	case used:
		t.in.Report.LinesUsed++
		if len(t.stamp) > 0 {
			t.clock()
		}
	case unknown:
		t.count(0)
	case idle:
		t.count(1)
	case unused, pending:
	}
}

// count counts an unknown line (0) or an idle line (1).
func (t *textLog) count(i int) {
	if t.counts[i] == 0 {
		t.firsts[i] = t.l.Number
	}
	t.counts[i]++
}

// blockLine reads a line inside a block.
func (t *textLog) blockLine(m []byte) verdict {
	switch t.inBlock {
	case sc21Block:
		return t.sc21Setting(m)
	case settingsBlock:
		return t.studySetting(m)
	case failureBlock:
		return t.failureLine(m)
	case noBlock:
	}
	return unknown
}
