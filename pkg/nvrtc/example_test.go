package nvrtc_test

import (
	"fmt"

	"lockstep/pkg/nvrtc"
)

// A kernel in CUDA C becomes PTX for an H200 (compute capability 9.0), which
// gorgonia.org/cu loads. It needs NVIDIA's compiler library and no GPU.
func Example() {
	compiler, err := nvrtc.Open()
	if err != nil {
		fmt.Println(err) // which folders were looked at, and what to install
		return
	}
	ptx, err := compiler.PTX(`extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }`, 9, 0)
	if err != nil {
		fmt.Println(err) // the compiler's messages, with lines
		return
	}
	fmt.Println(len(ptx) > 0)
}
