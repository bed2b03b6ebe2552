//go:build !linux

package runs

import (
	"errors"
	"os"
)

// lockFile returns errors.ErrUnsupported: there are open file description locks only on
// Linux.
func lockFile(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }

// isLocked returns errors.ErrUnsupported, as lockFile does.
func isLocked(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }
