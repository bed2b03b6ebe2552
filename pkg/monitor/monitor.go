// Package monitor records the resource usage of a run and its machines. StartUsage records CPU,
// memory, network and power of a worker once a second. Start measures the utilization, power and
// energy of GPUs with NVIDIA's management library (NVML). A LoadMeter measures the CPU time that other
// processes use.
//
//	s, err := monitor.Start(libraries.NVML, []string{"0000:1b:00.0"}, time.Second, file)
//	if err != nil {
//		return err
//	}
//	defer func() { summary, err := s.Stop(); … }()
package monitor

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"lockstep/pkg/internal/clib/nvml"
)

// Columns returns the header of the CSV files that a Sampler writes, such as gpu-<rank>.csv
// in a run folder:
//
//   - seconds: time since the start;
//   - device: index of the GPU;
//   - utilization_percent: percentage of the sample period in which a kernel ran;
//   - memory_utilization_percent: percentage in which GPU memory was accessed;
//   - power_watts, memory_used_bytes;
//   - sm_clock_mhz: clock of the multiprocessors.
//
// A value that the GPU does not measure is an empty cell.
func Columns() []string {
	return []string{"seconds", "device", "utilization_percent", "memory_utilization_percent", "power_watts", "memory_used_bytes", "sm_clock_mhz"}
}

// Summary contains the averages over all samples of a Sampler.
type Summary struct {
	Samples      int     // number per GPU
	Utilization  float64 // mean over GPUs and samples, in percent; 0 if not measured
	PowerWatts   float64 // mean of the sum over GPUs; 0 if not measured
	EnergyJoules float64 // of all GPUs, by their energy counters or else power times time; 0 if neither is measured
}

// GPUSample contains the latest total values of a Sampler's GPUs. A value that no GPU measures is NaN.
type GPUSample struct {
	Percent     float64 // mean utilization over the GPUs
	MemoryBytes float64 // sum over the GPUs
	Watts       float64 // sum over the GPUs
}

// Sampler samples GPUs until it is stopped.
type Sampler struct {
	lib     *nvml.Library
	devices []nvml.Device
	begin   time.Time
	energy  []float64 // energy counters at the start, in joules; nil if a GPU has none
	csv     *csv.Writer
	end     chan struct{}
	done    sync.WaitGroup

	mu   sync.Mutex
	last GPUSample

	summary      Summary
	busy, watts  float64
	busyN, wattN int
	err          error
}

// Start takes a first sample of the GPUs with the given PCI bus IDs, in the CUDA driver's form, and
// then one per period in the background. It writes one CSV line per GPU and sample to w, unless w
// is nil. lib must be initialized.
func Start(lib *nvml.Library, busIDs []string, period time.Duration, w io.Writer) (*Sampler, error) {
	if lib == nil {
		return nil, errors.New("monitor GPUs: NVIDIA's management library (libnvidia-ml) was not found")
	}
	if period <= 0 {
		return nil, fmt.Errorf("monitor GPUs: invalid period %v: use a positive period, such as 1s", period)
	}
	s := &Sampler{lib: lib, begin: time.Now(), end: make(chan struct{})}
	for _, id := range busIDs {
		d, err := lib.DeviceByBus(id)
		if err != nil {
			return nil, fmt.Errorf("monitor GPU %s: %w", id, err)
		}
		s.devices = append(s.devices, d)
	}
	s.energy = s.readEnergy()
	if w != nil {
		s.csv = csv.NewWriter(w)
		s.err = s.csv.Write(Columns())
	}
	s.takeSample()
	s.done.Go(func() {
		ticks := time.NewTicker(period)
		defer ticks.Stop()
		for {
			select {
			case <-s.end:
				return
			case <-ticks.C:
				s.takeSample()
			}
		}
	})
	return s, nil
}

// readEnergy returns the energy counters of all GPUs in joules, or nil if a GPU has none.
func (s *Sampler) readEnergy() []float64 {
	var all []float64
	for _, d := range s.devices {
		joules, err := s.lib.Energy(d)
		if err != nil {
			return nil
		}
		all = append(all, joules)
	}
	return all
}

func (s *Sampler) takeSample() {
	at := strconv.FormatFloat(time.Since(s.begin).Seconds(), 'f', 3, 64)
	last := GPUSample{Percent: math.NaN(), MemoryBytes: math.NaN(), Watts: math.NaN()}
	for i, d := range s.devices {
		row := []string{at, strconv.Itoa(i), "", "", "", "", ""}
		if u, err := s.lib.Utilization(d); err == nil {
			row[2], row[3] = strconv.Itoa(int(u.GPU)), strconv.Itoa(int(u.Memory))
			s.busy += float64(u.GPU)
			s.busyN++
			last.Percent = addIgnoringNaN(last.Percent, float64(u.GPU)/float64(len(s.devices)))
		}
		if p, err := s.lib.Power(d); err == nil {
			row[4] = strconv.FormatFloat(p, 'f', 1, 64)
			last.Watts = addIgnoringNaN(last.Watts, p)
		}
		if m, err := s.lib.MemoryInfo(d); err == nil {
			row[5] = strconv.FormatUint(m.Used, 10)
			last.MemoryBytes = addIgnoringNaN(last.MemoryBytes, float64(m.Used))
		}
		if c, err := s.lib.Clock(d, nvml.SMClock); err == nil {
			row[6] = strconv.Itoa(c)
		}
		if s.csv != nil && s.err == nil {
			s.err = s.csv.Write(row)
		}
	}
	if !math.IsNaN(last.Watts) {
		s.watts += last.Watts
		s.wattN++
	}
	s.mu.Lock()
	s.last = last
	s.mu.Unlock()
	s.summary.Samples++
	if s.csv != nil {
		s.csv.Flush() // so that the samples survive a kill of the run
		if s.err == nil {
			s.err = s.csv.Error()
		}
	}
}

func addIgnoringNaN(sum, v float64) float64 {
	if math.IsNaN(sum) {
		return v
	}
	return sum + v
}

// Last returns the last sample. It may be called from any goroutine.
func (s *Sampler) Last() GPUSample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Stop takes a last sample and returns the summary. If the CSV lines could not be written, it
// returns an error and a valid summary.
func (s *Sampler) Stop() (Summary, error) {
	close(s.end)
	s.done.Wait()
	s.takeSample()
	if s.busyN > 0 {
		s.summary.Utilization = s.busy / float64(s.busyN)
	}
	if s.wattN > 0 {
		s.summary.PowerWatts = s.watts / float64(s.wattN)
	}
	s.summary.EnergyJoules = s.summary.PowerWatts * time.Since(s.begin).Seconds()
	if now := s.readEnergy(); len(now) == len(s.energy) && len(now) > 0 {
		s.summary.EnergyJoules = 0
		for i := range now {
			s.summary.EnergyJoules += now[i] - s.energy[i]
		}
	}
	if s.err != nil {
		return s.summary, fmt.Errorf("write samples of GPUs: %w", s.err)
	}
	return s.summary, nil
}
