package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// ExactArgs is like cobra.ExactArgs, but its error also names the expected arguments, what.
func ExactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return AsUsageError(fmt.Errorf("%s needs %d argument(s), got %d: %s", c.CommandPath(), n, len(args), what))
		}
		return nil
	}
}

// AtLeastOneArg requires an argument. Its error names the expected arguments, what.
func AtLeastOneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return AsUsageError(fmt.Errorf("%s needs an argument: %s", c.CommandPath(), what))
		}
		return nil
	}
}
