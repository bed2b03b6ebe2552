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

// Report describes what was read from a file, what was not, and why. A format sets
// Records, Lines and LinesUsed, and fills Ignored, Unused and Assumed by the methods.
// logread.Report describes the fields that users see.
type Report struct {
	Path, Kind, Compression    string
	Bytes                      int64
	Truncated                  bool // the compressed file is truncated or damaged, so the content ends early
	Runs                       int
	Records, Lines, LinesUsed  int64
	Ignored                    []IgnoredLines
	Unused                     []runs.Problem
	UnusedMore                 int
	Known, Assumed, Outweighed []string
	Rules, Skipped, CopyOf     string
	Columns                    int
	UnusedColumns              []string
	// Templates describes how each template of Input.Lines was used, or is nil if none was tried.
	Templates []TemplateUse
	Header    []string // names of the columns if the file is a table
	Mapped    []string // mappings of columns by the user that fit the file
	// Resumptions and Repetitions count the parts of runs that continue an earlier part, and those that
	// repeat one.
	Resumptions, Repetitions int
}

// TemplateUse describes how a template of the user was used in a file.
type TemplateUse struct {
	Lines int64 // number of lines that the template matches
	// NearestLine is the number of the line that is most similar to the template. It is set only if
	// Lines is 0, and is 0 if the file has no line. The following fields contain the beginning of
	// the line without labels, and where it differs from the template.
	NearestLine int
	NearestText string
	Nearest     template.Mismatch
	Shadowed    bool // the template matches that line, but an earlier template matches it too
}

// Add adds the use of the same template in further lines of the file. before is the number of lines
// before them. nearer is true if the nearest line is now one of the further lines.
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

// MatchesTemplate reports whether a user's template matches a line of the file.
func (r *Report) MatchesTemplate() bool {
	return slices.ContainsFunc(r.Templates, func(u TemplateUse) bool { return u.Lines > 0 })
}

// IgnoredLines is the number of lines of a file that were ignored for one reason.
type IgnoredLines struct {
	Reason string
	Lines  int64
	First  int // number of the first such line
}

// AddProblem adds a problem for a line that could not be used; line 0 is the whole file.
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
			r.Ignored[i].Lines, r.Ignored[i].First = r.Ignored[i].Lines+more.Lines, min(r.Ignored[i].First, more.First)
			return
		}
	}
	if len(r.Ignored) >= MaxIgnored {
		r.Ignored[MaxIgnored-1].Lines += more.Lines
		return
	}
	r.Ignored = append(r.Ignored, more)
}

// AddAssumption adds the description of a property that was assumed, with the source of the assumption.
func (r *Report) AddAssumption(format string, a ...any) {
	r.Assumed = append(r.Assumed, fmt.Sprintf(format, a...))
}

// AddAssumptionOnce is like AddAssumption but adds the same text only once.
func (r *Report) AddAssumptionOnce(format string, a ...any) {
	if len(a) == 0 && slices.Contains(r.Assumed, format) { // many lines add the same text
		return
	}
	if text := fmt.Sprintf(format, a...); !slices.Contains(r.Assumed, text) {
		r.Assumed = append(r.Assumed, text)
	}
}

// Problems returns the problems of the file. If there were too many to keep, the last one states
// how many more there were.
func (r *Report) Problems() []runs.Problem {
	if r.UnusedMore == 0 {
		return r.Unused
	}
	more := runs.Problem{File: r.Path, Reason: fmt.Sprintf("and %s that could not be used", english.FormatCount(r.UnusedMore, "more line"))}
	return append(r.Unused[:len(r.Unused):len(r.Unused)], more)
}

// Append adds the report of the file's next part, whose line numbers begin at 1.
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
	r.Resumptions, r.Repetitions = r.Resumptions+next.Resumptions, r.Repetitions+next.Repetitions
	r.Assumed = append(r.Assumed, next.Assumed...)
	r.Bytes += next.Bytes
	r.Records += next.Records
	r.Lines += next.Lines
	r.LinesUsed += next.LinesUsed
}

// ReasonBlank is the reason for ignoring an empty line.
const ReasonBlank = "blank"
