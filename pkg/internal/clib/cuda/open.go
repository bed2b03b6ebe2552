package cuda

import (
	"fmt"
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// MinVersion is the oldest driver that can be used: CUDA 12.0, the first with
// every function of the table.
const MinVersion = 12000

// VersionText writes 13000 as 13.0.
func VersionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Open finds the driver, looks its functions up and checks its version. It does
// not initialise it: call Init.
func Open(s *clib.Search) (*Driver, error) {
	lib, err := s.Open(clib.CUDA)
	if err != nil {
		return nil, err
	}
	b := clib.Bind(lib)
	// The version decides before the missing functions do: an old driver lacks some.
	if version := b.Need("cuDriverGetVersion"); version != 0 {
		d := &Driver{Path: lib.Path, Version: versionOf(version)}
		if err := d.Check(); err != nil {
			return nil, err
		}
	}
	d := bind(lib.Path, b.Need)
	return d, b.Err()
}

// Check reports a driver that is too old as a *clib.VersionError.
func (d *Driver) Check() error {
	v, err := d.Version()
	if err != nil {
		return fmt.Errorf("check %s (%s): %w", clib.CUDA, d.Path, err)
	}
	if v < MinVersion {
		return &clib.VersionError{
			Library: clib.CUDA, Path: d.Path,
			Have: "CUDA " + VersionText(v), Want: "CUDA " + VersionText(MinVersion) + " or newer",
			Advice: "install a newer NVIDIA driver (525 or newer, 580 for CUDA 13); the CUDA toolkit alone does not bring one",
		}
	}
	return nil
}

// Symbols lists the functions that a driver must have.
func Symbols() []string {
	var names []string
	bind("", func(name string) uintptr {
		names = append(names, name)
		return 0
	})
	return names
}

func versionOf(fn uintptr) func() (int, error) {
	return func() (int, error) {
		var v int32
		r := call(fn, uintptr(unsafe.Pointer(&v)))
		return int(v), failed("cuDriverGetVersion", r)
	}
}
