package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/launch"
)

func jobsCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "jobs",
		Short: "List your sweeps on this machine",
		Long: `Lists your sweeps on this machine, the newest first: those that wait or run, with
the process that runs them, and the last ones that have ended since the machine
was started. To watch a sweep, use launch.Attach(STUDY) in a notebook, or run the
command that launched it again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			jobs, err := launch.Jobs()
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(jobs)
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), clean.Lines(jobs.String()))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
