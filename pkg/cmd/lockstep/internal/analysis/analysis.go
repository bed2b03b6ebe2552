// Package analysis contains the commands that read and analyze the logs of runs.
package analysis

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
)

// Commands returns the commands that analyze, except gate.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		prepareLogAnalysis(scalingCommand()), prepareLogAnalysis(compareCommand()), prepareLogAnalysis(plotCommand()), prepareLogAnalysis(reportCommand()),
		prepareLogAnalysis(readCommand()),
	}
}

// Gate returns the command gate.
func Gate() *cobra.Command { return prepareLogAnalysis(gateCommand()) }

// analyzesLogs prepares c, a command that reads logs. Garbage collection is rarer, because such a command
// usually ends before it would free much, and its readers limit their memory. An interrupt ends it soon.
func prepareLogAnalysis(c *cobra.Command) *cobra.Command {
	c.PreRun = func(c *cobra.Command, _ []string) {
		cli.ReduceGC()
		cli.AbandonWhenInterrupted(c.Context())
	}
	return c
}
