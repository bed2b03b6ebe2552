package cuda_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/internal/clib/cuda"
)

// The offset of each argument is a multiple of its size, as in a C struct.
func ExampleArgs() {
	var a cuda.Args
	a.Int32(1).Ptr(0x7f00).Float32(0.5)
	fmt.Printf("%x\n", a.Bytes())
	// Output: 0100000000000000007f0000000000000000003f
}

// The results after which a context cannot be used (CUDA Driver API, CUresult: "This
// leaves the process in an inconsistent state").
func TestLost(t *testing.T) {
	for r, want := range map[cuda.Result]bool{
		cuda.ErrorOutOfMemory: false, cuda.ErrorNotReady: false, cuda.ErrorIllegalAddress: true, cuda.ErrorLaunchOutOfResources: false,
		cuda.ErrorLaunchTimeout: true, 704: false, 705: false, 709: false, 710: true, 712: false, 713: false, 714: true, 715: true,
		cuda.ErrorMisalignedAddress: true, 717: true, 718: true, cuda.ErrorLaunchFailed: true, 720: false, cuda.ErrorUnknown: true,
		cuda.ErrorECCUncorrectable: true, cuda.ErrorCaptureUnjoined: false,
	} {
		if r.IsContextLost() != want {
			t.Errorf("%v lost: %v", r, r.IsContextLost())
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	err := fmt.Errorf("train: %w", &cuda.Error{Call: "cuMemAlloc", Result: cuda.ErrorOutOfMemory, Detail: "of 5 bytes"})
	if !errors.Is(err, cuda.ErrorOutOfMemory) || !strings.Contains(err.Error(), "cuMemAlloc of 5 bytes: CUDA_ERROR_OUT_OF_MEMORY (2): ") {
		t.Errorf("%v", err)
	}
	if s := cuda.Result(54321).Error(); !strings.Contains(s, "54321") {
		t.Errorf("unknown result: %s", s)
	}
}
