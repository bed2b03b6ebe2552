package record

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

// MaxUnused limits the number of problems that are kept per file, and
// MaxIgnored the number of reasons for ignored lines. Without limits, a file
// with many damaged lines would fill the memory.
const (
	MaxUnused  = 100
	MaxIgnored = 16
)

// Report describes what was read from a file, what was not, and why, so that
// nothing is omitted silently. A format sets Records, Lines and LinesUsed, and
// fills Ignored, Unused and Assumed by calling the methods. Users see the same
// fields in logread.Report.
type Report struct {
	Path        string
	Kind        string // kind of the log; empty if unknown
	Compression string // gzip, zstd, xz or bzip2; empty if the file is not compressed
	Bytes       int64  // bytes of content that were read, after decompression
	Truncated   bool   // the compressed file is truncated or damaged, so the content ends early
	Runs        int    // number of runs in the file; 1 if it adds to a run of other files
	Records     int64  // number of epochs, trials, events, … that were read
	Lines       int64  // number of lines; 0 for a binary file
	LinesUsed   int64
	Ignored     []IgnoredLines // ignored lines by reason
	// Unused lists the first hundred lines that should contain a value but
	// could not be used, and other problems of the file. UnusedMore counts the
	// rest.
	Unused     []runs.Problem
	UnusedMore int
	// Known lists the properties that identify the file's runs and that the
	// user, the content, a configuration or a command states, each with its
	// source.
	Known []string
	// Assumed lists the properties that are not in the file and were assumed,
	// each with the source of the assumption, such as the path.
	Assumed []string
	// Outweighed lists the evidence about properties that stronger evidence contradicts.
	Outweighed []string
	Rules      string // path of the file with rules that apply to the file; empty if none do
	// Templates describes how each template of Input.Lines was used. It is nil if
	// the file was not matched with templates.
	Templates []TemplateUse
	// Header contains the names of the columns if the file is a table. Columns is the
	// number of its columns, and UnusedColumns lists those that were not used, with
	// the reasons.
	Header        []string
	Mapped        []string // mappings of columns by the user that fit the file
	Columns       int
	UnusedColumns []string
	Skipped       string // why the file was not read; empty if it was
	// CopyOf is the path of the run folder of which the file is a copy (written
	// by runs.WriteStudyLog), if that folder was read too; otherwise empty.
	CopyOf string
}

// TemplateUse describes how a template of the user was used in a file.
type TemplateUse struct {
	Lines int64 // number of lines that the template matches
	// If Lines is 0, the line that is nearest to the template: its number, the
	// beginning of its text without labels, and where it differs. NearestLine
	// is 0 if the file has no line.
	NearestLine int
	NearestText string
	Nearest     template.Mismatch
	Shadowed    bool // the template matches that line, but an earlier template matches it too
}

// Add adds the use of the same template in more lines, before which the file has the given number of lines. It
// reports whether the nearest line is one of them.
func (u *TemplateUse) Add(more TemplateUse, before int) (nearer bool) {
	lines := u.Lines + more.Lines
	if nearer = more.NearestLine > 0 && (u.NearestLine == 0 || more.Nearest.Matched > u.Nearest.Matched); nearer {
		*u = more
		u.NearestLine += before
	}
	u.Lines = lines
	return nearer
}

// MaxNearestText is the maximum length in bytes of TemplateUse.NearestText.
const MaxNearestText = 160

// MatchesTemplate reports whether a template of the user matches a line of the
// file.
func (r *Report) MatchesTemplate() bool {
	return slices.ContainsFunc(r.Templates, func(u TemplateUse) bool { return u.Lines > 0 })
}

// IgnoredLines is the number of lines of a file that were ignored for one reason.
type IgnoredLines struct {
	Reason string
	Lines  int64
	First  int // number of the first such line
}

// AddProblem adds a problem for a line that could not be used. Line 0 means
// the complete file.
func (r *Report) AddProblem(line int, format string, a ...any) {
	if len(r.Unused) >= MaxUnused {
		r.UnusedMore++
		return
	}
	r.Unused = append(r.Unused, runs.Problem{File: r.Path, Line: line, Reason: fmt.Sprintf(format, a...)})
}

// AddIgnored counts one ignored line.
func (r *Report) AddIgnored(line int, reason string) {
	r.AddIgnoredLines(IgnoredLines{Reason: reason, Lines: 1, First: line})
}

// AddIgnoredLines adds several lines that were ignored for the same reason.
func (r *Report) AddIgnoredLines(more IgnoredLines) {
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

// AddAssumption adds the description of a property that was assumed because the
// file does not contain it, with the source of the assumption.
func (r *Report) AddAssumption(format string, a ...any) {
	r.Assumed = append(r.Assumed, fmt.Sprintf(format, a...))
}

// AddAssumptionOnce is like AddAssumption but adds the same text only once.
func (r *Report) AddAssumptionOnce(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); !slices.Contains(r.Assumed, text) {
		r.Assumed = append(r.Assumed, text)
	}
}

// Problems returns the problems of the file. If there were too many to keep,
// the last one contains the number of the others.
func (r *Report) Problems() []runs.Problem {
	if r.UnusedMore == 0 {
		return r.Unused
	}
	more := runs.Problem{File: r.Path, Reason: fmt.Sprintf("and %s that could not be used", english.Count(r.UnusedMore, "more line"))}
	return append(r.Unused[:len(r.Unused):len(r.Unused)], more)
}

// Append adds the report of the next part of the file, whose line numbers
// begin at 1.
func (r *Report) Append(next *Report) {
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
		r.AddIgnoredLines(IgnoredLines{i.Reason, i.Lines, i.First + before})
	}
	r.UnusedMore += next.UnusedMore
	r.Assumed = append(r.Assumed, next.Assumed...)
	r.Bytes += next.Bytes
	r.Records += next.Records
	r.Lines += next.Lines
	r.LinesUsed += next.LinesUsed
}

// ReasonBlank is the reason for ignoring an empty line.
const ReasonBlank = "blank"
