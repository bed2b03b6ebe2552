package cuda

import (
	"errors"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
)

// outOfMemoryError is a driver error for which errors.Is also reports
// engine.ErrOutOfMemory.
type outOfMemoryError struct{ error }

func (e outOfMemoryError) Unwrap() []error { return []error{e.error, engine.ErrOutOfMemory} }

// markOutOfMemory makes errors.Is report engine.ErrOutOfMemory if the driver ran out of
// memory. It returns any other error unchanged.
func markOutOfMemory(err error) error {
	if errors.Is(err, driver.ErrorOutOfMemory) && !errors.Is(err, engine.ErrOutOfMemory) {
		return outOfMemoryError{err}
	}
	return err
}
