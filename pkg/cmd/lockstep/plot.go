package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot/vg"

	"lockstep/pkg/figure"
	"lockstep/pkg/scaling"
)

// plotFlags contains the flags of lockstep plot, except those of ruleFlags.
type plotFlags struct {
	out     string
	formats []string
	only    []string
	panels  bool
	fit     bool
	log2    bool
	linear  bool
	dpi     int
	options figure.Options
	// Flags of the page that --panels draws.
	title                 string
	pageWidth, pageHeight float64 // inches; 0: the size that the panels need
}

func (f *plotFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.out, "out", ".", "folder to draw into, made if it is not there; or the file of one figure or page, such as speedup.pdf")
	flags.StringSliceVar(&f.formats, "format", nil, strings.Join(figure.Formats(), ", ")+" (txt: the caption); png without")
	flags.StringSliceVar(&f.only, "only", nil, "only these figures: "+strings.Join(figure.Names(), ", ")+", or a logged metric as \"Loss/train by step\"")
	flags.BoolVar(&f.panels, "panels", false, "draw the figures as panels of one page, panels.png: those of --only, or those of the U-Net study: speed-up with IoU, time per epoch, losses, training and test time")
	flags.BoolVar(&f.fit, "fit", false, "draw the fitted law of scaling beyond what was measured; an error where nothing can be fitted")
	flags.BoolVar(&f.log2, "log2", false, "logarithmic axis of the workers; by itself from a range of 16 on")
	flags.BoolVar(&f.linear, "linear", false, "linear axis of the workers")
	flags.BoolVar(&f.options.LogY, "log-y", false, "logarithmic axis of the values")
	flags.Float64Var(&f.options.Smooth, "smooth", 0, "TensorBoard's smoothing of curves, 0 to below 1")
	flags.StringVar(&f.options.Intervals, "intervals", "", "what bars show: confidence interval (default), range, epochs (their spread, of single runs too), or none")
	flags.StringArrayVar(&f.options.Series, "series", nil, "only this series; may be repeated, in the order in which they are drawn")
	flags.IntSliceVar(&f.options.Workers, "curves", nil, "only these numbers of workers have curves of loss")
	flags.StringVar(&f.options.Law, "law", "", "law that --fit draws: linear, amdahl, gustafson or usl; the best without")
	flags.IntVar(&f.options.Beyond, "beyond", 0, "workers up to which a law is drawn; twice the most without")
	flags.Float64Var(&f.options.Rate, "price", 0, "price of a device-hour, for the figure pareto")
	flags.StringVar(&f.options.Currency, "currency", "", "of the price")
	flags.StringVar(&f.options.Run, "run", "", "run of the timeline, or a part of its name")
	flags.IntVar(&f.options.FirstStep, "first-step", 0, "first step of the timeline; in the middle of the run without")
	flags.IntVar(&f.options.Steps, "steps", 0, "steps of the timeline; 3 without")
	flags.IntVar(&f.dpi, "dpi", 0, "pixels an inch of a PNG; 150 without")
	flags.Float64Var(&f.options.WidthInches, "width", 0, "inches of a picture, such as 3.5 for a column of a paper; with --panels of the page; 6.4 without")
	flags.Float64Var(&f.options.HeightInches, "height", 0, "inches of a picture; what the figure needs without")
	flags.Float64Var(&f.options.FontSize, "font-size", 0, "points of the labels; what suits the size without")
	flags.StringVar(&f.options.Legend, "legend", "", "where the legend is: top, bottom, right or none; where there is most room without")
	flags.StringVar(&f.options.Title, "title", "", "title of the one figure or page that is drawn")
	flags.StringVar(&f.options.XLabel, "x-label", "", "label of the horizontal axis of the one figure that is drawn")
	flags.StringVar(&f.options.YLabel, "y-label", "", "label of the vertical axis of the one figure that is drawn")
	flags.BoolVar(&f.options.NoTitle, "no-title", false, "no titles, for a paper that has captions")
}

