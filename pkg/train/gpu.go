package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
)

// watchEvery is how often a GPU is asked what it does.
const watchEvery = time.Second

// gpuWatch samples the device of one worker into gpu-<rank>.csv of the run folder.
// The zero value watches nothing.
type gpuWatch struct {
	device  engine.Accelerated
	sampler *monitor.Sampler
	file    *os.File
}

// watchGPU begins to sample the device of e, where it has one of its own. What
// cannot be watched is a note, not an error.
func watchGPU(e engine.Engine, dir string, rank int) (w gpuWatch, note string, err error) {
	d, ok := e.(engine.Accelerated)
	if !ok {
		return gpuWatch{}, "", nil
	}
	if w.file, err = newGPUFile(dir, rank); err != nil {
		return gpuWatch{}, "", err
	}
	sampler, problem := d.Watch(watchEvery, w.file)
	if problem != nil {
		name := w.file.Name()
		return gpuWatch{}, fmt.Sprintf("use and power of the GPU are not recorded: %v", problem), errors.Join(w.file.Close(), os.Remove(name))
	}
	w.device, w.sampler = d, sampler
	return w, "", nil
}

// newGPUFile makes gpu-<rank>.csv, or for a run that is resumed gpu-<rank>.2.csv and
// so on.
func newGPUFile(dir string, rank int) (*os.File, error) {
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

// check returns a *runs.LostError if the file of the samples is gone.
func (w *gpuWatch) check() error {
	if w.sampler == nil {
		return nil
	}
	return runs.CheckPlace(w.file)
}

// stop ends the samples. The error is a *runs.LostError if their file is gone.
func (w *gpuWatch) stop() (monitor.Summary, error) {
	if w.sampler == nil {
		return monitor.Summary{}, nil
	}
	lost := w.check()
	s, err := w.sampler.Stop()
	w.sampler = nil
	return s, errors.Join(lost, err, w.file.Close())
}

// total ends the samples of all ranks and adds their energy up, each device's
// once, whoever shares it: joules, 0 where a rank's device does not say. All ranks
// must call it.
func (w *gpuWatch) total(ctx context.Context, group collective.Group) (monitor.Summary, float64, error) {
	d := w.device
	s, err := w.stop()
	// Which device, in two numbers that a float64 holds exactly (0, 0: none), and its
	// joules, of each rank at its own place.
	n := group.Size()
	all := make([]float64, 3*n)
	if d != nil {
		id := d.UUID()
		mine := all[3*group.Rank():]
		for i, b := range id {
			mine[i/8] = mine[i/8]*31 + float64(b) // below 2⁵³
		}
		mine[2] = s.EnergyJoules
	}
	if n > 1 {
		// Every rank goes on to here, whatever went wrong with its file.
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

// usage is a line for out.log.
func usage(s monitor.Summary, joules float64) string {
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

// lossScaleKey is the metadata of a checkpoint that holds the loss scale of fp16.
const lossScaleKey = "loss_scale"

// lossScaleOf is the loss scale of x for a checkpoint, "" where it has none.
func lossScaleOf(x engine.Executable) (string, error) {
	scaler, ok := x.(engine.LossScaler)
	if !ok {
		return "", nil
	}
	s, scaled := scaler.LossScale()
	if !scaled {
		return "", nil
	}
	text, err := json.Marshal(s)
	return string(text), err
}

// applyLossScale sets the loss scale that a checkpoint holds, where x has one: a
// checkpoint of another precision, or of an earlier version, leaves it at its
// beginning.
func applyLossScale(x engine.Executable, text string) error {
	scaler, ok := x.(engine.LossScaler)
	if !ok || text == "" {
		return nil
	}
	if _, scaled := scaler.LossScale(); !scaled {
		return nil
	}
	var s engine.LossScale
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("loss scale %q: %w", text, err)
	}
	return scaler.SetLossScale(s)
}

// openAnywhere is OpenEngine, with the CPU engine in place of a GPU that cannot be
// used here; note says so then.
func openAnywhere(o engine.Options) (e engine.Engine, note string, err error) {
	e, err = OpenEngine(o, 0)
	if _, onGPU := o.CUDA(); err == nil || !onGPU {
		return e, "", err
	}
	here := engine.DefaultOptions()
	here.Fuse, here.Threads = o.Fuse, o.Threads
	e, cpuErr := cpu.New(here)
	if cpuErr != nil {
		return nil, "", errors.Join(err, cpuErr)
	}
	reason, _, _ := strings.Cut(err.Error(), "\n")
	return e, fmt.Sprintf("trained on %s (%s), which cannot be used here: computed on the CPU in fp32 instead (%s)", o.Device, o.Precision, reason), nil
}
