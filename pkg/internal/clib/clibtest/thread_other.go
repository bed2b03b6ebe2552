//go:build !linux

package clibtest

// thread cannot be told here: all are taken for one.
func thread() int { return 0 }
