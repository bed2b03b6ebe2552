package cuda

import (
	"errors"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
)

// outOfMemoryError is a driver error that is also engine.ErrOutOfMemory for errors.Is.
type outOfMemoryError struct{ error }

func (e outOfMemoryError) Unwrap() []error { return []error{e.error, engine.ErrOutOfMemory} }

// markOutOfMemory returns an outOfMemoryError if the driver ran out of memory.
func markOutOfMemory(err error) error {
	if errors.Is(err, driver.ErrorOutOfMemory) && !errors.Is(err, engine.ErrOutOfMemory) {
		return outOfMemoryError{err}
	}
	return err
}
