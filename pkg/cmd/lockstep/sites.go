package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch/site"
)

func sitesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sites",
		Short: "List, show and check the profiles of clusters",
		Long: `Lists the profiles of clusters that Lockstep ships, with the keys that say
ask-your-site: nobody has looked up their values, and a job that depends on them is
refused. To use such a site, fill in a copy:

  lockstep sites show jsc-booster > my-site.yaml
  lockstep sites check my-site.yaml

environment/sites/README.md explains the keys.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "site\tdescription\tunknown\n")
			for _, name := range site.Names() {
				p, err := site.Load(name)
				if err != nil {
					return err
				}
				unknown := strings.Join(p.Unknown(site.Job{}), ", ")
				unknown = cmp.Or(unknown, "none")
				fmt.Fprintf(w, "%s\t%s\t%s\n", name, p.Description, unknown)
			}
			return w.Flush()
		},
	}
	c.AddCommand(&cobra.Command{
		Use:   "show NAME",
		Short: "Print a profile, for example as the beginning of your own",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := site.Text(args[0])
			if err != nil {
				return cli.AsUsageError(err)
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}, &cobra.Command{
		Use:   "check NAME|FILE",
		Short: "Check a profile: the form of its values, and what nobody has looked up yet",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := site.Load(args[0])
			if err != nil {
				return cli.AsUsageError(err)
			}
			if unknown := p.Unknown(site.Job{}); len(unknown) > 0 {
				return fmt.Errorf("%s: the form is valid, but nobody has looked up %s yet: ask the site's support and write the answers in place of %s",
					p.Name, english.JoinAnd(unknown), site.Unknown)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: all values that a job needs are known and have a valid form\n", clean.EscapeText(p.Name))
			return nil
		},
	})
	return c
}
