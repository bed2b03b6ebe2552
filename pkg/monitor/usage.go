package monitor

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/pkg/runs/usage"
)

// UsageVariable is the name of an environment variable. The value "off" turns off the recording of
// usage.
const UsageVariable = "LOCKSTEP_USAGE"

// UsageEnabled reports whether workers record their usage: unless LOCKSTEP_USAGE is "off". It
// returns an error for a value other than "on", "off" and "".
func UsageEnabled(getenv func(string) string) (bool, error) {
	switch v := getenv(UsageVariable); v {
	case "", "on":
		return true, nil
	case "off":
		return false, nil
	default:
		return false, fmt.Errorf("got %s=%q: use on to record CPU, memory, network, GPU and power, or off to record nothing", UsageVariable, v)
	}
}

const (
	// usageInterval is the time between two samples during the first usageSamples of them. After
	// each further usageSamples it doubles, so that the file of a long run stays small: about
	// 0.8 MB after two hours, 2.9 MB after a day and 5 MB after a week.
	usageInterval = time.Second
	usageSamples  = 2 * 3600
	// shortestInterval is the shortest interval of the last sample. CPU times have a resolution of 10 ms.
	shortestInterval = 100 * time.Millisecond
)

// A UsageRecorder records the usage of a worker and its machine, in the background, in
// usage-<rank>.csv of the run folder; see package usage.
type UsageRecorder struct {
	writer  *usage.Writer
	machine machineReader
	cpu     *CPUMeter
	gpu     func() GPUSample // nil: no GPU
	host    string
	epoch   atomic.Int64
	end     chan struct{}
	done    sync.WaitGroup

	last struct { // values of the last sample
		time   time.Time // zero before the first one
		cpu    CPUTimes
		cpuErr error
		net    trafficBytes
		netErr error
	}
	energy []*energyCounter // of the processors; nil if they cannot be read

	mu  sync.Mutex
	err error // the error that has ended the recording; nil if there is none
}

// StartUsage starts to record the usage of the worker of the given rank in the run folder dir,
// which must exist. The worker is the process pid with its descendants. gpu returns the last sample
// of the worker's GPU, or is nil. The caller must call Stop.
//
// If nothing can be measured on this machine, StartUsage creates no file.
func StartUsage(dir string, rank, pid int, gpu func() GPUSample) (*UsageRecorder, error) {
	return startUsage(dir, rank, pid, gpu, machineReader{proc: "/proc", sys: "/sys"}, usageInterval)
}

func startUsage(dir string, rank, pid int, gpu func() GPUSample, m machineReader, interval time.Duration) (*UsageRecorder, error) {
	u := &UsageRecorder{machine: m, cpu: NewCPUMeter(pid), gpu: gpu, end: make(chan struct{})}
	u.cpu.proc = m.proc
	var err error
	if u.host, err = os.Hostname(); err != nil {
		u.host = "unknown"
	}
	if s := u.measureUsage(); s.IsEmpty() {
		return u, nil
	}
	if u.writer, err = usage.Create(dir, rank); err != nil {
		return nil, err
	}
	u.done.Go(func() { u.recordUntilEnd(interval) })
	return u, nil
}

// samplingInterval returns the interval after n samples; first is that at the start.
func samplingInterval(n int, first time.Duration) time.Duration { return first << (n / usageSamples) }

// recordUntilEnd appends samples until Stop is called or the file cannot be written.
func (u *UsageRecorder) recordUntilEnd(first time.Duration) {
	ticks := time.NewTicker(first)
	defer ticks.Stop()
	for n := 1; ; n++ {
		select {
		case <-u.end:
			if time.Since(u.last.time) >= shortestInterval {
				u.recordSample()
			}
			return
		case <-ticks.C:
		}
		if !u.recordSample() {
			return
		}
		if next := samplingInterval(n, first); next != samplingInterval(n-1, first) {
			ticks.Reset(next)
		}
	}
}

// recordSample appends a sample to the file. It returns false if the recording must end.
func (u *UsageRecorder) recordSample() bool {
	err := u.writer.Append(u.measureUsage())
	if err != nil {
		u.mu.Lock()
		u.err = err
		u.mu.Unlock()
	}
	return err == nil
}

// measureUsage returns the usage since the last call. The first call returns only the values that need no
// earlier sample, such as the memory.
func (u *UsageRecorder) measureUsage() usage.Sample {
	s := usage.NewSample()
	first, before := u.last.time.IsZero(), u.last
	u.last.time = time.Now()
	s.Time, s.Host, s.Epoch = u.last.time, u.host, int(u.epoch.Load())
	s.Seconds = u.last.time.Sub(before.time).Seconds()
	u.last.cpu, u.last.cpuErr = u.cpu.Sample()
	if u.last.cpuErr == nil {
		s.MemoryBytes = float64(u.last.cpu.TreeMemory)
	}
	s.MachineMemoryBytes = u.machine.usedMemory()
	u.last.net, u.last.netErr = u.machine.networkTraffic()
	if u.gpu != nil {
		g := u.gpu()
		s.GPUPercent, s.GPUMemoryBytes, s.GPUWatts = g.Percent, g.MemoryBytes, g.Watts
	}
	if first {
		u.energy = u.machine.energyCounters()
		return s
	}
	rate := func(now, before float64) float64 { return max(0, now-before) / s.Seconds }
	if errors.Join(before.cpuErr, u.last.cpuErr) == nil {
		s.CPUCores, s.MachineCPUCores = rate(u.last.cpu.Tree, before.cpu.Tree), rate(u.last.cpu.Busy, before.cpu.Busy)
	}
	if errors.Join(before.netErr, u.last.netErr) == nil {
		s.ReceivedBytesPerSecond = rate(u.last.net.received, before.net.received)
		s.SentBytesPerSecond = rate(u.last.net.sent, before.net.sent)
		s.LoopbackBytesPerSecond = rate(u.last.net.loopback, before.net.loopback)
	}
	if len(u.energy) > 0 {
		joules := 0.0
		for _, c := range u.energy {
			joules += c.joulesSinceLastCall()
		}
		s.ProcessorWatts = joules / s.Seconds
	}
	return s
}

// SetEpoch sets the epoch, from 1, of the following samples. Any goroutine may call it, and it does
// nothing for a nil UsageRecorder.
func (u *UsageRecorder) SetEpoch(epoch int) {
	if u != nil {
		u.epoch.Store(int64(epoch))
	}
}

// Err returns the error that has ended the recording, such as a full disk, or nil. The
// UsageRecorder may be nil.
func (u *UsageRecorder) Err() error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Stop appends a last sample, ends the recording and returns the error that has ended it early, or
// nil. A second call, and a call for a nil UsageRecorder, do nothing.
func (u *UsageRecorder) Stop() error {
	if u == nil || u.writer == nil {
		return u.Err()
	}
	close(u.end)
	u.done.Wait()
	err := errors.Join(u.Err(), u.writer.Close())
	u.writer = nil
	return err
}
