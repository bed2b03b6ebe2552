package report

import (
	"errors"
	"fmt"
	"html"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/figure"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// Options select the contents of a report. The zero value selects everything that the study has
// data for, except prices.
type Options struct {
	// Title is the heading. Empty means the study's name.
	Title string
	// Figures are the options for drawing figures. If Figures.Series is set, the report covers only
	// these series.
	Figures figure.Options
	// Only lists the names of the figures to draw (see figure.Names). Empty means all figures that
	// the study has data for.
	Only []string
	// Costs adds a figure of time against device-hours. Price is the price of one device-hour in
	// Currency; if it is not 0, it implies Costs.
	Costs    bool
	Price    float64
	Currency string
	// Budget is a number of device-hours. If it is not 0, the report states the number of workers
	// at which Project fits into the budget.
	Budget  float64
	Project scaling.Project
}

// Validate returns an error for the first invalid field.
func (o Options) Validate() error {
	switch {
	case !(o.Price >= 0) || math.IsInf(o.Price, 0):
		return fmt.Errorf("invalid --price %g: use the price of a device-hour, 0 or more", o.Price)
	case !(o.Budget >= 0) || math.IsInf(o.Budget, 0):
		return fmt.Errorf("invalid --budget %g: use a number of device-hours, 0 or more", o.Budget)
	}
	return o.Figures.Validate()
}

// Report is a page with a study's results. Page, HTML and String show it.
type Report struct {
	Title string
	// Sentences are the conclusions from the study, one for each result.
	Sentences []string
	// Figures are the figures in the order in which the page shows them.
	Figures []*figure.Figure

	page pageData
}

// New returns the report of a study. It omits figures and sections without data, but returns an
// error if Options.Only names a figure without data.
func New(study *scaling.Study, options Options) (*Report, error) {
	if study == nil {
		return nil, errors.New("make report: no study; read one with scaling.Read")
	}
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("make report: %w", err)
	}
	if len(options.Figures.Series) > 0 {
		only, err := study.Only(options.Figures.Series...)
		if err != nil {
			return nil, fmt.Errorf("make report: %w", err)
		}
		study = only
	}
	if options.Price > 0 {
		options.Figures.Rate, options.Figures.Currency = options.Price, options.Currency
	}
	figures, err := drawFigures(study, options)
	if err != nil {
		return nil, fmt.Errorf("make report: %w", err)
	}
	b := &pageBuilder{study: study, options: options, root: commonFolder(study), anchors: map[string]string{}}
	p := b.buildPage(figures)
	r := &Report{Title: p.Title, Figures: figures, page: p}
	for _, v := range b.conclusions {
		r.Sentences = append(r.Sentences, v.Text)
	}
	return r, nil
}

// drawFigures draws the figures that options selects. It returns nil if Options.Only is empty and the
// study has no data for any figure.
func drawFigures(study *scaling.Study, options Options) ([]*figure.Figure, error) {
	if len(options.Only) == 0 {
		all, err := options.Figures.All(study)
		if err != nil {
			return nil, nil //nolint:nilerr // the page has the study's tables even without figures
		}
		if used, err := options.Figures.Usage(study); err == nil { // else usage was not recorded
			all = append(all, used)
		}
		return all, nil
	}
	figures := make([]*figure.Figure, len(options.Only))
	for i, name := range options.Only {
		f, err := options.Figures.Make(name, study)
		if err != nil {
			return nil, err
		}
		figures[i] = f
	}
	return figures, nil
}

// String returns the title and the conclusions as text, one per line.
func (r *Report) String() string {
	return r.Title + "\n  " + strings.Join(r.Sentences, "\n  ") + "\n"
}

// HTML returns the conclusions for a notebook cell. Page returns the complete page.
func (r *Report) HTML() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<h3>%s</h3>\n<ul>\n", html.EscapeString(r.Title))
	for _, s := range r.Sentences {
		fmt.Fprintf(&b, "<li>%s</li>\n", html.EscapeString(s))
	}
	fmt.Fprintf(&b, "</ul>\n<p><small>%s; Save(ctx, \"report.html\") or Save(ctx, \"report.pdf\") writes the page.</small></p>\n", english.FormatCount(len(r.Figures), "figure"))
	return b.String()
}

// commonFolder returns the deepest folder that contains all files of a study, or "" if there is
// none. The page shows paths relative to it.
func commonFolder(study *scaling.Study) string {
	var dirs []string
	for _, f := range study.Reports {
		dirs = append(dirs, filepath.Dir(f.Path))
	}
	if len(dirs) == 0 {
		for _, r := range study.Runs {
			if filepath.IsAbs(r.Dir) {
				dirs = append(dirs, filepath.Dir(r.Dir))
			}
		}
	}
	if len(dirs) == 0 {
		return ""
	}
	common := strings.Split(dirs[0], string(filepath.Separator))
	for _, d := range dirs[1:] {
		parts := strings.Split(d, string(filepath.Separator))
		n := 0
		for n < min(len(common), len(parts)) && common[n] == parts[n] {
			n++
		}
		common = common[:n]
	}
	root := strings.Join(common, string(filepath.Separator))
	if slices.Contains([]string{"", "."}, root) {
		return ""
	}
	return root
}
