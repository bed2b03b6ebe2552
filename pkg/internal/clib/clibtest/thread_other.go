//go:build !linux

package clibtest

// thread returns 0, because threads cannot be distinguished on this system.
func thread() int { return 0 }
