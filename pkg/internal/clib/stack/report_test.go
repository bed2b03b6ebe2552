package stack_test

import (
	"testing"

	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cuda"
)

// A GPU can be used if the driver does not report its clock or bus ID, as with some virtual
// GPUs, but not if the driver does not report its compute capability.
func TestReportOfAReticentDriver(t *testing.T) {
	st, err := clibtest.New(clibtest.Options{}).OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	refused := map[cuda.Attribute]bool{cuda.ClockRate: true}
	attribute := st.Driver.DeviceAttribute
	st.Driver.DeviceAttribute = func(d cuda.Device, a cuda.Attribute) (int, error) {
		if refused[a] {
			return 0, &cuda.Error{Call: "cuDeviceGetAttribute", Result: cuda.ErrorNotSupported}
		}
		return attribute(d, a)
	}
	st.Driver.DevicePCIBusID = func(cuda.Device) (string, error) {
		return "", &cuda.Error{Call: "cuDeviceGetPCIBusId", Result: cuda.ErrorNotSupported}
	}
	r := st.Report()
	if r.Problem != nil || len(r.Devices) != 1 || r.Devices[0].ClockMHz != 0 || r.Devices[0].BusID != "" || r.Devices[0].Compute != [2]int{9, 0} {
		t.Errorf("problem %v, devices %+v", r.Problem, r.Devices)
	}
	refused[cuda.ComputeCapabilityMajor] = true
	if r := st.Report(); r.Problem == nil {
		t.Error("a GPU without a compute capability is no problem")
	}
}
