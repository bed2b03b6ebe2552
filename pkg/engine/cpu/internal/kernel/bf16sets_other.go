//go:build !amd64

package kernel

// assemblyBF16KernelSets returns nil, because only amd64 has assembly for BF16.
func assemblyBF16KernelSets() []*Set { return nil }
