//go:build !linux

package clibtest

// threadID returns 0, because threads cannot be distinguished on this system.
func threadID() int { return 0 }
