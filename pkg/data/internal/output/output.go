// Package output writes files until a context is canceled.
package output

import (
	"context"
	"os"
)

// A CancelableFile is a file whose Write returns an error once its context is canceled, so that the encoding of a large
// picture or volume can be interrupted.
type CancelableFile struct {
	*os.File
	Context context.Context
}

func (w CancelableFile) Write(b []byte) (int, error) {
	if err := w.Context.Err(); err != nil {
		return 0, err
	}
	return w.File.Write(b)
}
