package clibtest_test

import (
	"fmt"
	"runtime"

	"lockstep/pkg/internal/clib/clibtest"
)

// A machine is used through the tables of the real libraries. It records the calls.
func Example() {
	runtime.LockOSThread() // a context is current in a thread
	defer runtime.UnlockOSThread()
	m := clibtest.New(clibtest.Options{})
	st, err := m.OpenStack()
	if err != nil {
		fmt.Println(err)
		return
	}
	d := st.Driver
	ctx, err := d.PrimaryCtxRetain(0)
	if err != nil || d.CtxSetCurrent(ctx) != nil {
		return
	}
	p, err := d.MemAlloc(1024)
	if err != nil {
		return
	}
	m.SetAllocationName(p, "weights")
	fmt.Println(d.MemsetD8Async(p.Add(1000), 0, 100, 0))
	for _, call := range m.Calls() {
		fmt.Println(call)
	}
	// Output:
	// cuMemsetD8Async (100 bytes at weights+1000 exceed the allocation of 1024 bytes): CUDA_ERROR_INVALID_VALUE (1): an argument is invalid
	// cuDevicePrimaryCtxRetain 0
	// cuMemAlloc 1024 = memory#1
}
