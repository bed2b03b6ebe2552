//go:build !linux

package filelock

import (
	"errors"
	"os"
)

// Lock returns errors.ErrUnsupported, because only Linux has open file description locks.
func Lock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }

// IsLocked returns errors.ErrUnsupported, as Lock does.
func IsLocked(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }
