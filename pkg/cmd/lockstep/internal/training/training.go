// Package training contains the commands that train, launch and prepare runs.
package training

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
)

// Commands returns the commands that train or measure training.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		cli.IgnoreBrokenOutput(trainCommand()), cli.IgnoreBrokenOutput(launchCommand()), jobsCommand(), watchCommand(), stopCommand(),
		cli.IgnoreBrokenOutput(trialsCommand()), cli.IgnoreBrokenOutput(batchsizeCommand()), cli.IgnoreBrokenOutput(tuneCommand()),
		strategiesCommand(), transfersCommand(),
	}
}
