//go:build !amd64 && !arm64

package kernel

// assemblySets returns nil, because only amd64 and arm64 have assembly.
func assemblySets() []*Set { return nil }

// assemblyBF16Sets returns nil, because only amd64 has assembly for BF16.
func assemblyBF16Sets() []*Set { return nil }
