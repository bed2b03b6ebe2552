package course

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"

	"lockstep/pkg/course/internal/ipynb"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/report"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

//go:embed page.html
var pageTemplate string

// Page is an HTML or PDF page with a notebook's answers, for the hand-in. It uses neither network
// nor scripts, and shows outputs only as text and images, so that a teacher can open it safely.
type Page struct {
	Title, Subtitle string
	Style           template.CSS
	Tasks           []pageTask
}

type pageTask struct {
	ID, Name string
	Text     template.HTML
	Done     bool
	State    string
	Parts    []pagePart
	Numbers  []pageNumber
	Logs     []pageLog
}

// pagePart is the content of one cell of an answer.
type pagePart struct {
	Text    template.HTML
	Code    string
	Printed string
	Images  []pageImage
}

type pageImage struct {
	Alt    string
	Source template.URL
}

// pageNumber is a number of an answer, with its formula and the places of its inputs.
type pageNumber struct {
	Key, Value, Formula string
	Where               []string
}

type pageLog struct {
	Name  string
	Lines []string
}

const (
	mostPrinted  = 4000 // bytes of a cell's text output on the page
	mostLogLines = 30   // lines of one log
	mostWhere    = 12   // places of one number
)

// NewPage makes a page from the notebook at path, with its outputs, and from the runs that its
// answers name. student is the name on the page and may be empty.
func NewPage(ctx context.Context, path, student string, all Tasks) (*Page, error) {
	nb, err := ipynb.Read(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	own := all.of(notebookName(path))
	if len(own) == 0 {
		return nil, fmt.Errorf("report %s: no tasks for a notebook of this name; keep the released notebook's name", path)
	}
	p := &Page{Title: notebookTitle(nb, path), Style: template.CSS(report.StyleSheet())} //nolint:gosec // embedded file
	locate := newRunLocator(path)
	done, next := 0, 0
	shown := map[string]bool{} // logs of an earlier task
	for _, t := range own {
		one := pageTask{ID: t.GradeID(), Name: fmt.Sprintf("Task %s (%s)", t.ID, t.formatPoints()), Text: renderMarkdown(t.Text)}
		var cells []*ipynb.Cell
		cells, next = t.findCells(nb, next)
		for _, c := range cells {
			if part, ok := t.newPagePart(c); ok {
				one.Parts = append(one.Parts, part)
			}
		}
		if err := t.fillPageTask(ctx, &one, nb, locate); err != nil {
			return nil, err
		}
		one.Logs = slices.DeleteFunc(one.Logs, func(log pageLog) bool { return shown[log.Name] })
		for _, log := range one.Logs {
			shown[log.Name] = true
		}
		if one.Done {
			done++
		}
		p.Tasks = append(p.Tasks, one)
	}
	p.Subtitle = fmt.Sprintf("%d of %s answered", done, english.FormatCount(len(own), "task"))
	if student != "" {
		p.Subtitle = student + ", " + p.Subtitle
	}
	return p, nil
}

// notebookTitle returns the first heading of a notebook, or its file name.
func notebookTitle(nb *ipynb.Notebook, path string) string {
	for _, c := range nb.Cells {
		if heading, ok := strings.CutPrefix(c.Source, "# "); ok && c.Type == ipynb.Markdown {
			first, _, _ := strings.Cut(heading, "\n")
			return first
		}
	}
	return notebookName(path)
}

// findCells returns the task's cells, from index start to the last cell of the task. next is the
// index after them, or start if the task has no cell.
func (t *Task) findCells(nb *ipynb.Notebook, start int) (cells []*ipynb.Cell, next int) {
	last := -1
	for i, c := range nb.Cells {
		if c.Grading != nil && (c.Grading.ID == t.GradeID() || c.Grading.ID == t.answerCellID()) {
			last = i
		}
	}
	if last < start {
		return nil, start
	}
	for last+1 < len(nb.Cells) && !startsSection(nb.Cells[last+1]) { // what the notebook shows about the task
		last++
	}
	return nb.Cells[start : last+1], last + 1
}

func startsSection(c *ipynb.Cell) bool {
	return c.Grading != nil || c.Type == ipynb.Markdown && strings.HasPrefix(c.Source, "#")
}

// newPagePart returns the part of a cell that the page shows: the student's text and code, printed
// text, and images. ok is false if there is nothing to show.
func (t *Task) newPagePart(c *ipynb.Cell) (part pagePart, ok bool) {
	own := c.Grading != nil && c.Grading.Solution
	switch {
	case c.Type == ipynb.Markdown && own && strings.TrimSpace(c.Source) != textStub:
		part.Text = renderMarkdown(c.Source)
		return part, true
	case c.Type != ipynb.Code:
		return part, false
	}
	if own || c.Grading == nil && t.Kind != KindText {
		part.Code = c.Source
	}
	for _, o := range c.Outputs {
		switch {
		case o.Type == "stream" && o.Name == "stdout" && part.Code != "":
			part.Printed += string(o.Text)
		case o.DataText("image/png") != "":
			part.Images = append(part.Images, newImage("image/png", o.DataText("image/png")))
		case o.DataText("image/svg+xml") != "":
			part.Images = append(part.Images, newImage("image/svg+xml", base64.StdEncoding.EncodeToString([]byte(o.DataText("image/svg+xml")))))
		case inlineImage.MatchString(o.DataText("text/html")): // such as the speed-up below the table of a sweep
			found := inlineImage.FindStringSubmatch(o.DataText("text/html"))
			part.Images = append(part.Images, newImage(found[1], found[2]))
		case part.Code != "": // a table or a value
			part.Printed += strings.TrimSuffix(o.DataText("text/plain"), "\n") + "\n"
		}
	}
	if len(part.Printed) > mostPrinted {
		part.Printed = part.Printed[:mostPrinted] + "\n…"
	}
	part.Printed = clean.EscapeMultiline(strings.ToValidUTF8(part.Printed, "�"))
	return part, part.Code != "" || part.Images != nil
}

var inlineImage = regexp.MustCompile(`<img [^>]*src="data:(image/(?:png|svg\+xml));base64,([A-Za-z0-9+/=]+)"`)

// newImage returns an image from base64 data. An SVG is safe, because it cannot run scripts inside
// an img element.
func newImage(mime, data string) pageImage {
	data = strings.Map(func(r rune) rune {
		if strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", r) {
			return r
		}
		return -1
	}, data)
	return pageImage{"figure", template.URL("data:" + mime + ";base64," + data)} //nolint:gosec // only base64
}

