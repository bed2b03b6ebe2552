// Package analysis contains the commands that read and analyze the logs of runs.
package analysis

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
)

// Commands returns all commands that analyze logs, except gate.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		prepareLogAnalysis(scalingCommand()), prepareLogAnalysis(compareCommand()), prepareLogAnalysis(plotCommand()), prepareLogAnalysis(reportCommand()),
		prepareLogAnalysis(readCommand()),
	}
}

// Gate returns the command gate.
func Gate() *cobra.Command { return prepareLogAnalysis(gateCommand()) }

// prepareLogAnalysis prepares c, a command that reads logs. It makes garbage collection rarer,
// because such a command usually ends before collection would free much, and its readers limit their
// memory. It also lets an interrupt end the command soon.
func prepareLogAnalysis(c *cobra.Command) *cobra.Command {
	c.PreRun = func(c *cobra.Command, _ []string) {
		cli.ReduceGC()
		cli.AbandonWhenInterrupted(c.Context())
	}
	return c
}
