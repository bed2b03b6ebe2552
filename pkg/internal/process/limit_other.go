//go:build !linux

package process

// CheckThreadLimit returns nil: the limits of other systems are not known.
func CheckThreadLimit(string, int) error { return nil }
