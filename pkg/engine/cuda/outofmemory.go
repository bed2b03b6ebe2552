package cuda

import (
	"errors"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
)

// outOfMemory is an error that errors.Is finds to be engine.ErrOutOfMemory. Its text is
// the driver's.
type outOfMemory struct{ error }

func (e outOfMemory) Unwrap() []error { return []error{e.error, engine.ErrOutOfMemory} }

// markOutOfMemory wraps engine.ErrOutOfMemory if the driver ran out of memory, and
// returns any other err as it is.
func markOutOfMemory(err error) error {
	if errors.Is(err, driver.ErrorOutOfMemory) && !errors.Is(err, engine.ErrOutOfMemory) {
		return outOfMemory{err}
	}
	return err
}
