package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"lockstep/pkg/internal/buildid"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the build id (launch compares it with the build ids of its workers)",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(map[string]string{"version": buildid.Version, "build_id": buildid.ID, "go": runtime.Version()})
			}
			_, err := fmt.Fprint(c.OutOrStdout(), versionText())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return c
}

// versionText is the output of lockstep version and lockstep --version.
func versionText() string {
	return fmt.Sprintf("lockstep %s, build %s, %s %s/%s\n", buildid.Version, buildid.ID, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
