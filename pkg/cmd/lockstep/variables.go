package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"lockstep/pkg/internal/nearest"
)

const variablePrefix = "LOCKSTEP_"

func environmentVariables() []string {
	return []string{
		"LOCKSTEP_ALGORITHM", "LOCKSTEP_BIN", "LOCKSTEP_BINDING", "LOCKSTEP_COLLECTIVE", "LOCKSTEP_CORES", "LOCKSTEP_CORES_WAIT", "LOCKSTEP_COURSE", "LOCKSTEP_COURSE_TASKS", "LOCKSTEP_CPU", "LOCKSTEP_CUDA_PATH", "LOCKSTEP_DATA_SITE", "LOCKSTEP_LAUNCHER", "LOCKSTEP_LOCKS", "LOCKSTEP_LOGS",
		"LOCKSTEP_MEMORY", "LOCKSTEP_RUN", "LOCKSTEP_SCRATCH", "LOCKSTEP_SEED", "LOCKSTEP_TLS", "LOCKSTEP_TOKEN", "LOCKSTEP_TUNING_CACHE", "LOCKSTEP_USAGE",
	}
}

// noteMisspelledVariables writes a note about each variable in environ that Lockstep does not read,
// if the name resembles a variable that it reads. It is not an error, because other programs may use
// LOCKSTEP_ variables too.
func noteMisspelledVariables(environ []string, notes io.Writer) {
	var words []string // without the prefix, by which all names are similar
	for _, name := range environmentVariables() {
		words = append(words, strings.TrimPrefix(name, variablePrefix))
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		word, ours := strings.CutPrefix(name, variablePrefix)
		if !ours || slices.Contains(environmentVariables(), name) {
			continue
		}
		if hint := nearest.Hint(word, words); hint != "" {
			fmt.Fprintf(notes, "note: Lockstep reads no environment variable %s%s%s\n", variablePrefix, word, hint)
		}
	}
}
