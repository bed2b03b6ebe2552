package site

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var signalPattern = regexp.MustCompile(`^([RB]{1,2}:)?([A-Z0-9]+)(@[0-9]+)?$`)

// memoryPattern matches the values of sbatch --mem: a number of MiB, or with a unit.
var memoryPattern = regexp.MustCompile(`^([1-9][0-9]{0,8})([KMGT]?)$`)

// memoryMiB returns j.Memory in MiB, rounded up. It returns 0 if j.Memory is empty or invalid.
func (j Job) memoryMiB() int {
	m := memoryPattern.FindStringSubmatch(j.Memory)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // a number, by the pattern
	switch m[2] {
	case "K":
		return (n + 1023) / 1024
	case "G":
		return n << 10
	case "T":
		return n << 20
	}
	return n
}

// checkTexts returns a problem if a job script cannot contain one of the strings in j, and
// otherwise nil.
func (j Job) checkTexts() *Problem {
	for _, o := range []struct{ field, value, example string }{
		{"Name", j.Name, "unet-n4"},
		{"Account", j.Account, "training2023"},
		{"Partition", j.Partition, "batch"},
		{"Reservation", j.Reservation, "course-day-1"},
		{"Dependency", j.Dependency, "afterok:123"},
		{"Array", j.Array, "0-49%4"},
	} {
		if o.value != "" && !optionPattern.MatchString(o.value) {
			return &Problem{
				Field: o.field, What: fmt.Sprintf("the %s %q cannot be written to a job script", strings.ToLower(o.field), o.value),
				Next: fmt.Sprintf("%v, as in %s", errUnsafeText, o.example),
			}
		}
	}
	if len(j.Command) == 0 || j.Command[0] == "" {
		return &Problem{Field: "Command", What: "the job has no command", Next: "name the program that the job runs"}
	}
	if j.Signal != "" && !signalPattern.MatchString(j.Signal) {
		return &Problem{Field: "Signal", What: fmt.Sprintf("%q is not a signal for sbatch", j.Signal), Next: "use a signal and the seconds before the end, as in USR1@120"}
	}
	if j.Memory != "" && j.memoryMiB() == 0 {
		return &Problem{Field: "Memory", What: fmt.Sprintf("%q is not an amount of memory for sbatch", j.Memory), Next: "use a number and a unit, as in 800M or 16G (Memory, --mem)"}
	}
	if j.Folder != "" && !filepath.IsAbs(j.Folder) {
		return &Problem{Field: "Folder", What: fmt.Sprintf("the path of the folder %q is relative", j.Folder), Next: "use an absolute path"}
	}
	for _, o := range []struct{ field, value string }{{"Folder", j.Folder}, {"Output", j.Output}} {
		if strings.ContainsFunc(o.value, isControlCharacter) || strings.Contains(o.value, `\`) {
			return &Problem{
				Field: o.field, What: fmt.Sprintf("Slurm cannot write to %q, because the name contains a control character or a backslash", o.value),
				Next: "use another name",
			}
		}
	}
	for _, e := range j.Environment {
		if !variablePattern.MatchString(e) {
			return &Problem{Field: "Environment", What: fmt.Sprintf("%q is not an environment variable with a value", e), Next: "use NAME=VALUE"}
		}
	}
	for _, text := range slices.Concat(j.Environment, j.Command) {
		if strings.ContainsRune(text, 0) {
			return &Problem{Field: "Command", What: fmt.Sprintf("%q contains a NUL character, which arguments and environment variables cannot", text), Next: "remove it"}
		}
	}
	return nil
}
