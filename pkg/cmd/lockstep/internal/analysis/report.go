package analysis

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/figure"
	"lockstep/pkg/report"
)

type reportFlags struct {
	out     string
	pairs   []string
	budget  string
	options report.Options
}

func (f *reportFlags) addTo(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVarP(&f.out, "out", "o", "report.html", "file to write: .html, or .pdf (printed by chromium)")
	flags.StringVar(&f.options.Title, "title", "", "title of the page (default: the study's name)")
	flags.StringArrayVar(&f.options.Figures.Series, "series", nil, "only this series; repeatable")
	addPairFlag(c, &f.pairs)
	flags.StringSliceVar(&f.options.Only, "only", nil, "only these figures: "+strings.Join(figure.Names(), ", "))
	registerOnlyCompletion(c)
	flags.BoolVar(&f.options.Costs, "cost", false, "also show time against device-hours")
	flags.Float64Var(&f.options.Price, "price", 0, "price of a device-hour; shows what each run costs")
	flags.StringVar(&f.options.Currency, "currency", "", "currency of the price")
	flags.StringVar(&f.budget, "budget", "", "`"+budgetForm+"`: the page states how many workers these device-hours pay for, in a project with N epochs and seeds; without them, as many as the logs have")
	flags.Float64Var(&f.options.Figures.Smooth, "smooth", 0, "TensorBoard's smoothing of curves, 0 to below 1")
	flags.BoolVar(&f.options.Figures.LogY, "log-y", false, "logarithmic axis of the values")
}

// validate checks the flags. It reports missing files before anything is read.
func (f *reportFlags) validate() error {
	ext := strings.TrimPrefix(strings.ToLower(filepath.Ext(f.out)), ".")
	if !slices.Contains(report.Formats(), ext) {
		return cli.AsUsageError(fmt.Errorf("--out %q: use a name that ends in .html or .pdf", f.out))
	}
	for _, name := range f.options.Only {
		if !slices.Contains(figure.Names(), name) && !strings.Contains(name, " by ") {
			return cli.AsUsageError(fmt.Errorf("unknown figure %q: use %s, or a metric and an axis as in \"Loss/train by step\"", name, strings.Join(figure.Names(), ", ")))
		}
	}
	if hours, project, ok := parseBudget(f.budget); ok {
		f.options.Budget, f.options.Project = hours, project
	} else if f.budget != "" {
		return cli.AsUsageError(fmt.Errorf("invalid --budget %q: use %s, such as 100,epochs=200,seeds=3", f.budget, budgetForm))
	}
	if err := errors.Join(checkPairFlags(f.pairs), f.options.Validate()); err != nil {
		return cli.AsUsageError(err)
	}
	if ext == "pdf" {
		if _, err := report.FindBrowser(); err != nil {
			return cli.AsMissingError(err)
		}
	}
	return nil
}

func reportCommand() *cobra.Command {
	var rule studyFlags
	var f reportFlags
	c := &cobra.Command{
		Use:   "report PATH…",
		Short: "Write one page with the verdict, tables and figures of a folder of logs",
		Long: `Writes one self-contained page (no network, no scripts): the verdict in sentences,
the tables, every figure for which the logs contain data, the runs, which files
could be read and which could not, and for each number at the top its formula and
the file and line of its data.

  lockstep report logs/unet2d-cells --out report.html
  lockstep report logs/unet2d-cells --out report.pdf --title "U-Net on two cores"
  lockstep report results --as 'log_hvd_{workers}.csv=PyTorch Horovod' --epochs 5 --price 2.50 --currency EUR

The same logs give the same HTML, byte for byte. chromium prints the PDF (apt-get
install chromium); if it is missing, the exit code is 3.`,
		Args: cli.AtLeastOneArg("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			if err := cli.CheckLogsOutput(f.out, args); err != nil {
				return err
			}
			s, err := rule.readStudy(c, args)
			if err != nil {
				return err
			}
			if f.options.Figures.Pairs, err = resolvePairs(s, f.pairs); err != nil {
				return err
			}
			r, err := report.New(s, f.options)
			if err != nil {
				return err
			}
			if err := r.Save(c.Context(), f.out); err != nil {
				return err
			}
			for _, sentence := range r.Sentences {
				fmt.Fprintln(c.ErrOrStderr(), sentence)
			}
			fmt.Fprintln(c.OutOrStdout(), f.out)
			return nil
		},
	}
	f.addTo(c)
	rule.addTo(c)
	return c
}