// validate checks the flags before anything is read.
func (f *plotFlags) validate() error {
	for _, x := range f.formats {
		if !slices.Contains(figure.Formats(), x) {
			return fmt.Errorf("format %q is not known: use %s", x, strings.Join(figure.Formats(), ", "))
		}
	}
	if unknown := f.unknown(); len(f.only) > 0 && len(unknown) == len(f.only) {
		return errors.Join(unknown...)
	}
	switch {
	case f.file() && !f.panels && (len(f.only) != 1 || f.fit):
		return fmt.Errorf("--out %s is one file: draw one figure with --only, or a page with --panels", f.out)
	case f.file() && f.formats != nil:
		return fmt.Errorf("--out %s says the format already: leave --format out, or name a folder", f.out)
	case f.options.Title != "" && !f.panels && len(f.only) != 1 || f.options.XLabel+f.options.YLabel != "" && (f.panels || len(f.only) != 1):
		return errors.New("--title, --x-label and --y-label are those of one figure: name it with --only")
	case f.dpi < 0:
		return fmt.Errorf("--dpi is %d: use pixels an inch, such as 300", f.dpi)
	case f.log2 && f.linear:
		return errors.New("--log2 and --linear are each other's opposite")
	case f.log2:
		f.options.Scale = figure.Log2
	case f.linear:
		f.options.Scale = figure.Linear
	}
	if err := f.options.Validate(); err != nil {
		return err
	}
	if f.panels { // the page's size replaces these flags
		f.title, f.pageWidth, f.pageHeight = f.options.Title, f.options.WidthInches, f.options.HeightInches
		f.options.Title, f.options.WidthInches, f.options.HeightInches = "", 0, 0
	}
	return nil
}

// known reports whether there is a figure of the given name, or whether the name is of
// the form for a logged metric.
func known(name string) bool {
	return slices.Contains(figure.Names(), name) || strings.Contains(name, " by ")
}

// unknown returns an error for each name in --only that is not the name of a figure.
func (f *plotFlags) unknown() []error {
	var all []error
	for _, name := range f.only {
		if !known(name) {
			_, err := figure.Make(name, nil)
			all = append(all, err)
		}
	}
	return all
}

// file reports whether the output is one file and not a folder.
func (f *plotFlags) file() bool {
	return slices.Contains(figure.Formats(), strings.TrimPrefix(strings.ToLower(filepath.Ext(f.out)), "."))
}

// paths returns the paths of a figure's files.
func (f *plotFlags) paths(name string) []string {
	switch {
	case f.file():
		return []string{f.out}
	case len(f.formats) == 0:
		return []string{filepath.Join(f.out, name+".png")}
	}
	var all []string
	for _, x := range f.formats {
		all = append(all, filepath.Join(f.out, name+"."+x))
	}
	return all
}

// onPage is the least number of panels on a page if no panels were named, provided that
// there are enough figures.
const onPage = 4

// studyPanels returns the names of the panels of the U-Net scaling study.
func studyPanels() []string {
	return []string{"speedup_iou", "epoch_time", "loss_by_epoch", "loss_by_time", "train_test_time"}
}

// panelFigures draws the panels of a page if none were named: the panels of the U-Net
// study. If the logs lack data for some of them, the first other figures take their
// place.
func (f *plotFlags) panelFigures(s *scaling.Study) ([]*figure.Figure, error) {
	all, err := f.options.First(s, math.MaxInt)
	if err != nil {
		return nil, err
	}
	var page, others []*figure.Figure
	for _, x := range all {
		if slices.Contains(studyPanels(), x.Name()) {
			page = append(page, x)
		} else {
			others = append(others, x)
		}
	}
	slices.SortFunc(page, func(a, b *figure.Figure) int {
		return slices.Index(studyPanels(), a.Name()) - slices.Index(studyPanels(), b.Name())
	})
	if missing := onPage - len(page); missing > 0 {
		page = append(page, others[:min(missing, len(others))]...)
	}
	return page, nil
}

// figures draws the requested figures. notDrawn explains, for each named figure that was
// not drawn, why; it is an error if no figure could be drawn. If no figures were named,
// those without data are omitted.
func (f *plotFlags) figures(s *scaling.Study) (figures []*figure.Figure, notDrawn []error, err error) {
	if len(f.only) == 0 {
		figures, err = f.all(s)
		return figures, nil, err
	}
	for _, name := range f.only {
		if !known(name) {
			continue
		}
		one, err := f.options.Make(name, s)
		if err != nil {
			notDrawn = append(notDrawn, err)
			continue
		}
		figures = append(figures, one)
	}
	if f.fit && !slices.Contains(f.only, "fit") {
		fit, err := f.options.Fit(s)
		if err != nil {
			return nil, nil, err
		}
		figures = append(figures, fit)
	}
	if len(figures) == 0 {
		return nil, nil, errors.Join(notDrawn...)
	}
	return figures, notDrawn, nil
}

