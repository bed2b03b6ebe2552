//go:build !amd64 && !arm64

package kernel

// assemblyKernelSets returns nil, because only amd64 and arm64 have assembly.
func assemblySets() []*Set { return nil }
