package cuda

import (
	"fmt"

	"lockstep/pkg/internal/clib"
)

// MinVersion is the oldest supported driver: CUDA 12.0, the first with all functions.
const MinVersion = 12000

// FormatVersion formats a version: 13000 as "13.0".
func FormatVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Open finds the driver, looks up its functions and checks its version. Init must be called
// before the other functions.
func Open(s *clib.Search) (*Driver, error) {
	return clib.LoadFunctionTable(s, clib.CUDA, bindFunctions, clib.VersionCheck[Driver]{Symbol: "cuDriverGetVersion", Check: (*Driver).CheckVersion})
}

// CheckVersion returns a *clib.VersionError if the driver is too old.
func (d *Driver) CheckVersion() error {
	v, err := d.Version()
	if err != nil {
		return fmt.Errorf("check %s (%s): %w", clib.CUDA, d.Path, err)
	}
	if v < MinVersion {
		return &clib.VersionError{
			Library: clib.CUDA, Path: d.Path,
			Have: "CUDA " + FormatVersion(v), Want: "CUDA " + FormatVersion(MinVersion) + " or newer",
			Advice: "install a newer NVIDIA driver (525 or newer, 580 for CUDA 13); the CUDA toolkit alone does not bring one",
		}
	}
	return nil
}

// RequiredSymbols lists the functions that a driver must have.
func RequiredSymbols() []string { return clib.RequiredSymbols(bindFunctions) }