// fillPageTask adds the state of the task, the origin of its numbers, and lines of the runs' logs.
func (t *Task) fillPageTask(ctx context.Context, one *pageTask, nb *ipynb.Notebook, locate func(RunReference) (string, error)) error {
	state := t.notebookState(ctx, nb, locate)
	reason, _, _ := strings.Cut(state.Reason, "\n"+t.hintAdvice(0)) // the page is for the teacher
	one.Done, one.State = state.Done, reason
	if state.Done && t.Kind != KindText {
		one.State = strings.TrimSuffix("right, computed again when this page was written; "+reason, "; ")
	}
	if t.Kind == KindText || t.Kind == KindCode || !state.Done {
		if t.Kind == KindCode && state.Done {
			one.State = "right for the inputs of the check"
		}
		return ctx.Err()
	}
	a, err := t.findStoredAnswer(nb)
	if err != nil {
		return err
	}
	var all []runs.Run
	for _, reference := range a.Runs {
		dir, err := locate(reference)
		if err != nil {
			return err
		}
		r, err := runs.Read(dir)
		if err != nil {
			return err
		}
		all = append(all, r)
		logs, err := readLogExcerpts(dir, reference.Run)
		if err != nil {
			return err
		}
		one.Logs = append(one.Logs, logs...)
	}
	e, err := t.collectEvidence(ctx, all)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(a.Values)) {
		one.Numbers = append(one.Numbers, e.newPageNumber(key, a.Values[key]))
	}
	return nil
}

