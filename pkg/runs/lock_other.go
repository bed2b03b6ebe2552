//go:build !linux

package runs

import (
	"errors"
	"os"
)

func lockFile(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }

func queryLock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }

func bootID() string { return "" }
