//go:build !linux

package filelock

import (
	"errors"
	"os"
)

// Lock returns errors.ErrUnsupported: there are open file description locks only on
// Linux.
func Lock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }

// IsLocked returns errors.ErrUnsupported, as Lock does.
func IsLocked(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }
