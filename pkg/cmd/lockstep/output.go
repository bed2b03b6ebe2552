package main

import (
	"encoding/json"
	"io"

	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/runs"
)

// checkOutput returns an error if an output at path would replace a file of a run folder, or one of inputs,
// the files and folders that the command reads. A command calls it before it writes anything.
func checkOutput(path string, inputs ...string) error {
	return asUsageError(wholefile.CheckOutput(path, inputs...))
}

// checkLogsOutput is checkOutput for inputs that are paths of logs.
func checkLogsOutput(path string, logs []string) error {
	var inputs []string
	for _, log := range logs {
		if place, err := runs.LocateLogs(log); err == nil { // otherwise nothing is read
			inputs = append(inputs, place)
		}
	}
	return checkOutput(path, inputs...)
}

func writeJSON(w io.Writer, indent string, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", indent)
	return e.Encode(v)
}
