package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/kernels/kernelspec"
)

func kernelCommand() *cobra.Command {
	c := &cobra.Command{Use: "kernel", Short: "The Jupyter kernel \"Go (Lockstep)\""}
	var o kernelspec.Options
	install := &cobra.Command{
		Use:   "install",
		Short: "Write the kernelspec, the kernel and the matching lockstep binary",
		Long: `Writes the kernelspec "Go (Lockstep)" with the kernel and this command beside
it, for this user unless --prefix or --sys says otherwise. The kernel binary is
taken from beside this command; go run ./kernels/build makes both.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := kernelspec.Install(o)
			if errors.Is(err, fs.ErrNotExist) {
				return missing(err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "installed the kernel \"Go (Lockstep)\" in %s\nto use the command lockstep in a shell: %s\n", dir, exportPath(dir))
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

// exportPath returns the shell command that adds dir to PATH.
func exportPath(dir string) string {
	return `export PATH="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(dir) + `:$PATH"`
}
