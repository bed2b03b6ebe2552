//go:build !linux

package kernel

// requestAMXPermission returns false, because tile registers have been tested on Linux only.
func requestAMXPermission() bool { return false }
