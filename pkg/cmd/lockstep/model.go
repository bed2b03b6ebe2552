package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/model"
)

func modelCommand() *cobra.Command {
	var batch int
	c := &cobra.Command{
		Use:   "model NAME",
		Short: "Print a network layer by layer: shapes, parameters, FLOPs",
		Long:  "Prints a network layer by layer. Networks: " + strings.Join(model.Names(), ", ") + ".",
		Args:  exactArgs(1, "name a network, for example unet2d-study"),
		RunE: func(c *cobra.Command, args []string) error {
			net, err := model.Named(args[0])
			if err != nil {
				return usage(err)
			}
			s, err := model.Summarize(net, batch)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(c.OutOrStdout(), s.String())
			return err
		},
		ValidArgs: model.Names(),
	}
	c.Flags().IntVar(&batch, "batch", 1, "images a step, for the shapes and FLOPs")
	return c
}

// exactArgs is cobra.ExactArgs with an error that says what to give.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usage(fmt.Errorf("%s needs %d argument(s), not %d: %s", c.CommandPath(), n, len(args), what))
		}
		return nil
	}
}

func someArgs(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(fmt.Errorf("%s needs an argument: %s", c.CommandPath(), what))
		}
		return nil
	}
}
