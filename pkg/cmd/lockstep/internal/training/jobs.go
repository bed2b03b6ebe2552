package training

import (
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/launch"
)

func jobsCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "jobs",
		Short: "List your sweeps on this machine and on Slurm",
		Long: `Lists your sweeps, the newest first: those that wait or run, with the process that
runs them or the ids of their jobs of Slurm, and the last ones that have ended (on this
machine, since it was started). lockstep watch STUDY shows a sweep, lockstep stop STUDY
ends it; in a notebook, use launch.Attach(STUDY).`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			jobs, err := launch.Jobs()
			if err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), "  ", jobs)
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), clean.EscapeMultiline(jobs.String()))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
