// Package usage contains what the workers of a run and their machines used over time: CPU, memory,
// network, GPU and power. Package monitor records it once a second in the files usage-<rank>.csv of
// the run folder, and package figure draws it.
//
//	records, problems, err := usage.Read("logs/unet2d-cells/ddp-n2-s1")
package usage

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Sample contains what a worker and its machine used during an interval, a row of usage-<rank>.csv.
// A value that the machine does not measure is NaN, and an empty cell in the file.
//
// The worker's values are those of its process and all descendants. If one process contains several
// workers (strategies mirrored and multiworker), only the first one has a file.
type Sample struct {
	Time    time.Time // end of the interval
	Seconds float64   // length of the interval
	Host    string
	Epoch   int // that the worker trained at the end of the interval, from 1; 0 if unknown

	CPUCores    float64 // CPU time of the worker per second, in cores
	MemoryBytes float64 // resident memory of the worker; a page that several of its processes share counts for each

	MachineCPUCores    float64 // CPU time of all processes of the machine per second, in cores
	MachineMemoryBytes float64 // memory of the machine that is not available to new processes

	// Traffic of the machine's network interfaces, and of its loopback interface between processes
	// of one machine. InfiniBand and RoCE bypass the interfaces and are not included, except for IP
	// over InfiniBand.
	ReceivedBytesPerSecond float64
	SentBytesPerSecond     float64
	LoopbackBytesPerSecond float64

	ProcessorWatts float64 // power of the machine's processors (RAPL packages)

	// Values of the worker's GPU.
	GPUPercent     float64 // percentage of the time in which a kernel ran
	GPUMemoryBytes float64
	GPUWatts       float64
}

// usageColumn is a column of the file with a number that is NaN if it was not measured.
type usageColumn struct {
	name  string
	value func(*Sample) *float64
}

// Columns that every row has; measuredColumns has the others.
const (
	timeColumn    = "unix_seconds"
	secondsColumn = "seconds"
	hostColumn    = "host"
	epochColumn   = "epoch"
)

// measuredColumns returns the columns that may be empty, in the order of the file.
func measuredColumns() []usageColumn {
	return []usageColumn{
		{"cpu_cores", func(s *Sample) *float64 { return &s.CPUCores }},
		{"memory_used_bytes", func(s *Sample) *float64 { return &s.MemoryBytes }},
		{"machine_cpu_cores", func(s *Sample) *float64 { return &s.MachineCPUCores }},
		{"machine_memory_used_bytes", func(s *Sample) *float64 { return &s.MachineMemoryBytes }},
		{"received_bytes_per_second", func(s *Sample) *float64 { return &s.ReceivedBytesPerSecond }},
		{"sent_bytes_per_second", func(s *Sample) *float64 { return &s.SentBytesPerSecond }},
		{"loopback_bytes_per_second", func(s *Sample) *float64 { return &s.LoopbackBytesPerSecond }},
		{"processor_power_watts", func(s *Sample) *float64 { return &s.ProcessorWatts }},
		{"gpu_utilization_percent", func(s *Sample) *float64 { return &s.GPUPercent }},
		{"gpu_memory_used_bytes", func(s *Sample) *float64 { return &s.GPUMemoryBytes }},
		{"gpu_power_watts", func(s *Sample) *float64 { return &s.GPUWatts }},
	}
}

// Columns returns the names of a Sample's Values, in their order.
func Columns() []string {
	var names []string
	for _, c := range measuredColumns() {
		names = append(names, c.name)
	}
	return names
}

// Values returns the values of s, in the order of Columns; NaN means not measured.
func (s Sample) Values() []float64 {
	var values []float64
	for _, c := range measuredColumns() {
		values = append(values, *c.value(&s))
	}
	return values
}

// NewSample returns a Sample in which all values are NaN.
func NewSample() Sample {
	var s Sample
	for _, c := range measuredColumns() {
		*c.value(&s) = math.NaN()
	}
	return s
}

// IsEmpty reports whether nothing is measured.
func (s Sample) IsEmpty() bool {
	return !slices.ContainsFunc(s.Values(), func(v float64) bool { return !math.IsNaN(v) })
}

// Record contains the samples of one worker in the order of time.
type Record struct {
	Rank    int
	Samples []Sample
}

// Summary contains means and peaks over a worker's samples. Means are weighted with the lengths of
// the intervals. A value that was not measured is NaN.
type Summary struct {
	Rank    int
	Host    string  // of the last sample
	Seconds float64 // length of all intervals together

	CPUCores, MachineCPUCores                                          float64 // means
	PeakMemoryBytes, PeakMachineMemoryBytes                            float64
	ReceivedBytesPerSecond, SentBytesPerSecond, LoopbackBytesPerSecond float64 // means
	ProcessorWatts, ProcessorJoules                                    float64 // mean, and energy of the recorded intervals
	GPUPercent, GPUWatts, GPUJoules                                    float64
	PeakGPUMemoryBytes                                                 float64
}

// Summarize returns the means and peaks of the record.
func (r Record) Summarize() Summary {
	s := Summary{
		Rank: r.Rank, PeakMemoryBytes: r.peak(func(s *Sample) float64 { return s.MemoryBytes }),
		PeakMachineMemoryBytes: r.peak(func(s *Sample) float64 { return s.MachineMemoryBytes }),
		PeakGPUMemoryBytes:     r.peak(func(s *Sample) float64 { return s.GPUMemoryBytes }),
	}
	for _, sample := range r.Samples {
		s.Host, s.Seconds = sample.Host, s.Seconds+sample.Seconds
	}
	s.CPUCores, _ = r.timeWeightedMean(func(s *Sample) float64 { return s.CPUCores })
	s.MachineCPUCores, _ = r.timeWeightedMean(func(s *Sample) float64 { return s.MachineCPUCores })
	s.ReceivedBytesPerSecond, _ = r.timeWeightedMean(func(s *Sample) float64 { return s.ReceivedBytesPerSecond })
	s.SentBytesPerSecond, _ = r.timeWeightedMean(func(s *Sample) float64 { return s.SentBytesPerSecond })
	s.LoopbackBytesPerSecond, _ = r.timeWeightedMean(func(s *Sample) float64 { return s.LoopbackBytesPerSecond })
	s.GPUPercent, _ = r.timeWeightedMean(func(s *Sample) float64 { return s.GPUPercent })
	s.ProcessorWatts, s.ProcessorJoules = r.timeWeightedMean(func(s *Sample) float64 { return s.ProcessorWatts })
	s.GPUWatts, s.GPUJoules = r.timeWeightedMean(func(s *Sample) float64 { return s.GPUWatts })
	return s
}

// timeWeightedMean returns the mean of a value over the time in which it was measured, and its
// integral over this time. Both are NaN if it was never measured.
func (r Record) timeWeightedMean(value func(*Sample) float64) (mean, integral float64) {
	seconds := 0.0
	for i := range r.Samples {
		s := &r.Samples[i]
		if v := value(s); !math.IsNaN(v) {
			integral, seconds = integral+v*s.Seconds, seconds+s.Seconds
		}
	}
	if seconds == 0 {
		return math.NaN(), math.NaN()
	}
	return integral / seconds, integral
}

func (r Record) peak(value func(*Sample) float64) float64 {
	peak := math.NaN()
	for i := range r.Samples {
		if v := value(&r.Samples[i]); !(v <= peak) && !math.IsNaN(v) {
			peak = v
		}
	}
	return peak
}

// FileName returns the name of the file of a rank in the run folder.
func FileName(rank int) string { return fmt.Sprintf("usage-%d.csv", rank) }
