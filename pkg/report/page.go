package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/figure"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/scaling"
)

//go:embed page.html
var pageText string

//go:embed style.css
var styleText string

// page is what the template shows. Text is escaped there; only what packages
// of ours made as HTML or SVG (and escaped themselves) is taken as it is.
type page struct {
	Title, Subtitle string
	Style           template.CSS
	Open            bool // what can be folded is unfolded: on paper nothing unfolds

	Verdicts  []verdict
	Headlines table
	Results   table
	Rule      []string
	Tables    []shown
	Figures   []drawn
	Runs      table
	Root      string
	Kinds     table
	Files     template.HTML
	FileCount int
	RunCount  int
	MoreRuns  int // not in Runs
	MoreFiles int // not in Files
	Notes     []string
	Problems  []string
	MoreNotes int
	Explained []explained
}

// verdict is a sentence with the word that says what it is about.
type verdict struct{ About, Text, Link string }

// table is one of ours, whose cells may link.
type table struct {
	Head []string
	Rows [][]cell
	More string // what of the table the page leaves out, and what lists it; empty if nothing
}

type cell struct {
	Text, Link string
	Number     bool
}

// shown is a result that shows itself.
type shown struct {
	ID, Title string
	HTML      template.HTML
}

type drawn struct {
	Name, Caption string
	SVG           template.HTML
	Wide          bool
}

// builder collects a page.
type builder struct {
	study   *scaling.Study
	options Options
	root    string

	differing *scaling.Settings // nil until asked for
	explained map[string]string // anchors, by metric, series and workers
	sections  []explained
	said      []verdict // all of them; the page has the first about each thing
}

// mostRows bounds the runs, and the files, that are listed, and mostInputs the rows
// of a number that is explained: a page of many runs would take longer to open
// than to make.
const (
	mostRows   = 1000
	mostInputs = 50
)

// mostSeries bounds the series, and mostPoints the series at a worker count, that
// the page has a row, a sentence or a section for.
const (
	mostSeries = 20
	mostPoints = 200
)

// more says how many of n things the page leaves out, and which command lists them;
// empty if it leaves out none.
func more(n, most int, what, command string) string {
	if n <= most {
		return ""
	}
	return fmt.Sprintf("and %d more %s, which %s lists", n-most, what, command)
}

// note returns a text as a paragraph of the page; nothing for none.
func note(text string) string {
	if text == "" {
		return ""
	}
	return "\n<p class=\"note\">" + escape(text) + "</p>"
}

// mostProblems bounds what is listed of the problems: a damaged tree may have
// very many, and lockstep read --explain has them all.
const mostProblems = 100

// page puts everything together.
func (b *builder) page(figures []*figure.Figure) page {
	s := b.study
	p := page{
		Title: b.options.Title, Subtitle: b.subtitle(), Style: template.CSS(styleText), //nolint:gosec // it is ours
		Rule: b.rule(), Runs: b.runs(s.Runs[:min(len(s.Runs), mostRows)]), Root: b.root, Kinds: b.kinds(), FileCount: len(s.Reports),
		RunCount: len(s.Runs), MoreRuns: max(0, len(s.Runs)-mostRows), MoreFiles: max(0, len(s.Reports)-mostRows),
	}
	if p.Title == "" {
		p.Title = s.Name()
	}
	if p.Title == "" {
		p.Title = "Scaling report"
	}
	// The anchors of the numbers are made as they are first linked to, those of
	// the headlines first.
	p.Headlines = b.headlines()
	p.Results = b.results()
	results := b.analyses()
	b.said = b.verdicts(results)
	p.Verdicts = fewOfEach(b.said)
	for _, r := range results {
		p.Tables = append(p.Tables, shown{ID: r.id, Title: r.title, HTML: b.short(r.html)})
	}
	for _, f := range figures {
		p.Figures = append(p.Figures, drawn{
			Name: f.Name(), Caption: b.shorter(f.Caption()), SVG: template.HTML(f.SVG()), //nolint:gosec // package figure escapes it
			Wide: f.Width > 7*72,
		})
	}
	if len(s.Reports) > 0 {
		p.Files = b.short(s.Reports[:min(len(s.Reports), mostRows)].HTML())
	}
	for _, n := range s.Notes {
		p.Notes = append(p.Notes, b.shorter(n))
	}
	for _, n := range s.Problems {
		if len(p.Problems) == mostProblems {
			p.MoreNotes = len(s.Problems) - mostProblems
			break
		}
		p.Problems = append(p.Problems, b.shorter(n.String()))
	}
	p.Explained = b.sections
	return p
}

// Page is the whole page: an HTML document that needs no other file.
func (r *Report) Page() string { return r.render(false) }

// render is the page for a screen, or unfolded for paper.
func (r *Report) render(open bool) string {
	p := r.page
	p.Open = open
	var out bytes.Buffer
	t, err := template.New("page").Parse(pageText)
	if err == nil {
		err = t.Execute(&out, p)
	}
	if err != nil { // the template is ours, and a buffer does not fail
		return fmt.Sprintf("<!doctype html><p>%s</p>", template.HTMLEscapeString(err.Error()))
	}
	return clean.Lines(out.String())
}

// shorter names files as they lie below the root.
func (b *builder) shorter(text string) string {
	if b.root == "" {
		return text
	}
	return strings.ReplaceAll(text, b.root+"/", "")
}

// short does the same in what is HTML already.
func (b *builder) short(markup string) template.HTML {
	if b.root != "" {
		markup = strings.ReplaceAll(markup, template.HTMLEscapeString(b.root)+"/", "")
	}
	return template.HTML(markup) //nolint:gosec // its maker escapes it
}

// subtitle says in a line what the page is about.
func (b *builder) subtitle() string {
	s := b.study
	var sizes []int
	for _, p := range s.Points {
		if !slices.Contains(sizes, p.Workers) {
			sizes = append(sizes, p.Workers)
		}
	}
	slices.Sort(sizes)
	text := plural(len(s.Runs), "run")
	if n := len(s.Series()); n > 1 {
		text += fmt.Sprintf(" in %d series", n)
	}
	if len(sizes) > 0 {
		text += fmt.Sprintf(" at %s worker", ranges(sizes))
		if sizes[len(sizes)-1] > 1 {
			text += "s"
		}
	}
	return text
}

// rule is by what the numbers were made, a line each.
func (b *builder) rule() []string {
	s := b.study
	lines := []string{"Rule: " + s.Rule.String() + "."}
	if slices.ContainsFunc(s.Points, func(p scaling.Point) bool { return p.Runs > 1 }) {
		lines = append(lines, s.IntervalNote())
	}
	return lines
}

// known says whether v was measured.
func known(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// number is v for people: four digits, as the other tables have them.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return "–"
	case math.IsInf(v, 0) || a != 0 && (a < 1e-3 || a >= 1e7):
		return strconv.FormatFloat(v, 'g', 4, 64)
	case a >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a >= 0.1 || a == 0:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// percent is a share for people.
func percent(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
}

// ranges are ascending numbers for people: 1–3, 7.
func ranges(n []int) string {
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
