package analysis

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot/vg"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/figure"
	"lockstep/pkg/scaling"
)

// plotFlags contains the flags of lockstep plot besides studyFlags.
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
	pairs   []string
	// Flags of the page that --panels draws.
	title                 string
	pageWidth, pageHeight float64 // inches; 0: the size that the panels need
}

func (f *plotFlags) addTo(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.out, "out", ".", "folder for the figures, which is created if necessary; or the file of one figure or page, such as speedup.pdf")
	flags.StringSliceVar(&f.formats, "format", nil, strings.Join(figure.Formats(), ", ")+" (txt: the caption); default png")
	flags.StringSliceVar(&f.only, "only", nil, "only these figures: "+strings.Join(figure.Names(), ", ")+", or a logged metric as \"Loss/train by step\"")
	registerOnlyCompletion(c)
	flags.BoolVar(&f.panels, "panels", false, "draw the figures as panels of one page, panels.png: the figures of --only, or those of the U-Net study (speed-up with IoU, time per epoch, losses, training and test time)")
	flags.BoolVar(&f.fit, "fit", false, "draw the fitted scaling law beyond the measured range; an error if nothing can be fitted")
	flags.BoolVar(&f.log2, "log2", false, "logarithmic axis of the workers (automatic if the counts differ by a factor of 16 or more)")
	flags.BoolVar(&f.linear, "linear", false, "linear axis of the workers")
	flags.BoolVar(&f.options.LogY, "log-y", false, "logarithmic axis of the values")
	flags.Float64Var(&f.options.Smooth, "smooth", 0, "TensorBoard's smoothing of curves, 0 to below 1")
	flags.StringVar(&f.options.Intervals, "intervals", "", "meaning of the bars: confidence interval (default), range, epochs (spread of the epochs, also of single runs), or none")
	flags.StringArrayVar(&f.options.Series, "series", nil, "draw only this series; repeatable, in drawing order")
	addPairFlag(c, &f.pairs)
	flags.IntSliceVar(&f.options.Workers, "curves", nil, "draw loss curves only of these worker counts")
	flags.StringVar(&f.options.Law, "law", "", "scaling law that --fit draws: linear, amdahl, gustafson or usl (default: the best)")
	flags.IntVar(&f.options.Beyond, "beyond", 0, "largest worker count to which a law is drawn (default: twice the largest measured)")
	flags.Float64Var(&f.options.Rate, "price", 0, "price of a device-hour, for the figure pareto")
	flags.StringVar(&f.options.Currency, "currency", "", "currency of the price")
	flags.StringVar(&f.options.Run, "run", "", "run of the timeline or of usage: its name or a part of it")
	flags.IntVar(&f.options.FirstStep, "first-step", 0, "first step of the timeline (default: in the middle of the run)")
	flags.IntVar(&f.options.Steps, "steps", 0, "steps of the timeline (default: 3)")
	flags.IntVar(&f.dpi, "dpi", 0, "pixels per inch of a PNG (default: 150)")
	flags.Float64Var(&f.options.WidthInches, "width", 0, "width of a figure in inches, such as 3.5 for a column of a paper; with --panels the width of the page (default: 6.4)")
	flags.Float64Var(&f.options.HeightInches, "height", 0, "height of a figure in inches (default: what the figure needs)")
	flags.Float64Var(&f.options.FontSize, "font-size", 0, "size of the labels in points (default: chosen for the size of the figure)")
	flags.StringVar(&f.options.Legend, "legend", "", "position of the legend: top, bottom, right or none (default: where there is most space)")
	flags.StringVar(&f.options.Title, "title", "", "title, if a single figure or page is drawn")
	flags.StringVar(&f.options.XLabel, "x-label", "", "label of the horizontal axis, if a single figure is drawn")
	flags.StringVar(&f.options.YLabel, "y-label", "", "label of the vertical axis, if a single figure is drawn")
	flags.BoolVar(&f.options.NoTitle, "no-title", false, "draw no titles, for a paper with captions")
}

