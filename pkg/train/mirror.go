package train

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// MirrorOptions select the devices of Mirror and the number of samples per pass. Each device trains
// one replica of the network. The zero value selects all devices of the config's kind, each with
// the config's batch.
type MirrorOptions struct {
	// Devices lists the names of devices, such as "cpu:0" and "cpu:1", or "cuda:0" and "cuda:2".
	// nil means the first Count devices. Replicas on the CPU share its cores and have
	// engine.threads threads each, so the number after "cpu:" only distinguishes them.
	Devices []string
	// Count selects the first Count devices of the config's kind (engine.device). 0 means all
	// devices, unless Devices is set. On the CPU, there is one device per engine.threads cores.
	Count int
	// GlobalBatch is the number of samples per pass over all replicas. 0 means the config's batch
	// times the number of replicas.
	GlobalBatch int
}

// Mirror trains in this process with one replica of the network per device, like TensorFlow's
// MirroredStrategy: the replicas share each global batch evenly and average their gradients. The
// results are bitwise equal to a run with one worker per replica and the replica's batch. build
// builds the network (nil: the config's network).
//
// Mirror returns an error for a global batch that the replicas cannot share evenly. With schedule.scaling:
// linear, the learning rate is multiplied by the number of replicas. Mirror writes no run folder.
func Mirror(ctx context.Context, cfg Config, build model.Builder, m MirrorOptions) (*Outcome, error) {
	devices, err := m.deviceNames(cfg)
	if err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	n := len(devices)
	switch {
	case m.GlobalBatch < 0:
		return nil, fmt.Errorf("mirror: global batch is %d: use at least one sample per replica, or 0 for the config's batch on each device", m.GlobalBatch)
	case m.GlobalBatch%n != 0:
		return nil, fmt.Errorf("mirror: %d replicas cannot share a global batch of %d evenly: use %s", n, m.GlobalBatch, nearestMultiples(m.GlobalBatch, n))
	case m.GlobalBatch > 0:
		cfg.Batch = m.GlobalBatch / n
	}
	configs := make([]Config, n)
	for i, d := range devices {
		configs[i] = cfg
		if configs[i].Engine.Device = d; !strings.HasPrefix(d, "cuda:") {
			configs[i].Engine.Device, _, _ = strings.Cut(d, ":")
		}
	}
	o, err := trainReplicas(ctx, configs, build)
	if err != nil {
		return nil, err
	}
	o.Devices = devices
	return o, nil
}

// nearestMultiples formats the multiples of n that are next to batch, such as "6 or 8". It omits 0.
func nearestMultiples(batch, n int) string {
	above := (batch/n + 1) * n
	if batch < n {
		return strconv.Itoa(above)
	}
	return fmt.Sprintf("%d or %d", above-n, above)
}

// deviceNames returns the name of each replica's device. If m.Devices is nil, the devices are of
// the config's kind.
func (m MirrorOptions) deviceNames(cfg Config) ([]string, error) {
	switch {
	case m.Count < 0:
		return nil, fmt.Errorf("device count is %d: use the number of devices, or 0 for all", m.Count)
	case m.Devices != nil && m.Count != 0:
		return nil, errors.New("got both Devices and Count: set only one of them")
	case m.Devices != nil:
		return m.Devices, checkDevices(m.Devices)
	}
	kind, number, _ := strings.Cut(cfg.Engine.Device, ":")
	if number != "" && m.Count != 1 {
		return nil, fmt.Errorf("engine.device is the single device %s: set Devices, for example to %s:0 and %s:1, or set engine.device to %s", cfg.Engine.Device, kind, kind, kind)
	}
	if number != "" {
		return []string{cfg.Engine.Device}, nil
	}
	count := m.Count
	if kind == "cuda" {
		n, err := engine.CountGPUs()
		if err != nil {
			return nil, err
		}
		if count > n {
			return nil, fmt.Errorf("device count is %d, but this machine has %d GPUs: use at most %d", count, n, n)
		}
		if count == 0 {
			count = n
		}
	}
	if count == 0 {
		count = max(1, runtime.NumCPU()/max(1, cfg.Engine.Threads))
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", kind, i)
	}
	return names, nil
}

// checkDevices returns an error for the first device name that is invalid, a duplicate, or not of
// the same kind as the first one.
func checkDevices(names []string) error {
	if len(names) == 0 {
		return errors.New("the list of devices is empty: name at least one device, or use nil for all")
	}
	first, _, _ := strings.Cut(names[0], ":")
	for i, name := range names {
		kind, number, _ := strings.Cut(name, ":")
		if n, err := strconv.Atoi(number); !slices.Contains([]string{"cpu", "cuda", "reference"}, kind) || err != nil || number != strconv.Itoa(n) || n < 0 {
			return fmt.Errorf("unknown device %q: use a kind and a number, such as cpu:0 or cuda:1", name)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("duplicate device %s: each device has one replica", name)
		}
		if kind != first {
			return fmt.Errorf("devices %s and %s are of different kinds, which do not compute the same bits: use devices of one kind", names[0], name)
		}
	}
	return nil
}
