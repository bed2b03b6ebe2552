// Package gpuwatch records the utilization and power of a worker's GPU in the run folder.
package gpuwatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
)

const sampleInterval = time.Second

// Sampler records the utilization and power of a worker's GPU in the file gpu-<rank>.csv of the run
// folder. The zero value does nothing.
type Sampler struct {
	device  *engine.Accelerator
	sampler *monitor.Sampler
	file    *os.File
}

// StartSampling starts to sample the GPU d. It returns a zero Sampler if d is nil. If the GPU cannot be
// sampled, it returns a note for the log instead of an error.
func StartSampling(d *engine.Accelerator, dir string, rank int) (w Sampler, note string, err error) {
	if d == nil {
		return Sampler{}, "", nil
	}
	if w.file, err = createSampleFile(dir, rank); err != nil {
		return Sampler{}, "", err
	}
	sampler, problem := d.Watch(sampleInterval, w.file)
	if problem != nil {
		name := w.file.Name()
		return Sampler{}, fmt.Sprintf("use and power of the GPU are not recorded: %v", problem), errors.Join(w.file.Close(), os.Remove(name))
	}
	w.device, w.sampler = d, sampler
	return w, "", nil
}

// createSampleFile creates gpu-<rank>.csv in dir, or gpu-<rank>.2.csv and so on for a resumed run.
func createSampleFile(dir string, rank int) (*os.File, error) {
	for part := 1; ; part++ {
		name := fmt.Sprintf("gpu-%d.csv", rank)
		if part > 1 {
			name = fmt.Sprintf("gpu-%d.%d.csv", rank, part)
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// LatestSampleFunc returns a function that returns the latest sample, or nil if nothing is sampled.
func (w *Sampler) LatestSampleFunc() func() monitor.GPUSample {
	if w.sampler == nil {
		return nil
	}
	return w.sampler.Last
}

// CheckSampleFile returns a *runs.LostError if the file with the samples was deleted.
func (w *Sampler) CheckSampleFile() error {
	if w.sampler == nil {
		return nil
	}
	return runs.CheckNotLost(w.file)
}

// Stop ends the sampling and returns a summary, which is zero if nothing was sampled. The error is
// a *runs.LostError if the file with the samples was deleted.
func (w *Sampler) Stop() (monitor.Summary, error) {
	if w.sampler == nil {
		return monitor.Summary{}, nil
	}
	lost := w.CheckSampleFile()
	s, err := w.sampler.Stop()
	w.sampler = nil
	return s, errors.Join(lost, err, w.file.Close())
}

// StopOnAllRanks ends the sampling on all ranks. It returns this rank's summary, and the total
// energy of all devices in joules. A device shared by several ranks counts once. The energy is 0 if
// any rank's device does not measure it. All ranks must call StopOnAllRanks.
func (w *Sampler) StopOnAllRanks(ctx context.Context, group collective.Group) (monitor.Summary, float64, error) {
	d := w.device
	s, err := w.Stop()
	// Three numbers per rank: its device's identifier, as two numbers that a float64 represents
	// exactly (0, 0: none), and the device's joules.
	n := group.Size()
	all := make([]float64, 3*n)
	if d != nil {
		id := d.UUID
		mine := all[3*group.Rank():]
		for i, b := range id {
			mine[i/8] = mine[i/8]*31 + float64(b) // below 2⁵³
		}
		mine[2] = s.EnergyJoules
	}
	if n > 1 {
		// Every rank must take part, even if it failed to write its file.
		if reduceErr := group.AllReduce(ctx, device.Buffer{F64: all}); reduceErr != nil {
			return s, 0, errors.Join(err, reduceErr)
		}
	}
	seen := map[[2]float64]float64{}
	for i := range n {
		id, joules := [2]float64{all[3*i], all[3*i+1]}, all[3*i+2]
		if joules <= 0 {
			return s, 0, err
		}
		seen[id] = max(seen[id], joules)
	}
	sum := 0.0
	for _, joules := range seen {
		sum += joules
	}
	return s, sum, err
}

// FormatSummary formats rank 0's utilization and power, and the energy of all GPUs, for out.log.
// It returns "" if nothing was measured.
func FormatSummary(s monitor.Summary, joules float64) string {
	var parts []string
	if s.Utilization > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %% busy", s.Utilization))
	}
	if s.PowerWatts > 0 {
		parts = append(parts, fmt.Sprintf("%.0f W", s.PowerWatts))
	}
	if joules > 0 {
		parts = append(parts, fmt.Sprintf("%.1f kJ over all", joules/1e3))
	}
	if len(parts) == 0 {
		return ""
	}
	return "GPU of rank 0: " + strings.Join(parts, ", ")
}