func (e *answerEvidence) newPageNumber(key string, value any) pageNumber {
	n, isNumber := e.task.Numbers[key]
	number := pageNumber{Key: key, Value: fmt.Sprint(value)}
	if v, err := answerToFloat(value); err == nil {
		number.Value = strings.TrimSuffix(english.FormatNumber(v), ".0")
	}
	switch {
	case !isNumber:
		number.Formula = e.task.Choices[key].Options[number.Value]
	case n.Metric == largestBatch:
		number.Formula = fmt.Sprintf("%s of %s in %s", metricNames[n.Metric], n.Config, n.Memory)
	default:
		study, err := scaling.FromRuns(e.runs[n.Config])
		if err != nil {
			break
		}
		explained, err := n.explainValue(study)
		if err != nil {
			break
		}
		item := explained.Items[0]
		number.Formula = strings.TrimSpace(item.Formula + " = " + item.Substituted)
		for _, in := range item.Inputs {
			place := shortPath(in.File)
			if in.Line > 0 {
				place += fmt.Sprintf(":%d", in.Line)
			}
			if in.Counted && len(number.Where) < mostWhere && !slices.Contains(number.Where, place) {
				number.Where = append(number.Where, place)
			}
		}
	}
	return number
}

// shortPath returns the last three elements of a path: STUDY/RUN/FILE.
func shortPath(path string) string {
	elements := strings.Split(filepath.ToSlash(path), "/")
	return strings.Join(elements[max(0, len(elements)-3):], "/")
}

// isRelevantLogLine reports whether the page shows a line of a log: configuration, epoch times, the
// end, or errors.
var isRelevantLogLine = regexp.MustCompile(`Configuration name|global_batch_size|parameters,|Time taken for epoch|DONE|done in|[Ee]rror|out of memory`).MatchString

// readLogExcerpts reads the relevant lines of a run's log and of the error files of its job.
func readLogExcerpts(dir, name string) ([]pageLog, error) {
	var logs []pageLog
	paths := []string{filepath.Join(dir, "out.log")}
	more, err := filepath.Glob(filepath.Join(dir, "*.err"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(paths, more...) {
		log := pageLog{Name: name + "/" + filepath.Base(path)}
		f, err := os.Open(path)
		if err != nil {
			continue // a run of another version may have no log
		}
		lines := bufio.NewScanner(f)
		for number := 1; lines.Scan() && len(log.Lines) < mostLogLines; number++ {
			if text := lines.Text(); path != paths[0] || isRelevantLogLine(text) {
				log.Lines = append(log.Lines, fmt.Sprintf("%4d  %s", number, clean.EscapeText(text)))
			}
		}
		_ = f.Close() // it was only read
		if log.Lines != nil {
			logs = append(logs, log)
		}
	}
	return logs, nil
}

// renderMarkdown converts Markdown to HTML. HTML in the Markdown is escaped, so that an answer such
// as "<at most>" remains visible.
func renderMarkdown(text string) template.HTML {
	var b bytes.Buffer
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(htmlEscaper{}, 1))))
	if err := markdown.Convert([]byte(text), &b); err != nil {
		return template.HTML("<p>" + template.HTMLEscapeString(text) + "</p>") //nolint:gosec // escaped
	}
	return template.HTML(b.String()) //nolint:gosec // goldmark escapes raw HTML
}

// htmlEscaper renders HTML inside Markdown as escaped text.
type htmlEscaper struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (htmlEscaper) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			template.HTMLEscape(w, n.(*ast.RawHTML).Segments.Value(source))
		}
		return ast.WalkSkipChildren, nil
	})
	r.Register(ast.KindHTMLBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			block := n.(*ast.HTMLBlock)
			template.HTMLEscape(w, block.Lines().Value(source))
			if block.HasClosure() {
				template.HTMLEscape(w, block.ClosureLine.Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
}

// Save writes the page to a file, .html or .pdf; see report.SavePage.
func (p *Page) Save(ctx context.Context, path string) error {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return err
	}
	var b strings.Builder
	if err := t.Execute(&b, p); err != nil {
		return err
	}
	return report.SavePage(ctx, path, func(bool) string { return b.String() })
}
