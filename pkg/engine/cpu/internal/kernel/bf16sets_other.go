//go:build !amd64

package kernel

// assemblyBF16Sets returns nil, because only amd64 has assembly for BF16.
func assemblyBF16Sets() []*Set { return nil }
