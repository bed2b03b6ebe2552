//go:build !amd64

package cpu

// assemblyKernels is nil: there is assembly for amd64 alone.
func assemblyKernels() *kernels { return nil }
