package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/kernels/kernelspec"
	"lockstep/pkg/cmd/lockstep/internal/cli"
)

func kernelCommand() *cobra.Command {
	c := &cobra.Command{Use: "kernel", Short: "The Jupyter kernel \"Go (Lockstep)\""}
	var o kernelspec.Options
	install := &cobra.Command{
		Use:   "install",
		Short: "Install the kernelspec with the kernel and the matching lockstep binary",
		Long: `Installs the kernelspec "Go (Lockstep)" with the kernel and a copy of this command,
for this user unless --prefix or --sys is given. The kernel binary must be in the
folder of this command; go run ./kernels/build builds both.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := kernelspec.Install(o)
			if errors.Is(err, fs.ErrNotExist) {
				return cli.AsMissingError(err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "installed the kernel \"Go (Lockstep)\" in %s\nto use the command lockstep in a shell: %s\n", dir, pathExportCommand(dir))
			return err
		},
	}
	install.Flags().BoolVar(&o.User, "user", false, "for this user (the default)")
	install.Flags().StringVar(&o.Prefix, "prefix", "", "under this folder, in share/jupyter (a virtual environment, a container)")
	install.Flags().BoolVar(&o.Sys, "sys", false, "for all users of this machine (/usr/local)")
	install.MarkFlagsMutuallyExclusive("user", "prefix", "sys")
	c.AddCommand(install)
	return c
}

// pathExportCommand returns the shell command that adds dir to PATH.
func pathExportCommand(dir string) string {
	return `export PATH="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(dir) + `:$PATH"`
}
