package cli

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"

	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/runs"
)

// CheckOutput returns an error if an output at path would replace a file of a run folder, or one of inputs,
// the files and folders that the command reads. A command calls it before it writes anything.
func CheckOutput(path string, inputs ...string) error {
	return AsUsageError(wholefile.CheckOverwrite(path, inputs...))
}

// CheckLogsOutput is like CheckOutput, but for inputs that are paths of logs, which it looks up as
// the commands that read logs do.
func CheckLogsOutput(path string, logs []string) error {
	var inputs []string
	for _, log := range logs {
		if place, err := runs.LocateLogs(log); err == nil { // otherwise nothing is read
			inputs = append(inputs, place)
		}
	}
	return CheckOutput(path, inputs...)
}

// WriteJSON writes v, indented, as JSON.
func WriteJSON(w io.Writer, indent string, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
