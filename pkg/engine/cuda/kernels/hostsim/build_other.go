//go:build !linux

package hostsim

import (
	"context"

	"lockstep/pkg/engine/cuda/kernels"
)

func buildLibrary(context.Context, string, []kernels.Kernel, ...string) (*kernelLibrary, error) {
	return nil, ErrNoCompiler
}
