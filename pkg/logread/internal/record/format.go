package record

import (
	"context"
	"errors"
)

// Format is a file format of other programs' logs. The first format that
// recognizes a file reads it.
type Format struct {
	Name string // value of runs.Run.Kind for runs of this format
	// Recognizes reports whether a file may have this format. head is the first
	// 4096 bytes of its content. The path is only used to distinguish formats
	// whose files begin in the same way.
	Recognizes func(path string, head []byte) bool
	// Read returns the runs of one file, or what the file adds to a run. It
	// records in the Report of its input what it did not use.
	Read func(ctx context.Context, in *Input) ([]*Part, error)
	// Document is set if a file is one document, such as JSON or YAML, and may
	// end without a newline. A file that grew is then read again from its
	// start.
	Document bool
}

// ErrUnknownFormat is returned by a format's Read if the complete file contains
// nothing of that format.
var ErrUnknownFormat = errors.New("unknown file format")
