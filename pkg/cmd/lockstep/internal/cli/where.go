package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/runs"
)

// PrintReadPaths prints which folder a path means, if it exists both in the logs folder, which takes
// precedence, and in the working directory. It ignores errors, which the code that reads the paths reports.
func PrintReadPaths(c *cobra.Command, paths ...string) {
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		printPathNote(c, path, place, err, false)
	}
}

// PrintWrittenPath prints the folder to which path is written, if that is not the folder that a
// shell would use.
func PrintWrittenPath(c *cobra.Command, path string) {
	place, err := runs.PlanLogs(path)
	printPathNote(c, path, place, err, true)
}

// printPathNote prints that path means the folder resolved. It prints nothing if a shell would use
// the same folder, or if err is not nil. Unless always is true, it also prints nothing if path does
// not exist relative to the working directory.
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

// displayPath returns path relative to the working directory if it is below it, else path itself.
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
