package record

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// maxUnused bounds the problems that are kept of a file, and maxIgnored the
// reasons: a file may be damaged on every line.
const (
	MaxUnused  = 100
	MaxIgnored = 16
)

// Report says what was done with a file: nothing that was left out goes
// unsaid. A format fills Records, Lines, LinesUsed and, by the methods, Ignored,
// Unused and Assumed. logread.Report is the same for the user; each converts
// into the other.
type Report struct {
	Path        string
	Kind        string // of the log; empty where it is of no known kind
	Compression string // gzip or zstd; empty where it is not compressed
	Bytes       int64  // of content that was read, unpacked
	Runs        int    // that the file holds, or 1 where it adds to a run of other files
	Records     int64  // epochs, trials, events, …: what was taken from it
	Lines       int64  // of text; 0 for binary files
	LinesUsed   int64
	Ignored     []Ignored // lines that hold no value of a known form, by reason
	// Unused are the lines that should hold a value and could not be used, and
	// what else is wrong with the file; the first hundred, and how many more.
	Unused     []runs.Problem
	UnusedMore int
	// Assumed says what is not in the file's values and where it was taken from.
	Assumed []string
	Skipped string // why the file was not read; empty where it was
	// CopyOf is the run folder that the file is a copy of (runs.WriteStudyLog),
	// and that is read too; empty for other files.
	CopyOf string
}

// Ignored counts the lines that were left alone for a reason.
type Ignored struct {
	Reason string
	Lines  int64
	First  int // line number of the first
}

// Problem notes what could not be used; line 0 means the whole file.
func (r *Report) Problem(line int, format string, a ...any) {
	if len(r.Unused) >= MaxUnused {
		r.UnusedMore++
		return
	}
	r.Unused = append(r.Unused, runs.Problem{File: r.Path, Line: line, Reason: fmt.Sprintf(format, a...)})
}

// Ignore counts a line that holds no value.
func (r *Report) Ignore(line int, reason string) {
	r.IgnoreLines(Ignored{Reason: reason, Lines: 1, First: line})
}

// IgnoreLines counts such lines.
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

// Assume notes what was taken from elsewhere than the values of the file.
func (r *Report) Assume(format string, a ...any) {
	r.Assumed = append(r.Assumed, fmt.Sprintf(format, a...))
}

// AssumeOnce is assume, but says nothing twice.
func (r *Report) AssumeOnce(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); !slices.Contains(r.Assumed, text) {
		r.Assumed = append(r.Assumed, text)
	}
}

// Problems are those of the file, and one that counts what was not kept.
func (r *Report) Problems() []runs.Problem {
	if r.UnusedMore == 0 {
		return r.Unused
	}
	more := runs.Problem{File: r.Path, Reason: fmt.Sprintf("and %s that could not be used", english.Count(r.UnusedMore, "more line"))}
	return append(r.Unused[:len(r.Unused):len(r.Unused)], more)
}

// Add adds the report of the next piece of the file to that of those before.
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
