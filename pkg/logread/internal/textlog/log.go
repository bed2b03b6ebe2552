package textlog

import (
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// lineResult is the result of reading a line.
type lineResult int

const (
	unknown lineResult = iota // no format recognizes the line
	used                      // the values of the line are used
	idle                      // the line has a known format but contains no value
	unused                    // the line should contain a value, and a problem explains why it is not used
	pending                   // the line is counted as used or ignored at the end of the run
)

// textLog is the state of a text log while it is read.
type textLog struct {
	in   *record.Input
	l    *scan.LineReader
	cur  *textRun   // the current run
	runs []*textRun // the runs before it
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
	// Values of the current line, if a template matches it.
	values      []template.Value
	stampBuffer []byte
	// The current line, and the line before it, have a time stamp with microseconds and a colon.
	microStamp, afterMicroStamp bool
	shapes                      [maxFormats]*scan.ShapeCache // see shapesOf
}

// newTextLog returns the state before the first line of a text log.
func newTextLog(in *record.Input) *textLog {
	t := &textLog{in: in, l: scan.NewLineReader(in.Reader, in.Size)}
	t.l.KeepLast = true
	t.cur = newRun(1)
	return t
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
