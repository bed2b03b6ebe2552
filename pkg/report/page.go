package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/figure"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

//go:embed page.html
var pageTemplate string

//go:embed style.css
var styleSheet string

// StyleSheet returns the CSS of a report, for other pages with the same style.
func StyleSheet() string { return styleSheet }

// pageData contains the data of the HTML template, which escapes texts. It does not escape fields
// of type template.HTML and template.CSS. Only Lockstep's packages create these, and they escape
// what the fields contain.
type pageData struct {
	Title, Subtitle string
	Style           template.CSS
	Open            bool // unfold all sections, for paper

	Verdicts  []conclusion
	Lead      *pageFigure // the speed-up, beside the verdict; nil if the study has none
	Headlines pageTable
	Results   pageTable
	Rule      []string
	Tables    []analysisSection
	Figures   []pageFigure
	Runs      pageTable
	Root      string
	Kinds     pageTable
	Files     template.HTML
	FileCount int
	RunCount  int
	MoreRuns  int // number of runs that are omitted from Runs
	MoreFiles int // number of files that are omitted from Files
	Notes     []string
	Problems  []string
	MoreNotes int // number of problems that are omitted from Problems
	Explained []explanation
}

// conclusion is a sentence about a subject, with a link to its details.
type conclusion struct{ About, Text, Link string }

type pageTable struct {
	Head []string
	Rows [][]tableCell
	More string // omitted columns and rows, and the command that lists them; empty if none are omitted
}

type tableCell struct {
	Text, Link string
	Number     bool
}

type analysisSection struct {
	ID, Title string
	HTML      template.HTML
}

type pageFigure struct {
	Name, Caption string
	SVG           template.HTML
	Wide          bool
}

type pageBuilder struct {
	study   *scaling.Study
	options Options
	root    string

	differing   *scaling.Settings // nil until differingSettings computes it
	anchors     map[string]string // anchors, by metric, series and workers
	sections    []explanation
	conclusions []conclusion // all; the page shows the first ones about each subject
}

// maxRows limits the listed runs and files, and maxInputs the rows of an explanation. Otherwise,
// the page of a study with many runs would open slowly.
const (
	maxRows   = 1000
	maxInputs = 50
)

// maxSeries and maxPoints limit the series, and the pairs of series and worker count, for which the
// page has a row, a sentence or a section.
const (
	maxSeries = 20
	maxPoints = 200
)

// describeOmitted returns a note for a list of n items of which the page shows only the first
// limit. The note states how many are omitted, and the command that lists them. what names the
// items in the plural. It returns "" if no item is omitted.
func describeOmitted(n, limit int, what, command string) string {
	if n <= limit {
		return ""
	}
	return fmt.Sprintf("and %d more %s, which %s lists", n-limit, what, command)
}

func formatNoteHTML(text string) string {
	if text == "" {
		return ""
	}
	return "\n<p class=\"note\">" + template.HTMLEscapeString(text) + "</p>"
}

// maxListedProblems limits the listed problems, because a damaged folder may have very many. The command
// lockstep read --explain lists all of them.
const maxListedProblems = 100

