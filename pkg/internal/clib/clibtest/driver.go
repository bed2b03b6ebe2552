package clibtest

import (
	"fmt"

	"lockstep/pkg/internal/clib/cuda"
)

// Driver returns the machine's simulated CUDA driver.
func (m *Machine) Driver() *cuda.Driver {
	d := &cuda.Driver{Path: simulatedLibraryPath}
	d.Version = func() (int, error) { return m.opt.DriverVersion, nil }
	d.Init = func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.opt.Devices == 0 {
			return &cuda.Error{Call: "cuInit", Result: cuda.ErrorNoDevice}
		}
		m.initialized = true
		return nil
	}
	d.DeviceCount = func() (n int, err error) {
		return m.opt.Devices, m.simulateCall("cuDeviceGetCount", false, func() error { return nil })
	}
	d.DeviceGet = func(i int) (cuda.Device, error) {
		return cuda.Device(i), m.simulateDeviceCall("cuDeviceGet", cuda.Device(i), nil)
	}
	d.DeviceName = func(dev cuda.Device) (string, error) {
		return m.opt.Name, m.simulateDeviceCall("cuDeviceGetName", dev, nil)
	}
	d.DeviceTotalMem = func(dev cuda.Device) (int64, error) {
		return m.opt.Memory, m.simulateDeviceCall("cuDeviceTotalMem", dev, nil)
	}
	d.DevicePCIBusID = func(dev cuda.Device) (string, error) {
		return fmt.Sprintf("0000:%02x:00.0", int(dev)+1), m.simulateDeviceCall("cuDeviceGetPCIBusId", dev, nil)
	}
	d.DeviceUUID = func(dev cuda.Device) ([16]byte, error) {
		return [16]byte{15: byte(dev) + 1}, m.simulateDeviceCall("cuDeviceGetUuid", dev, nil)
	}
	d.DeviceAttribute = func(dev cuda.Device, a cuda.Attribute) (v int, err error) {
		err = m.simulateDeviceCall("cuDeviceGetAttribute", dev, func() error {
			var ok bool
			if v, ok = m.deviceAttribute(a); !ok {
				return newDriverError("cuDeviceGetAttribute", cuda.ErrorInvalidValue, "attribute %d is not simulated", a)
			}
			return nil
		})
		return v, err
	}
	m.simulateContextCalls(d)
	m.simulateMemoryCalls(d)
	m.simulateCopyCalls(d)
	m.simulateStreamCalls(d)
	m.simulateEventCalls(d)
	m.simulateModuleCalls(d)
	m.simulateCaptureCalls(d)
	return d
}

// simulateDeviceCall is simulateCall for the device dev, which must exist. f may be nil.
func (m *Machine) simulateDeviceCall(call string, dev cuda.Device, f func() error) error {
	return m.simulateCall(call, false, func() error {
		if dev < 0 || int(dev) >= m.opt.Devices {
			return newDriverError(call, cuda.ErrorInvalidDevice, "no device %d on a machine with %d devices", dev, m.opt.Devices)
		}
		if f == nil {
			return nil
		}
		return f()
	})
}

// deviceAttribute returns the value of an attribute of an H200 (CUDA C++ Programming Guide,
// table of compute capability 9.0, and NVIDIA's data sheet), or false if the attribute is not
// simulated.
func (m *Machine) deviceAttribute(a cuda.Attribute) (int, bool) {
	switch a {
	case cuda.ComputeCapabilityMajor:
		return m.opt.Capability[0], true
	case cuda.ComputeCapabilityMinor:
		return m.opt.Capability[1], true
	}
	v, ok := map[cuda.Attribute]int{
		cuda.MaxThreadsPerBlock: 1024, cuda.MaxSharedMemoryPerBlock: defaultSharedBytes, cuda.WarpSize: 32,
		cuda.ClockRate: 1980000, cuda.MultiprocessorCount: 132, cuda.Integrated: 0, cuda.MemoryClockRate: 3201000,
		cuda.MemoryBusWidth: 6144, cuda.L2CacheSize: 60 << 20, cuda.MaxThreadsPerMultiprocessor: 2048,
		cuda.AsyncEngineCount: 3, cuda.MaxSharedMemoryPerSM: 228 << 10, cuda.MaxSharedMemoryOptin: maxSharedBytes,
	}[a]
	return v, ok
}

func (m *Machine) simulateContextCalls(d *cuda.Driver) {
	d.PrimaryCtxRetain = func(dev cuda.Device) (c cuda.Context, err error) {
		err = m.simulateDeviceCall("cuDevicePrimaryCtxRetain", dev, func() error {
			c = cuda.Context(dev) + 1
			m.retained[c]++
			m.logCall("cuDevicePrimaryCtxRetain %d", dev)
			return nil
		})
		return c, err
	}
	d.PrimaryCtxRelease = func(dev cuda.Device) error {
		return m.simulateDeviceCall("cuDevicePrimaryCtxRelease", dev, func() error {
			c := cuda.Context(dev) + 1
			if m.retained[c] == 0 {
				return newDriverError("cuDevicePrimaryCtxRelease", cuda.ErrorInvalidContext, "the context of device %d is not retained", dev)
			}
			m.retained[c]--
			m.logCall("cuDevicePrimaryCtxRelease %d", dev)
			return nil
		})
	}
	d.CtxSetCurrent = func(c cuda.Context) error {
		return m.simulateCall("cuCtxSetCurrent", false, func() error {
			if c == 0 {
				delete(m.current, threadID())
				return nil
			}
			if m.retained[c] == 0 {
				return newDriverError("cuCtxSetCurrent", cuda.ErrorInvalidContext, "context %d is not retained", c)
			}
			m.current[threadID()] = c
			return nil
		})
	}
	d.ProfilerStart = func() error {
		return m.simulateCall("cuProfilerStart", true, func() error {
			m.logCall("cuProfilerStart")
			return nil
		})
	}
	d.ProfilerStop = func() error {
		return m.simulateCall("cuProfilerStop", true, func() error {
			m.logCall("cuProfilerStop")
			return nil
		})
	}
}
