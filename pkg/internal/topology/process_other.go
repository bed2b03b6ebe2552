//go:build !linux

package topology

import "errors"

// Allowed returns errors.ErrUnsupported: only Linux lets a process choose its CPUs.
func Allowed() ([]int, error) { return nil, errors.ErrUnsupported }

// SetThread returns errors.ErrUnsupported.
func SetThread([]int) error { return errors.ErrUnsupported }
