package record

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// MaxUnused limits the problems that are kept per file, and MaxIgnored the
// reasons: a file may be damaged on every line.
const (
	MaxUnused  = 100
	MaxIgnored = 16
)

// Report says what was done with a file, so that nothing is left out in
// silence. A format fills Records, Lines and LinesUsed, and by the methods
// Ignored, Unused and Assumed. logread.Report, which users see, has the same
// fields.
type Report struct {
	Path        string
	Kind        string // of the log; empty if unknown
	Compression string // gzip or zstd; empty if the file is not compressed
	Bytes       int64  // of content that was read, decompressed
	Runs        int    // in the file, or 1 if it adds to a run of other files
	Records     int64  // epochs, trials, events, … that were read
	Lines       int64  // of text; 0 for a binary file
	LinesUsed   int64
	Ignored     []Ignored // lines without a value of a known form, by reason
	// Unused are the lines that should hold a value and could not be used, and
	// other problems of the file: the first hundred. UnusedMore counts the rest.
	Unused     []runs.Problem
	UnusedMore int
	// Assumed lists what was not in the file's values and where it came from.
	Assumed []string
	Skipped string // why the file was not read; empty if it was
	// CopyOf is the run folder, also read, of which the file is a copy
	// (runs.WriteStudyLog); empty for other files.
	CopyOf string
}

// Ignored counts the lines that were left alone for a reason.
type Ignored struct {
	Reason string
	Lines  int64
	First  int // number of the first such line
}

// Problem notes what could not be used. Line 0 means the whole file.
func (r *Report) Problem(line int, format string, a ...any) {
	if len(r.Unused) >= MaxUnused {
		r.UnusedMore++
		return
	}
	r.Unused = append(r.Unused, runs.Problem{File: r.Path, Line: line, Reason: fmt.Sprintf(format, a...)})
}

// Ignore counts a line that was ignored.
func (r *Report) Ignore(line int, reason string) {
	r.IgnoreLines(Ignored{Reason: reason, Lines: 1, First: line})
}

// IgnoreLines adds to the lines that were ignored for a reason.
func (r *Report) IgnoreLines(more Ignored) {
	for i := range r.Ignored {
		if r.Ignored[i].Reason == more.Reason {
			r.Ignored[i].Lines += more.Lines
			return
		}
	}
	if len(r.Ignored) >= MaxIgnored {
		r.Ignored[MaxIgnored-1].Lines += more.Lines
		return
	}
	r.Ignored = append(r.Ignored, more)
}

// Assume notes something that was not in the file's values and where it came
// from.
func (r *Report) Assume(format string, a ...any) {
	r.Assumed = append(r.Assumed, fmt.Sprintf(format, a...))
}

// AssumeOnce is Assume without repetition of the same text.
func (r *Report) AssumeOnce(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); !slices.Contains(r.Assumed, text) {
		r.Assumed = append(r.Assumed, text)
	}
}

// Problems returns the problems of the file, and one more that counts those
// that were not kept.
func (r *Report) Problems() []runs.Problem {
	if r.UnusedMore == 0 {
		return r.Unused
	}
	more := runs.Problem{File: r.Path, Reason: fmt.Sprintf("and %s that could not be used", english.Count(r.UnusedMore, "more line"))}
	return append(r.Unused[:len(r.Unused):len(r.Unused)], more)
}

// Add appends the report of the next piece of the file, whose line numbers
// begin at 1.
func (r *Report) Add(next *Report) {
	before := int(r.Lines)
	for _, p := range next.Unused {
		if p.Line > 0 {
			p.Line += before
		}
		if len(r.Unused) < MaxUnused {
			r.Unused = append(r.Unused, p)
		} else {
			r.UnusedMore++
		}
	}
	for _, i := range next.Ignored {
		r.IgnoreLines(Ignored{i.Reason, i.Lines, i.First + before})
	}
	r.UnusedMore += next.UnusedMore
	r.Assumed = append(r.Assumed, next.Assumed...)
	r.Bytes += next.Bytes
	r.Records += next.Records
	r.Lines += next.Lines
	r.LinesUsed += next.LinesUsed
}

// BlankLine is the reason for which an empty line is ignored.
const BlankLine = "blank"
