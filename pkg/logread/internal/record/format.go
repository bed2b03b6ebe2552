package record

import (
	"context"
	"errors"
)

// Format is a format of other programs' logs. The first format of the table
// that recognizes a file reads it.
type Format struct {
	Name string // as runs.Run.Kind has it
	// Recognizes reports whether a file may be of the format. head is the
	// content's first 4096 bytes; the path may only break ties.
	Recognizes func(path string, head []byte) bool
	// Read returns the runs of one file, or what the file adds to a run, and
	// writes what it did not use into in.report.
	Read func(ctx context.Context, in *Input) ([]*Part, error)
	// Document: a file is written as a whole and may end without a line end, as
	// JSON and YAML do, so that a file that grew is read anew.
	Document bool
}

// ErrUnknown is what a kind returns that finds in the whole of a file nothing
// that is its own: the file is of no known kind.
var ErrUnknown = errors.New("of no known kind")