func (b *pageBuilder) buildPage(figures []*figure.Figure) pageData {
	s := b.study
	p := pageData{
		Title: cmp.Or(b.options.Title, s.Name(), "Scaling report"), Subtitle: b.formatSubtitle(), Style: template.CSS(styleSheet), //nolint:gosec // embedded file
		Rule: b.describeRule(), Runs: b.runTable(s.Runs[:min(len(s.Runs), maxRows)]), Root: b.root, Kinds: b.fileKindTable(), FileCount: len(s.Reports),
		RunCount: len(s.Runs), MoreRuns: max(0, len(s.Runs)-maxRows), MoreFiles: max(0, len(s.Reports)-maxRows),
	}
	// Explanations are in the order of the first links to them, so the headlines come first.
	p.Headlines = b.headlineTable()
	p.Results = b.resultTable()
	results := b.analyze()
	b.conclusions = b.allConclusions(results)
	p.Verdicts = limitConclusionsPerSubject(b.conclusions)
	for _, r := range results {
		p.Tables = append(p.Tables, analysisSection{ID: r.id, Title: r.title, HTML: b.shortenHTMLPaths(r.html)})
	}
	for _, f := range figures {
		drawn := pageFigure{
			Name: f.Name(), Caption: b.shortenPaths(f.Caption()), SVG: template.HTML(f.SVG()), //nolint:gosec // package figure escapes it
			Wide: f.Width > 7*72,
		}
		if f.Name() == "speedup" {
			p.Lead = &drawn
			continue
		}
		p.Figures = append(p.Figures, drawn)
	}
	if len(s.Reports) > 0 {
		p.Files = b.shortenHTMLPaths(s.Reports[:min(len(s.Reports), maxRows)].HTML())
	}
	for _, n := range s.Notes {
		if !slices.Contains(s.Cautions(), n) && !slices.Contains(s.Sources(), n) { // the verdict and the subtitle have them
			p.Notes = append(p.Notes, b.shortenPaths(n))
		}
	}
	p.MoreNotes = max(0, len(s.Problems)-maxListedProblems)
	for _, n := range s.Problems[:min(len(s.Problems), maxListedProblems)] {
		p.Problems = append(p.Problems, b.shortenPaths(n.String()))
	}
	p.Explained = b.sections
	return p
}

// Page returns the complete page: an HTML document that needs no other file.
func (r *Report) Page() string { return r.renderHTML(false) }

// renderHTML returns the page as HTML. If open is true, all sections are unfolded, for printing.
func (r *Report) renderHTML(open bool) string {
	p := r.page
	p.Open = open
	var out bytes.Buffer
	t, err := template.New("page").Parse(pageTemplate)
	if err == nil {
		err = t.Execute(&out, p)
	}
	if err != nil { // does not happen: the template is embedded, and writing to a buffer does not fail
		return fmt.Sprintf("<!doctype html><p>%s</p>", template.HTMLEscapeString(err.Error()))
	}
	return clean.EscapeMultiline(out.String())
}

// shortenPaths makes absolute paths in a text relative to b.root.
func (b *pageBuilder) shortenPaths(text string) string {
	if b.root == "" {
		return text
	}
	return strings.ReplaceAll(text, b.root+"/", "")
}

func (b *pageBuilder) shortenHTMLPaths(markup string) template.HTML {
	if b.root != "" {
		markup = strings.ReplaceAll(markup, template.HTMLEscapeString(b.root)+"/", "")
	}
	return template.HTML(markup) //nolint:gosec // the caller has escaped it
}

// formatSubtitle returns a line with the numbers of runs, series and workers. If runs were not
// trained here, it also states their sources.
func (b *pageBuilder) formatSubtitle() string {
	s := b.study
	var sizes []int
	for _, p := range s.Points {
		sizes = append(sizes, p.Workers)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	text := english.FormatCount(len(s.Runs), "run")
	if n := len(s.Series()); n > 1 {
		text += fmt.Sprintf(" in %d series", n)
	}
	if len(sizes) > 0 {
		text += fmt.Sprintf(" at %s worker", formatIntRanges(sizes))
		if sizes[len(sizes)-1] > 1 {
			text += "s"
		}
	}
	return strings.Join(append([]string{text}, s.Sources()...), "; ")
}

// describeRule describes the study's rule: which runs and epochs count, and how intervals are computed.
func (b *pageBuilder) describeRule() []string {
	s := b.study
	lines := []string{"Rule: " + s.Rule.String() + "."}
	if slices.ContainsFunc(s.Points, func(p scaling.Point) bool { return p.Runs > 1 }) {
		note := s.IntervalNote()
		lines = append(lines, strings.ToUpper(note[:1])+note[1:]+".")
	}
	return lines
}

// isMeasured reports whether v is finite. A value that was not measured is NaN.
func isMeasured(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// formatNumber formats v with about four digits, or as "–" if v is NaN.
func formatNumber(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return english.FormatNumber(v)
}

// formatPercent formats a fraction as a percentage, or as "–" if v is NaN.
func formatPercent(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
}

// formatIntRanges formats ascending integers as ranges, such as "1–3, 7".
func formatIntRanges(n []int) string {
	var parts []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, strconv.Itoa(n[i]))
		case 1:
			parts = append(parts, strconv.Itoa(n[i]), strconv.Itoa(n[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d–%d", n[i], n[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
