//go:build !amd64

package kernel

// assemblySets returns nil, because only amd64 has assembly.
func assemblySets() []*Set { return nil }
