package clibtest

import (
	"fmt"

	"lockstep/pkg/internal/clib/nvml"
)

// NVML returns the machine's simulated NVML. The power of a device is 300 W plus an amount
// that grows with the machine's clock.
func (m *Machine) NVML() *nvml.Library {
	check := func(call string, d nvml.Device) error {
		if d == 0 || int(d) > m.opt.Devices {
			return &nvml.Error{Call: call, Result: nvml.InvalidArgument}
		}
		return nil
	}
	return &nvml.Library{
		Path:          simulatedLibraryPath,
		Init:          func() error { return nil },
		Shutdown:      func() error { return nil },
		DriverVersion: func() (string, error) { return "580.82.07", nil },
		DeviceCount:   func() (int, error) { return m.opt.Devices, nil },
		DeviceHandle: func(i int) (nvml.Device, error) {
			return nvml.Device(i + 1), check("nvmlDeviceGetHandleByIndex", nvml.Device(i+1))
		},
		DeviceByBus: func(id string) (nvml.Device, error) {
			var bus int
			if _, err := fmt.Sscanf(id, "0000:%02x:00.0", &bus); err != nil {
				return 0, &nvml.Error{Call: "nvmlDeviceGetHandleByPciBusId", Result: nvml.NotFound}
			}
			return nvml.Device(bus), check("nvmlDeviceGetHandleByPciBusId", nvml.Device(bus))
		},
		Name: func(d nvml.Device) (string, error) { return m.opt.Name, check("nvmlDeviceGetName", d) },
		MemoryInfo: func(d nvml.Device) (nvml.Memory, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			total, used := uint64(m.opt.Memory), uint64(m.memory.used)
			return nvml.Memory{Total: total, Free: total - used, Used: used}, check("nvmlDeviceGetMemoryInfo", d)
		},
		Utilization: func(d nvml.Device) (nvml.Utilization, error) {
			return nvml.Utilization{GPU: 90, Memory: 40}, check("nvmlDeviceGetUtilizationRates", d)
		},
		Power: func(d nvml.Device) (float64, error) { return 300, check("nvmlDeviceGetPowerUsage", d) },
		Energy: func(d nvml.Device) (float64, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return 300 * m.clock / 1e6, check("nvmlDeviceGetTotalEnergyConsumption", d)
		},
		Clock: func(d nvml.Device, _ nvml.Clock) (int, error) { return 1980, check("nvmlDeviceGetClockInfo", d) },
	}
}
