package cuda

import (
	"errors"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
)

// outOfMemoryError is a driver error for which errors.Is(err, engine.ErrOutOfMemory) is true.
type outOfMemoryError struct{ error }

func (e outOfMemoryError) Unwrap() []error { return []error{e.error, engine.ErrOutOfMemory} }

// markOutOfMemory returns err as an outOfMemoryError if the driver ran out of memory; otherwise
// it returns err.
func markOutOfMemory(err error) error {
	if errors.Is(err, driver.ErrorOutOfMemory) && !errors.Is(err, engine.ErrOutOfMemory) {
		return outOfMemoryError{err}
	}
	return err
}
