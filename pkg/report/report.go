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

// Options say what a report holds. The zero value is a report of everything
// that the study has numbers for, without prices.
type Options struct {
	// Title stands at the top; empty for the study's name.
	Title string
	// Figures say how figures are drawn, and of which series.
	Figures figure.Options
	// Only are the figures that are drawn, by name (figure.Names); empty for
	// every one that the study has numbers for.
	Only []string
	// Costs adds time against device-hours. Price is that of a device-hour, in
	// Currency; it implies Costs.
	Costs    bool
	Price    float64
	Currency string
	// Budget in device-hours adds how many workers it buys; 0 adds nothing.
	Budget float64
}

// Validate reports the first field that cannot be.
func (o Options) Validate() error {
	switch {
	case !(o.Price >= 0) || math.IsInf(o.Price, 0):
		return fmt.Errorf("validate report options: Price is %g: use the price of a device-hour, 0 or more", o.Price)
	case !(o.Budget >= 0) || math.IsInf(o.Budget, 0):
		return fmt.Errorf("validate report options: Budget is %g: use device-hours, 0 or more", o.Budget)
	}
	return o.Figures.Validate()
}

// Report is a study as a page.
type Report struct {
	// Title stands at the top.
	Title string
	// Sentences are the verdict: what the study shows, a thing each.
	Sentences []string
	// Figures are those of the page, in their order.
	Figures []*figure.Figure

	page page
}

// New makes the report of a study. What the study has no numbers for is left
// out; a figure that Options.Only names is an error then.
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
	figures, err := draw(study, options)
	if err != nil {
		return nil, fmt.Errorf("make report: %w", err)
	}
	b := &builder{study: study, options: options, root: rootOf(study), explained: map[string]string{}}
	p := b.page(figures)
	r := &Report{Title: p.Title, Figures: figures, page: p}
	for _, v := range b.said {
		r.Sentences = append(r.Sentences, v.Text)
	}
	return r, nil
}

// draw makes the figures. A study without a number to draw has none.
func draw(study *scaling.Study, options Options) ([]*figure.Figure, error) {
	if len(options.Only) == 0 {
		all, err := options.Figures.All(study)
		if err != nil {
			return nil, nil //nolint:nilerr // the page says in its tables what there is
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

// String is the verdict for people in a terminal, a line each.
func (r *Report) String() string {
	return r.Title + "\n  " + strings.Join(r.Sentences, "\n  ") + "\n"
}

// HTML is the verdict for a notebook's cell; Page is the whole of it.
func (r *Report) HTML() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<h3>%s</h3>\n<ul>\n", html.EscapeString(r.Title))
	for _, s := range r.Sentences {
		fmt.Fprintf(&b, "<li>%s</li>\n", html.EscapeString(s))
	}
	fmt.Fprintf(&b, "</ul>\n<p><small>%s; Save(ctx, \"report.html\") or Save(ctx, \"report.pdf\") writes the page.</small></p>\n", plural(len(r.Figures), "figure"))
	return b.String()
}

// rootOf is the folder that all files of a study lie in, so that the page can
// name them shortly; empty where there is none.
func rootOf(study *scaling.Study) string {
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

// plural is a count with its noun.
func plural(n int, noun string) string { return english.Count(n, noun) }
