package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/runs"
)

// printReadPaths prints to stderr which folder is read for each path that exists both in
// the folder of logs, which takes precedence, and in the working directory. It ignores
// errors, because the code that reads the paths reports them.
func printReadPaths(c *cobra.Command, paths ...string) {
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		printPathNote(c, path, place, err, false)
	}
}

// printWrittenPath prints to stderr the folder of a path to be written, if it differs from
// the folder that a shell would use.
func printWrittenPath(c *cobra.Command, path string) {
	place, err := runs.PlanLogs(path)
	printPathNote(c, path, place, err, true)
}

// printPathNote prints a note that path refers to the folder whose path is resolved. It
// prints nothing if a shell would resolve path to the same folder, or if err is not nil.
// If always is false, it prints the note only if path also exists relative to the working
// directory.
func printPathNote(c *cobra.Command, path, resolved string, err error, always bool) {
	here, absErr := filepath.Abs(path)
	if err != nil || absErr != nil || resolved == here {
		return
	}
	note := fmt.Sprintf("lockstep: %s means %s", path, displayPath(resolved))
	_, err = os.Stat(here)
	if err != nil && !always {
		return
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s; to use the path in this folder, write ./%s\n", note, filepath.ToSlash(path))
}

// displayPath returns path relative to the working directory if it is below that
// directory, otherwise the absolute path.
func displayPath(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	short, err := filepath.Rel(wd, path)
	if err != nil || short == ".." || strings.HasPrefix(short, ".."+string(filepath.Separator)) {
		return path
	}
	return short
}
