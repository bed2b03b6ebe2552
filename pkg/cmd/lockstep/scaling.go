package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/figure"
	"lockstep/pkg/scaling"
)

// ruleFlags change which measurements of a study count.
type ruleFlags struct{ rule scaling.Rule }

func (f *ruleFlags) add(c *cobra.Command) {
	f.rule = scaling.DefaultRule()
	c.Flags().IntVar(&f.rule.DropFirst, "drop-first", f.rule.DropFirst, "epochs at a run's start that do not count")
	c.Flags().StringVar(&f.rule.Epochs, "epochs", "mean", "how counted epochs become one: mean, median, or the number of the only epoch that counts")
	c.Flags().StringVar(&f.rule.Repeats, "repeats", "median", "how repeated runs become one: median or mean")
	c.Flags().IntVar(&f.rule.SamplesPerEpoch, "samples-per-epoch", 0, "for logs that do not tell it, so that they have a throughput")
}

func (f *ruleFlags) read(paths []string) (*scaling.Study, error) {
	if err := f.rule.Validate(); err != nil {
		return nil, usage(err)
	}
	s, err := scaling.Read(paths...)
	if err != nil {
		return nil, err
	}
	return s.WithRule(f.rule)
}

func scalingCommand() *cobra.Command {
	var f ruleFlags
	var format string
	var breakdown bool
	c := &cobra.Command{
		Use:   "scaling PATH…",
		Short: "Epoch time, throughput, speed-up, efficiency and IoU of a folder of logs",
		Long: `Reads run folders, and the CSV logs of the U-Net scaling study, under each
PATH, and prints a row a series and number of workers.

  lockstep scaling logs/unet2d-cells --format csv

With --breakdown the rows say where a step's time goes, from the step spans of
every rank: data, forward, backward, wait (exposed communication), optimizer,
other; and how much of the all-reduce was hidden behind backward. What overlap
gives is seen beside a series without it:

  lockstep launch --workers 1,2
  lockstep launch --workers 2 --series ddp-no-overlap --set engine.overlap=false
  lockstep scaling logs/unet2d-cells --breakdown`,
		Args: someArgs("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.read(args)
			if err != nil {
				return err
			}
			if breakdown {
				return writeBreakdown(c, s.Breakdown(), format)
			}
			if err := s.Write(c.OutOrStdout(), format); err != nil {
				return err
			}
			if format == scaling.FormatTable { // it ends with notes and problems itself
				return nil
			}
			for _, n := range s.Notes {
				fmt.Fprintln(c.ErrOrStderr(), "note:", n)
			}
			for _, p := range s.Problems {
				fmt.Fprintln(c.ErrOrStderr(), "problem:", p)
			}
			return nil
		},
	}
	c.Flags().StringVar(&format, "format", scaling.FormatTable, "table, csv or json")
	c.Flags().BoolVar(&breakdown, "breakdown", false, "where the time of a step goes, and what of the communication is exposed")
	f.add(c)
	return c
}

func writeBreakdown(c *cobra.Command, b *scaling.Breakdown, format string) error {
	if err := b.Write(c.OutOrStdout(), format); err != nil || format == scaling.FormatTable {
		return err
	}
	for _, p := range b.Problems {
		fmt.Fprintln(c.ErrOrStderr(), "problem:", p)
	}
	return nil
}

func plotCommand() *cobra.Command {
	var f ruleFlags
	var out string
	var formats []string
	c := &cobra.Command{
		Use:   "plot PATH…",
		Short: "Draw the figures of a folder of logs",
		Long: `Draws epoch time, throughput, speed-up with the ideal line, IoU, and loss by
epoch and by time, as far as the logs tell them, into a folder.

  lockstep plot logs/unet2d-cells --out figures --format png,svg`,
		Args: someArgs("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, x := range formats {
				if x != "png" && x != "svg" && x != "pdf" {
					return usage(fmt.Errorf("format %q is not known: use png, svg or pdf", x))
				}
			}
			s, err := f.read(args)
			if err != nil {
				return err
			}
			figures, err := figure.All(s)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return fmt.Errorf("make the folder for figures: %w", err)
			}
			for _, fig := range figures {
				for _, x := range formats {
					path := filepath.Join(out, fig.Name()+"."+x)
					if err := fig.Save(path); err != nil {
						return err
					}
					fmt.Fprintln(c.OutOrStdout(), path)
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", ".", "folder to draw into; made if it is not there")
	c.Flags().StringSliceVar(&formats, "format", []string{"png"}, strings.Join([]string{"png", "svg", "pdf"}, ", "))
	f.add(c)
	return c
}
