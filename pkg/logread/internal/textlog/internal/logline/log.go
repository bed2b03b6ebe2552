package logline

import (
	"bytes"
	"slices"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// Result is the result of reading a line.
type Result int

// The results of reading a line.
const (
	Unknown Result = iota // no format recognizes the line
	Used                  // the values of the line are used
	Idle                  // the line has a known format but contains no value
	Unused                // the line should contain a value, and a problem explains why it is not used
	Pending               // the line is counted as used or ignored at the end of the run
)

// Log is a text log and the state of its reader.
type Log struct {
	In      *record.Input
	Lines   *scan.LineReader // its Number is that of the current line
	Current *Run             // the current run
	Runs    []*Run           // the runs before it
	// Properties of the current line.
	Rank  int    // rank in the label; -1 if the line has no label
	Stamp []byte // time stamp; empty if the line has none
	// Config contains settings that are printed outside of a run. They belong to the next run or,
	// if none follows, to the last one.
	Config        map[string]any
	NextDevices   Devices        // devices that a line after the values of the current run states
	Block         FormatID       // the format to whose block of lines the next line belongs; NoBlock outside of blocks
	States        FormatStates   // what single formats have read of the log
	day           scan.DateCache // of the last time stamp
	heading       []byte         // the last "- name - LEVEL - "
	zoneReported  bool           // the report contains the assumed time zone
	nodesReported bool           // the report contains how the ranks of several nodes are numbered
	// Values of the current line if a template matches it.
	values      []template.Value
	stampBuffer []byte
	// MicroStamp is set if the current line has a time stamp with microseconds and a colon.
	// AfterMicroStamp is set if the line before has one.
	MicroStamp, AfterMicroStamp bool
}

// New returns the state before the first line of a text log.
func New(in *record.Input) *Log {
	log := &Log{In: in, Lines: scan.NewLineReader(in.Reader, in.Size)}
	log.Lines.KeepLast = true
	log.Current = newRun(1, log.Lines)
	return log
}

// AddProblem adds a problem for the current line.
func (log *Log) AddProblem(format string, a ...any) {
	log.In.AddProblem(log.Lines.Number, format, a...)
}

// Refuse adds the problem that explains why the current line is Unused.
func (log *Log) Refuse(format string, a ...any) Result {
	log.AddProblem(format, a...)
	return Unused
}

// IsCutAfterPoint reports whether the last line of a file, which has no line end, ends with a
// decimal point.
func (log *Log) IsCutAfterPoint(m []byte) bool {
	return !log.Lines.Ended && len(m) > 0 && m[len(m)-1] == '.'
}

// ReasonUnknownLine is the reason for ignoring a line that no format recognizes.
const ReasonUnknownLine = "of unknown form"

// IgnoreUnknown counts the current line as one that no format recognizes.
func (log *Log) IgnoreUnknown() { log.In.Report.AddIgnored(log.Lines.Number, ReasonUnknownLine) }

// NoteResume notes whether an unknown line states that the program resumes a run, as
// "=> loaded checkpoint 'last.pt' (epoch 5)" or "Resuming from epoch 5".
func (log *Log) NoteResume(m []byte) {
	const longest = 1 << 10
	if len(m) >= longest || !bytes.Contains(m, []byte("um")) && !bytes.Contains(m, []byte("kp")) { // nearly every line
		return
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(m, []byte(word)) })
	}
	if has("Resum", "resum") || has("heckpoint", "ckpt") && has("Load", "load", "Restor", "restor") && !has("best", "Best", "no ", "No ", "test", "Test", "eval") {
		log.Current.ResumeLine = log.Lines.Number
	}
}

// FormatStates contains, for each format, what it has read from a run or from a whole log.
type FormatStates [MaxFormats]any

// FormatState returns what format f has read so far, at first a zero T.
func FormatState[T any](s *FormatStates, f FormatID) *T {
	if state, ok := s[f].(*T); ok {
		return state
	}
	state := new(T)
	s[f] = state
	return state
}
