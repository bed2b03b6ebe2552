package site

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// signalPattern matches the values of sbatch --signal, such as USR1@120 and B:TERM@60.
var signalPattern = regexp.MustCompile(`^([RB]{1,2}:)?([A-Z0-9]+)(@[0-9]+)?$`)

// checkTexts returns an error if a text of j cannot be written to a job script.
func (j Job) checkTexts() error {
	for _, o := range []struct{ name, value, example string }{
		{"name", j.Name, "unet-n4"}, {"account", j.Account, "training2023"}, {"partition", j.Partition, "batch"},
		{"reservation", j.Reservation, "course-day-1"}, {"dependency", j.Dependency, "afterok:123"}, {"array", j.Array, "0-49%4"},
	} {
		if o.value != "" && !optionPattern.MatchString(o.value) {
			return fmt.Errorf("invalid %s %q: %w, as in %s", o.name, o.value, errUnsafe, o.example)
		}
	}
	switch {
	case j.Signal != "" && !signalPattern.MatchString(j.Signal):
		return fmt.Errorf("invalid signal %q: use a signal and the seconds before the end, as in USR1@120", j.Signal)
	case j.Folder != "" && !filepath.IsAbs(j.Folder):
		return fmt.Errorf("got the folder %q, want an absolute path", j.Folder)
	case strings.ContainsFunc(j.Folder+j.Output, isControl) || strings.Contains(j.Folder+j.Output, `\`):
		return fmt.Errorf("got the folder %q and the output %q, but Slurm cannot write to names with control characters or backslashes: use another folder", j.Folder, j.Output)
	}
	for _, e := range j.Environment {
		if !variablePattern.MatchString(e) {
			return fmt.Errorf("got the environment variable %q, want NAME=VALUE", e)
		}
	}
	for _, text := range slices.Concat(j.Environment, j.Command) {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("got %q, but arguments and environment variables cannot contain the NUL character: remove it", text)
		}
	}
	return nil
}
