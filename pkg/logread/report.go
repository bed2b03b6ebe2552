package logread

import (
	"cmp"
	"fmt"
	"html"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// IgnoredLines is the number of lines of a file that were ignored for one reason.
type IgnoredLines struct {
	Reason string
	Lines  int64
	First  int // number of the first such line
}

// Report describes what was read from a file, what was not, and why, so that
// nothing is omitted silently.
type Report struct {
	Path        string
	Kind        string // kind of the log; empty if unknown
	Compression string // gzip, zstd, xz or bzip2; empty if the file is not compressed
	Bytes       int64  // bytes of content that were read, after decompression
	Runs        int    // number of runs in the file; 1 if it adds to a run of other files
	Records     int64  // number of epochs, trials, events, … that were read
	Lines       int64  // number of lines; 0 for a binary file
	LinesUsed   int64
	Ignored     []IgnoredLines // ignored lines by reason
	// Unused lists the first hundred problems of the file, such as lines whose value could not be
	// used. UnusedMore is the number of further ones.
	Unused     []runs.Problem
	UnusedMore int
	// Known lists the properties that identify the file's runs and are stated by the user, the
	// content, a configuration or a command, each with its source.
	Known []string
	// Assumed lists the properties that were assumed since the file does not contain them, each
	// with the source of the assumption, such as the path.
	Assumed []string
	// Outweighed lists evidence that was not used because stronger evidence contradicts it. Each is
	// listed with both sources.
	Outweighed []string
	// Columns is the number of columns if the file is a table. UnusedColumns lists
	// those that were not used, each with the reason.
	Columns       int
	UnusedColumns []string
	Rules         string // path of the RulesFile whose rules apply to the file; empty if none do
	Resumptions   int    // number of parts of runs that continue an earlier part, as after a stop
	Repetitions   int    // number of parts of the file that repeat earlier values, which count once
	Skipped       string // why the file was not read; empty if it was
	// CopyOf is the path of a run folder that was read too, if this file is a copy of its run that
	// runs.WriteStudyLog wrote. Otherwise it is empty.
	CopyOf string
}

func newReport(r *record.Report) Report {
	var ignored []IgnoredLines
	for _, i := range r.Ignored {
		ignored = append(ignored, IgnoredLines(i))
	}
	return Report{
		Path: r.Path, Kind: r.Kind, Compression: r.Compression, Bytes: r.Bytes,
		Runs: r.Runs, Records: r.Records, Lines: r.Lines, LinesUsed: r.LinesUsed,
		Ignored: ignored, Unused: r.Unused, UnusedMore: r.UnusedMore,
		Known: r.Known, Assumed: r.Assumed, Outweighed: r.Outweighed, Rules: r.Rules, Skipped: r.Skipped, CopyOf: r.CopyOf, Resumptions: r.Resumptions, Repetitions: r.Repetitions, Columns: r.Columns, UnusedColumns: r.UnusedColumns,
	}
}

// Reports contains one report per file, in natural order of the paths. A
// notebook shows it as a table.
type Reports []Report

func (r Reports) String() string {
	var b strings.Builder
	for _, one := range r {
		b.WriteString(one.String())
	}
	return b.String()
}

// Table returns a table with one row per file and the columns path, kind, runs,
// records, lines, lines_used, lines_ignored, problems, and note (why the file
// was not read, or what was assumed).
func (r Reports) Table() dataframe.DataFrame {
	var path, kind, note []string
	var found, records, lines, used, ignored, problems []int
	for _, one := range r {
		path, kind = append(path, one.Path), append(kind, one.Kind)
		note = append(note, cmp.Or(one.Skipped, strings.Join(one.Assumed, "; ")))
		found, records = append(found, one.Runs), append(records, int(one.Records))
		lines, used = append(lines, int(one.Lines)), append(used, int(one.LinesUsed))
		ignored = append(ignored, int(one.LinesIgnored()))
		problems = append(problems, len(one.Unused)+one.UnusedMore)
	}
	return dataframe.New(
		series.New(path, series.String, "path"), series.New(kind, series.String, "kind"),
		series.New(found, series.Int, "runs"), series.New(records, series.Int, "records"),
		series.New(lines, series.Int, "lines"), series.New(used, series.Int, "lines_used"),
		series.New(ignored, series.Int, "lines_ignored"), series.New(problems, series.Int, "problems"),
		series.New(note, series.String, "note"),
	)
}

// HTML returns the reports as an HTML table with one row per file. The last column contains its problems.
func (r Reports) HTML() string {
	var b strings.Builder
	b.WriteString("<table><thead><tr><th>file</th><th>kind</th><th>runs</th><th>records</th><th>lines used</th><th>notes</th></tr></thead><tbody>\n")
	for _, one := range r {
		kind := one.Kind
		if one.Compression != "" {
			kind += " (" + one.Compression + ")"
		}
		notes := one.detailLines()
		if why := one.unreadReason(); why != "" {
			notes = []string{"not read: " + why}
		}
		for i := range notes {
			notes[i] = html.EscapeString(clean.EscapeText(notes[i]))
		}
		const text = "<td style=\"text-align:left\">%s</td>" // notebooks align cells to the right
		fmt.Fprintf(&b, "<tr>"+text+text+"<td>%d</td><td>%d</td><td>%d of %d</td>"+text+"</tr>\n",
			html.EscapeString(clean.EscapeText(one.Path)), html.EscapeString(kind), one.Runs, one.Records, one.LinesUsed, one.Lines, strings.Join(notes, "<br>"))
	}
	b.WriteString("</tbody></table>")
	return b.String()
}

// LinesIgnored returns the number of ignored lines.
func (r Report) LinesIgnored() int64 {
	var n int64
	for _, i := range r.Ignored {
		n += i.Lines
	}
	return n
}

// unreadReason returns why the file was not read, or "" if it was. The file may have no problem,
// for example if its format is unknown.
func (r Report) unreadReason() string {
	if r.Skipped == "" && r.Kind == "" && len(r.Unused) > 0 {
		return r.Unused[0].Reason
	}
	return r.Skipped
}

// String returns the report as one line with the counts, followed by one line
// per assumption, reason for ignored lines, and problem.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", clean.EscapeText(r.Path))
	if why := r.unreadReason(); why != "" {
		fmt.Fprintf(&b, "not read: %s\n", clean.EscapeText(why))
		return b.String()
	}
	b.WriteString(r.Kind)
	if r.Compression != "" {
		fmt.Fprintf(&b, " (%s)", r.Compression)
	}
	fmt.Fprintf(&b, ", %s, %s", english.FormatCount(r.Runs, "run"), english.FormatCount(int(r.Records), "record"))
	if r.Lines > 0 {
		fmt.Fprintf(&b, ", %d of %d lines used", r.LinesUsed, r.Lines)
	}
	if n := len(r.UnusedColumns); n > 0 {
		fmt.Fprintf(&b, ", %d of %d columns used", r.Columns-n, r.Columns)
	}
	b.WriteByte('\n')
	for _, text := range r.detailLines() {
		fmt.Fprintf(&b, "    %s\n", clean.EscapeText(text))
	}
	return b.String()
}

func (r Report) detailLines() (all []string) {
	add := func(label string, texts ...string) {
		for _, text := range texts {
			all = append(all, label+": "+text)
		}
	}
	if r.Rules != "" {
		add("rules", r.Rules)
	}
	add("known", r.Known...)
	add("taken", r.Assumed...)
	add("outweighed", r.Outweighed...)
	for _, c := range r.UnusedColumns {
		add("ignored", "column "+c)
	}
	for _, i := range r.Ignored {
		add("ignored", fmt.Sprintf("%s, the first is line %d: %s", english.FormatCount(int(i.Lines), "line"), i.First, i.Reason))
	}
	for _, p := range r.Unused {
		if p.Line > 0 {
			p.Reason = fmt.Sprintf("line %d: %s", p.Line, p.Reason)
		}
		add("not used", p.Reason)
	}
	if r.UnusedMore > 0 {
		add("not used", english.FormatCount(r.UnusedMore, "more line"))
	}
	return all
}
