package record

import (
	"context"
	"errors"
)

// Format is a format of other programs' logs. A file is read by the first
// format that recognizes it.
type Format struct {
	Name string // as runs.Run.Kind has it
	// Recognizes reports whether a file may be of the format. head is the
	// content's first 4096 bytes; the path may only break ties.
	Recognizes func(path string, head []byte) bool
	// Read returns the runs of one file, or what the file adds to a run, and
	// writes what it did not use into in.report.
	Read func(ctx context.Context, in *Input) ([]*Part, error)
	// Document says that files are written as a whole and may end without a line
	// end, as JSON and YAML are. A file that grew is then read again from its start.
	Document bool
}

// ErrUnknown is returned by a format's Read if nothing in the whole file
// belongs to the format.
var ErrUnknown = errors.New("of no known kind")