// validate checks the flags before anything is read.
func (f *plotFlags) validate() error {
	for _, x := range f.formats {
		if !slices.Contains(figure.Formats(), x) {
			return fmt.Errorf("unknown format %q: use %s", x, strings.Join(figure.Formats(), ", "))
		}
	}
	if unknown := f.unknownNameErrors(); len(f.only) > 0 && len(unknown) == len(f.only) {
		return errors.Join(unknown...)
	}
	switch {
	case f.isSingleFile() && !f.panels && (len(f.only) != 1 || f.fit):
		return fmt.Errorf("--out %s is one file: draw one figure with --only, or a page with --panels", f.out)
	case f.isSingleFile() && f.formats != nil:
		return fmt.Errorf("--out %s already determines the format: omit --format, or use a folder for --out", f.out)
	case f.options.Title != "" && !f.panels && len(f.only) != 1 || f.options.XLabel+f.options.YLabel != "" && (f.panels || len(f.only) != 1):
		return errors.New("--title, --x-label and --y-label apply to one figure only: select it with --only")
	case f.dpi < 0:
		return fmt.Errorf("invalid --dpi %d: use pixels per inch, such as 300", f.dpi)
	case f.log2 && f.linear:
		return errors.New("--log2 and --linear cannot be combined")
	case f.log2:
		f.options.Scale = figure.Log2
	case f.linear:
		f.options.Scale = figure.Linear
	}
	if err := errors.Join(checkPairFlags(f.pairs), f.options.Validate()); err != nil {
		return err
	}
	if f.panels { // the page's size replaces these flags
		f.title, f.pageWidth, f.pageHeight = f.options.Title, f.options.WidthInches, f.options.HeightInches
		f.options.Title, f.options.WidthInches, f.options.HeightInches = "", 0, 0
	}
	return nil
}

// isFigureName reports whether name is a figure, or a logged metric such as "Loss/train by step".
func isFigureName(name string) bool {
	return slices.Contains(figure.Names(), name) || strings.Contains(name, " by ")
}

// unknownNameErrors returns an error for each name in --only that is not the name of a figure.
func (f *plotFlags) unknownNameErrors() []error {
	var all []error
	for _, name := range f.only {
		if !isFigureName(name) {
			_, err := figure.Make(name, nil)
			all = append(all, err)
		}
	}
	return all
}

func (f *plotFlags) isSingleFile() bool {
	return slices.Contains(figure.Formats(), strings.TrimPrefix(strings.ToLower(filepath.Ext(f.out)), "."))
}

