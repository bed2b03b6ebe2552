// Package training contains the commands that train, launch and prepare runs.
package training

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
)

// Commands returns the commands that train or measure training.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		cli.IgnoreBrokenPipe(trainCommand()), cli.IgnoreBrokenPipe(launchCommand()), jobsCommand(), watchCommand(), stopCommand(),
		cli.IgnoreBrokenPipe(trialsCommand()), cli.IgnoreBrokenPipe(batchsizeCommand()), cli.IgnoreBrokenPipe(tuneCommand()),
		strategiesCommand(), transfersCommand(),
	}
}
