package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/figure"
	"lockstep/pkg/report"
)

// reportFlags contains the flags of lockstep report, except those of ruleFlags.
type reportFlags struct {
	out     string
	options report.Options
}

func (f *reportFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVarP(&f.out, "out", "o", "report.html", "file to write; .html, or .pdf (which chromium prints)")
	flags.StringVar(&f.options.Title, "title", "", "title of the page; the study's name without")
	flags.StringArrayVar(&f.options.Figures.Series, "series", nil, "only this series; may be repeated")
	flags.StringSliceVar(&f.options.Only, "only", nil, "only these figures: "+strings.Join(figure.Names(), ", "))
	flags.BoolVar(&f.options.Costs, "cost", false, "time against device-hours too")
	flags.Float64Var(&f.options.Price, "price", 0, "price of a device-hour; shows what each run costs")
	flags.StringVar(&f.options.Currency, "currency", "", "of the price")
	flags.Float64Var(&f.options.Budget, "budget", 0, "how many workers so many device-hours buy")
	flags.Float64Var(&f.options.Figures.Smooth, "smooth", 0, "TensorBoard's smoothing of curves, 0 to below 1")
	flags.BoolVar(&f.options.Figures.LogY, "log-y", false, "logarithmic axis of the values")
}

// validate checks the flags, and reports missing files before anything is read.
func (f *reportFlags) validate() error {
	ext := strings.TrimPrefix(strings.ToLower(filepath.Ext(f.out)), ".")
	if !slices.Contains(report.Formats(), ext) {
		return usage(fmt.Errorf("--out %q: use a name that ends in .html or .pdf", f.out))
	}
	for _, name := range f.options.Only {
		if !slices.Contains(figure.Names(), name) && !strings.Contains(name, " by ") {
			return usage(fmt.Errorf("figure %q is not known: use %s, or a metric and an axis as in \"Loss/train by step\"", name, strings.Join(figure.Names(), ", ")))
		}
	}
	if err := f.options.Validate(); err != nil {
		return usage(err)
	}
	if ext == "pdf" {
		if _, err := report.FindBrowser(); err != nil {
			return missing(err)
		}
	}
	return nil
}

func reportCommand() *cobra.Command {
	var rule ruleFlags
	var f reportFlags
	c := &cobra.Command{
		Use:   "report PATH…",
		Short: "One page with verdict, tables and figures of a folder of logs",
		Long: `Writes one page that needs nothing else (no network, no script): the verdict in
sentences, the tables, every figure that the logs have numbers for, the runs,
what was read and what could not be, and for each number at the top the formula,
the file and the line behind it.

  lockstep report logs/unet2d-cells --out report.html
  lockstep report logs/unet2d-cells --out report.pdf --title "U-Net on two cores"
  lockstep report results --as 'log_hvd_{workers}.csv=PyTorch Horovod' --epochs 5 --price 2.50 --currency EUR

The HTML is the same, byte for byte, for the same logs. The PDF is printed by
chromium (apt-get install chromium); without it the exit code is 3.`,
		Args: someArgs("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			s, err := rule.read(c, args)
			if err != nil {
				return err
			}
			r, err := report.New(s, f.options)
			if err != nil {
				return err
			}
			if err := r.Save(c.Context(), f.out); errors.Is(err, report.ErrNoBrowser) {
				return missing(err)
			} else if err != nil {
				return err
			}
			for _, sentence := range r.Sentences {
				fmt.Fprintln(c.ErrOrStderr(), sentence)
			}
			fmt.Fprintln(c.OutOrStdout(), f.out)
			return nil
		},
	}
	f.add(c)
	rule.add(c)
	return c
}