// all draws all figures that the study has data for, and the fitted scaling model if
// requested.
func (f *plotFlags) all(s *scaling.Study) ([]*figure.Figure, error) {
	draw := f.panelFigures
	if !f.panels {
		draw = f.options.All
	}
	all, err := draw(s)
	if err != nil {
		return nil, err
	}
	if f.fit && !slices.ContainsFunc(all, func(x *figure.Figure) bool { return x.Name() == "fit" }) {
		fit, err := f.options.Fit(s)
		if err != nil {
			return nil, err
		}
		all = append(all, fit)
	}
	return all, nil
}

// page arranges the figures on one page of the requested size.
func (f *plotFlags) page(title string, figures []*figure.Figure) (*figure.Figure, error) {
	switch {
	case f.options.NoTitle:
		title = ""
	case f.title != "":
		title = f.title
	}
	page, err := figure.Panels(title, figures...)
	if err != nil {
		return nil, err
	}
	if f.pageWidth > 0 { // if no height is given, it follows from the width
		page.Height *= vg.Length(f.pageWidth) * vg.Inch / page.Width
		page.Width = vg.Length(f.pageWidth) * vg.Inch
	}
	if f.pageHeight > 0 {
		page.Height = vg.Length(f.pageHeight) * vg.Inch
	}
	return page, nil
}

// reportNotDrawn explains which named figures were not drawn. Missing data are a notice.
// An unknown name, or a size at which a figure would be illegible, is an error.
func (f *plotFlags) reportNotDrawn(c *cobra.Command, notDrawn []error) error {
	var failed []error
	for _, err := range notDrawn {
		var small *figure.SizeError
		if errors.As(err, &small) {
			failed = append(failed, err)
			continue
		}
		fmt.Fprintf(c.ErrOrStderr(), "lockstep: not drawn: %v\n", err)
	}
	unknown := f.unknown()
	if err := errors.Join(append(failed, unknown...)...); len(unknown) > 0 {
		return usage(err)
	}
	return errors.Join(failed...)
}

// draw writes the files of the figures and prints their paths.
func (f *plotFlags) draw(c *cobra.Command, figures []*figure.Figure) error {
	for _, fig := range figures {
		fig.DPI = f.dpi
		for _, path := range f.paths(fig.Name()) {
			if err := fig.Save(path); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), path)
		}
	}
	return nil
}

func plotCommand() *cobra.Command {
	var rule ruleFlags
	var f plotFlags
	c := &cobra.Command{
		Use:   "plot PATH…",
		Short: "Draw the figures of a folder of logs",
		Long: `Draws into a folder what the logs have numbers for: time per epoch, throughput,
speed-up with the ideal line, efficiency, IoU, speed-up and IoU in one picture,
losses, learning rate, training and test time, trials, weak and strong scaling,
the overhead of communication, fitted laws, time against cost, quality against
the batch, where a step's time goes, and a timeline of the ranks.

  lockstep plot logs/unet2d-cells --out figures --format png,svg
  lockstep plot logs/unet2d-cells --only speedup,iou --format pdf,csv,txt,tex
  lockstep plot logs/unet2d-cells --panels --out page.png

A figure that --only names and that cannot be drawn is no reason to leave the
others out: what the logs lack is said, an unknown name ends with exit code 2.

txt is the caption, which says how the numbers came about and of how many runs;
tex is a table for LaTeX.`,
		Args: someArgs("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return usage(err)
			}
			s, err := rule.read(c, args)
			if err != nil {
				return err
			}
			figures, notDrawn, err := f.figures(s)
			if err != nil {
				return err
			}
			if f.panels {
				page, err := f.page(s.Name(), figures)
				if err != nil {
					return err
				}
				figures = []*figure.Figure{page}
			}
			if err := f.draw(c, figures); err != nil {
				return err
			}
			return f.reportNotDrawn(c, notDrawn)
		},
	}
	f.add(c)
	rule.add(c)
	return c
}
