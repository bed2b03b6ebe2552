//go:build !amd64

package kernel

// assemblySets returns nil: there is assembly for amd64 only.
func assemblySets() []*Set { return nil }
