//go:build !amd64

package cpu

// assemblySets is nil: there is assembly for amd64 alone.
func assemblySets() []*kernels { return nil }
