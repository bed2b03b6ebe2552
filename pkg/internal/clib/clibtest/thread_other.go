//go:build !linux

package clibtest

// thread returns 0: on this system, threads cannot be distinguished.
func thread() int { return 0 }
