package textlog

import (
	"bytes"
	"context"
	"fmt"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// A text log is what a program wrote for people: a log file, or a job's
// stdout, in which the lines of several programs stand below each other and
// those of several ranks between each other. Every line is looked at by its
// first bytes; those of a known form are read by the grammar that knows it
// (sc21.go, keras.go, benchy.go, horovod.go, mlperf.go, dllogger.go,
// rates.go, studyout.go, torchrun.go, bashtime.go), the others are counted.
//
// In front of what a program wrote there may stand a rank (srun -l, mpirun
// --tag-output), a time stamp and a level (Python's logging), which are taken
// off first.
const kind = "text log"

// Format returns the format of text logs. It recognizes every text and looks
// at every line, so that it has to be tried last.
func Format() record.Format {
	return record.Format{Name: kind, Recognizes: recognizes, Read: readFile}
}

// isText says whether the head can be a text: without a NUL, and not all on
// one line with a JSON document.
func recognizes(_ string, head []byte) bool {
	return len(head) > 0 && bytes.IndexByte(head, 0) < 0
}

// verdict is what became of a line.
type verdict int

const (
	unknown verdict = iota // of no known form
	used                   // its values are taken
	idle                   // of a known form, without a value
	unused                 // should hold a value; a problem says why it is not used
	pending                // what becomes of it is known, and counted, at the end of its run
)

// Reasons for which lines are ignored.
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
	// Of the current line:
	rank  int    // -1 where no label says it
	stamp []byte // its time stamp, empty where it has none
	// config are settings that stand where no run is open, and belong to the
	// next one, or to the last where there is none.
	config  map[string]any
	counts  [2]int64 // of lines of other form, and idle ones
	firsts  [2]int
	inBlock block
	failing failure
	day     calendar // of the last time stamp
	heading []byte   // the last "- name - LEVEL - "
	zoned   bool     // the report says of which zone the stamps are taken to be
	nodes   bool     // the report says how the ranks of several nodes are numbered
	// usual is the form of the line if more that differ from it in their numbers
	// alone may follow at once, and else formCommand. Those of epochs fast reads,
	// and ahead in the pieces of the file to come.
	usual      form
	usualBytes int64 // of lines that fast has read
	fast       epochLines
	ahead      *ahead
	least      int64 // bytes of a piece that is read ahead; 0: leastAhead
	// The shapes of lines that come a million times.
	kerasShapes, mlperfShapes, dllShapes scan.Shapes
}

// block is a stretch of lines that only mean something together.
type block int

const (
	noBlock       block = iota
	sc21Block           // settings of an SC21 run
	settingsBlock       // settings of the U-Net study
	failureBlock        // torchrun's root cause
)

// readText reads a text log into the runs it tells of.
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
		if !ok && t.goOn() {
			continue
		} else if !ok {
			break
		}
		if t.l.Number&0xffff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		t.take(line)
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

// usualLines takes the lines that follow in l.buf as long as line can: it takes
// the one that b begins with, whose number l has, and returns its length up to
// the end of it, or 0 where its grammar must look at it. It is the other way to
// read what take reads; TestUsualLines holds the two against each other.
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

// usualLine is so many bytes that no line in usual form has to ask for each of
// its parts whether the text goes on.
const usualLine = 160

// take looks at a line.
func (t *textLog) take(line []byte) {
	if t.l.TooLong {
		t.in.Problem(t.l.Number, "line is longer than %d bytes", scan.MaxLine)
		return
	}
	if t.l.HasCR { // a progress bar wrote over itself: what is seen is the last
		line = line[bytes.LastIndexByte(line, '\r')+1:]
	}
	t.rank, t.stamp = -1, nil
	message := t.strip(line)
	if len(message) == 0 {
		t.count(0)
		return
	}
	if !t.l.Ended && scan.IsDigit(message[len(message)-1]) {
		// Whether the last number is whole nobody can say.
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

func (t *textLog) count(i int) {
	if t.counts[i] == 0 {
		t.firsts[i] = t.l.Number
	}
	t.counts[i]++
}

// blockLine is a line inside a block.
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
