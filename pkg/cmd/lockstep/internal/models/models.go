// Package models contains the commands for data sets, networks and trained models.
package models

import "github.com/spf13/cobra"

// Commands returns the commands data, model and predict.
func Commands() []*cobra.Command {
	return []*cobra.Command{dataCommand(), modelCommand(), predictCommand()}
}