// outputPaths returns the paths of a figure's files, one per format.
func (f *plotFlags) outputPaths(name string) []string {
	switch {
	case f.isSingleFile():
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

// minPagePanels is the minimum number of panels that --panels draws, if enough figures have data.
const minPagePanels = 4

func studyPanels() []string {
	return []string{"speedup_iou", "epoch_time", "loss_by_epoch", "loss_by_time", "train_test_time"}
}

// drawPanels draws the figures in studyPanels. If fewer than minPagePanels of them have data, it
// adds other figures.
func (f *plotFlags) drawPanels(s *scaling.Study) ([]*figure.Figure, error) {
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
	if missing := minPagePanels - len(page); missing > 0 {
		page = append(page, others[:min(missing, len(others))]...)
	}
	return page, nil
}

// drawRequested draws the figures named in --only, or without --only all figures with data. notDrawn
// contains an error for each named figure that could not be drawn. If none could be drawn, these are
// joined in err.
func (f *plotFlags) drawRequested(s *scaling.Study) (figures []*figure.Figure, notDrawn []error, err error) {
	if len(f.only) == 0 {
		figures, err = f.drawAll(s)
		return figures, nil, err
	}
	for _, name := range f.only {
		if !isFigureName(name) {
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

// drawAll draws all figures with data, or with --panels the figures of drawPanels. If requested, it
// adds the fitted scaling model. The usage of a run is itself a page of several panels. It is
// omitted with --panels, or if it would be illegible at the requested size.
func (f *plotFlags) drawAll(s *scaling.Study) ([]*figure.Figure, error) {
	draw := f.drawPanels
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
	if !f.panels {
		if used, err := f.options.Usage(s); err == nil { // otherwise it was not recorded, or is too small
			all = append(all, used)
		}
	}
	return all, nil
}

// newFigurePage arranges figures on one page.
func (f *plotFlags) newFigurePage(title string, figures []*figure.Figure) (*figure.Figure, error) {
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

// reportNotDrawn prints a note for each named figure without data. It returns an error for unknown
// names and for figures that would be illegible at the requested size.
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
	unknown := f.unknownNameErrors()
	if err := errors.Join(append(failed, unknown...)...); len(unknown) > 0 {
		return cli.AsUsageError(err)
	}
	return errors.Join(failed...)
}

// writeFigures writes the figures and prints their paths. logs are the paths that were read.
func (f *plotFlags) writeFigures(c *cobra.Command, figures []*figure.Figure, logs []string) error {
	for _, fig := range figures {
		for _, path := range f.outputPaths(fig.Name()) {
			if err := cli.CheckLogsOutput(path, logs); err != nil {
				return err
			}
		}
	}
	for _, fig := range figures {
		fig.DPI = f.dpi
		for _, path := range f.outputPaths(fig.Name()) {
			if err := fig.Save(path); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), path)
		}
	}
	return nil
}

func plotCommand() *cobra.Command {
	var rule studyFlags
	var f plotFlags
	c := &cobra.Command{
		Use:   "plot PATH…",
		Short: "Draw the figures of a folder of logs",
		Long: `Draws all figures for which the logs contain data into a folder: time per epoch,
throughput, speed-up with the ideal line, efficiency, IoU, speed-up and IoU in one
figure, losses, learning rate, training and test time, trials, weak and strong
scaling, the overhead of communication, fitted scaling laws, time against cost,
quality against the batch, how a step's time is used, a timeline of the ranks, and one
of the ranks of each series, and a page with the CPU, memory, network, power and GPU of
the workers of a run, unless that page would be illegible at the given size. Recorded
all-reduces have a figure of lockstep transfers.

  lockstep plot logs/unet2d-cells --out figures --format png,svg
  lockstep plot logs/unet2d-cells --only speedup,iou --format pdf,csv,txt,tex
  lockstep plot logs/unet2d-cells --panels --out page.png

If a figure of --only cannot be drawn, the others are drawn anyway. Missing data are
reported as a note; an unknown name is an error with exit code 2.

The format txt is the caption, which describes how the numbers were computed and from
how many runs; tex is a table for LaTeX.`,
		Args: cli.AtLeastOneArg("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return cli.AsUsageError(err)
			}
			s, err := rule.readStudy(c, args)
			if err != nil {
				return err
			}
			printReadingNotes(c, s, false)
			if f.options.Pairs, err = resolvePairs(s, f.pairs); err != nil {
				return err
			}
			figures, notDrawn, err := f.drawRequested(s)
			if err != nil {
				return err
			}
			if f.panels {
				page, err := f.newFigurePage(s.Name(), figures)
				if err != nil {
					return err
				}
				figures = []*figure.Figure{page}
			}
			if err := f.writeFigures(c, figures, args); err != nil {
				return err
			}
			return f.reportNotDrawn(c, notDrawn)
		},
	}
	f.addTo(c)
	rule.addTo(c)
	return c
}

// registerOnlyCompletion completes the list of figures in --only.
func registerOnlyCompletion(c *cobra.Command) {
	complete := func(_ *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		before := text[:strings.LastIndex(text, ",")+1]
		var out []string
		for _, name := range figure.Names() {
			out = append(out, before+name)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	if err := c.RegisterFlagCompletionFunc("only", complete); err != nil {
		panic(err) // cannot fail: the caller has defined the flag
	}
}

func addPairFlag(c *cobra.Command, pairs *[]string) {
	c.Flags().StringArrayVar(pairs, "pair", nil, "two series, `WITH:WITHOUT` communication, for the overhead of communication (default: those that run.json or the names of the series show); repeatable")
}

func checkPairFlags(pairs []string) error {
	for _, p := range pairs {
		if !isSeriesPair(p) {
			return fmt.Errorf("invalid --pair %q: use WITH:WITHOUT, the names of two series, such as ddp:ddp-local", p)
		}
	}
	return nil
}

// resolvePairs parses the pairs of series in --pair. It returns an error if the overhead of a pair
// cannot be computed.
func resolvePairs(s *scaling.Study, values []string) ([][2]string, error) {
	pairs := splitSeriesPairs(s, values...)
	if len(pairs) == 0 {
		return nil, nil
	}
	_, err := s.Overheads(pairs...)
	return pairs, err
}
