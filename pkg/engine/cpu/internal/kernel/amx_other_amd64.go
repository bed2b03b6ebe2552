//go:build !linux

package kernel

// permitAMX returns false, because tile registers have been tested on Linux only.
func permitAMX() bool { return false }
