//go:build !linux

package topology

import "errors"

// AllowedCPUs returns errors.ErrUnsupported: only Linux lets a process choose its CPUs.
func AllowedCPUs() ([]int, error) { return nil, errors.ErrUnsupported }

// BindThread returns errors.ErrUnsupported.
func BindThread([]int) error { return errors.ErrUnsupported }
