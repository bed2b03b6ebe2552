package cuda

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/monitor"
)

// Accelerator returns access to the engine's GPU.
func (e *Engine) Accelerator() *engine.Accelerator {
	return &engine.Accelerator{Name: e.gpu.name, UUID: e.gpu.uuid, Watch: e.Watch, NCCL: e.NCCL, Do: e.Do, RunOnNewThread: e.RunOnNewThread}
}

// Capabilities returns the features of this executable and of its engine.
func (x *executable) Capabilities() engine.Capabilities {
	c := engine.Capabilities{
		Notices: slices.Clone(x.notices), Accelerator: x.engine.Accelerator(),
		PeakFLOPS: x.engine.PeakFLOPS, Profile: x.engine.Profile, HoldDataset: x.loadDatasetToGPU,
	}
	if x.low == device.F16 {
		c.LossScale, c.SetLossScale = x.lossScale, x.setLossScale
	}
	return c
}

// Watch starts to sample the GPU's utilization, power, energy, memory and clock with NVIDIA's
// management library (NVML), and writes one line per interval every to w. It returns an error
// if NVML is not available.
func (e *Engine) Watch(every time.Duration, w io.Writer) (*monitor.Sampler, error) {
	s := e.gpu.stack
	if s.NVML == nil {
		return nil, fmt.Errorf("watch %s: %w", e.Name(), s.Missing[clib.NVML])
	}
	var bus string
	err := e.thread.do(func() (err error) {
		bus, err = e.gpu.driver.DevicePCIBusID(e.gpu.device)
		return e.gpu.explainLostGPU(err)
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", e.Name(), err)
	}
	sampler, err := monitor.Start(s.NVML, []string{bus}, every, w)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", e.Name(), err)
	}
	return sampler, nil
}

// lossScale returns the state of loss scaling in fp16.
func (x *executable) lossScale() engine.LossScale {
	return engine.LossScale{Scale: float64(x.last.control.LossScale), GoodSteps: int(x.last.control.GoodSteps), Skipped: int(x.last.control.Skipped)}
}

// setLossScale restores a loss scale that lossScale returned. The scale must be a power of
// two, so that scaling does not round gradients.
func (x *executable) setLossScale(s engine.LossScale) error {
	fraction, _ := math.Frexp(s.Scale)
	if fraction != 0.5 || float64(float32(s.Scale)) != s.Scale || s.GoodSteps < 0 || s.Skipped < 0 {
		return fmt.Errorf("set loss scale: invalid %+v: the scale must be a power of two, the counts must not be negative", s)
	}
	err := x.do(func() error {
		c := x.last.control
		c.LossScale, c.GoodSteps, c.Skipped, c.FoundInf = float32(s.Scale), int32(s.GoodSteps), int32(s.Skipped), 0
		if err := x.gpu.writeMemory(x.memory.control.ptr, c.Bytes()); err != nil {
			return err
		}
		x.last.control, x.last.scale = c, s.Scale
		return nil
	})
	if err != nil {
		return fmt.Errorf("set loss scale: %w", err)
	}
	return nil
}
