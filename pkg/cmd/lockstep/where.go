package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/runs"
)

// sayRead says on stderr which folder each path that is read means, where there
// are two: one in the folder of logs, which counts, and one in the working
// directory. Errors are left to whoever reads.
func sayRead(c *cobra.Command, paths ...string) {
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		sayWhere(c, path, place, err, false)
	}
}

// sayWritten says on stderr in which folder a path lies that is written, where
// it is another one than the shell would take.
func sayWritten(c *cobra.Command, path string) {
	place, err := runs.ResolveLogs(path)
	sayWhere(c, path, place, err, true)
}

func sayWhere(c *cobra.Command, path, place string, err error, always bool) {
	here, absErr := filepath.Abs(path)
	if err != nil || absErr != nil || place == here {
		return
	}
	note := fmt.Sprintf("lockstep: %s means %s", path, fromHere(place))
	_, err = os.Stat(here)
	if err != nil && !always {
		return
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s; for the one in this folder write ./%s\n", note, filepath.ToSlash(path))
}

// fromHere returns a path relative to the working directory if it lies below
// it, else the absolute one.
func fromHere(place string) string {
	wd, err := os.Getwd()
	if err != nil {
		return place
	}
	short, err := filepath.Rel(wd, place)
	if err != nil || short == ".." || strings.HasPrefix(short, ".."+string(filepath.Separator)) {
		return place
	}
	return short
}
