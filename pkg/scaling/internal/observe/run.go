package observe

import (
	"cmp"
	"math"
	"path/filepath"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

func wallSeconds(r runs.Run) float64 {
	if r.WallSeconds > 0 {
		return r.WallSeconds
	}
	return math.NaN()
}

// TrainSeconds returns the training time of a run: the time in its log, or else the sum over its
// epochs. It returns NaN if the run has no epochs or one of them has no time.
func TrainSeconds(r runs.Run) float64 {
	if v, ok := r.Info.Config[logread.TrainingSecondsKey].(float64); ok && v > 0 {
		return v
	}
	if len(r.Epochs) == 0 {
		return math.NaN()
	}
	total := 0.0
	for _, e := range r.Epochs {
		total += e.Seconds // NaN if the time of an epoch is unknown
	}
	return total
}

// TestSeconds returns the time of the test after training, or NaN if unknown.
func TestSeconds(r runs.Run) float64 {
	if v, ok := r.Info.Config["test_seconds"].(float64); ok && v > 0 {
		return v
	}
	if r.Info.Test != nil && r.Info.Test.Seconds > 0 {
		return r.Info.Test.Seconds
	}
	return math.NaN()
}

// EnergyJoules returns the energy of all devices during a run, or NaN if unknown.
func EnergyJoules(r runs.Run) float64 {
	if r.Info.EnergyJoules > 0 {
		return r.Info.EnergyJoules
	}
	return math.NaN()
}

// NodeCount returns the number of machines, from the log or from the ranks' host names, or 0 if
// unknown.
func NodeCount(r runs.Run) int {
	if r.Info.Nodes > 0 {
		return r.Info.Nodes
	}
	hosts := map[string]bool{}
	for _, w := range r.Workers {
		if w.Host == "" {
			return 0
		}
		hosts[w.Host] = true
	}
	if len(r.Workers) < r.Info.Workers { // some ranks recorded no host name
		return 0
	}
	return len(hosts)
}

// BatchSizes returns the batch per worker and the global batch in samples, or 0 for each that is
// unknown.
func BatchSizes(r runs.Run) (perWorker, global int) {
	n := r.Info.Workers
	perWorker = r.Info.BatchPerWorker
	global = cmp.Or(r.Info.GlobalBatch, perWorker*n)
	if perWorker == 0 && n > 0 && global%n == 0 {
		perWorker = global / n
	}
	return perWorker, global
}

// SamplesPerEpoch returns the samples of the last epoch that has a sample count, without padding.
// Without such an epoch, it returns the number that the run recorded, or 0.
func SamplesPerEpoch(r runs.Run) int {
	for i := len(r.Epochs) - 1; i >= 0; i-- {
		if n := r.Epochs[i].Samples - r.Epochs[i].PaddingSamples; n > 0 {
			return n
		}
	}
	return r.Info.SamplesPerEpoch
}

// HasFailed reports whether a run failed or was canceled. Such runs do not count.
func HasFailed(r runs.Run) bool {
	return r.Info.Status == runs.StatusFailed || r.Info.Status == runs.StatusCanceled
}

// RunName returns the name of a run in notes: the last element of its path.
func RunName(r runs.Run) string { return filepath.Base(r.Dir) }

// IsFinite reports whether v is neither NaN nor infinite.
func IsFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// SamplesPerSecond returns the throughput of an epoch. If the throughput was not logged or counts
// padding, it is the number of samples without padding divided by the seconds. It is NaN if
// unknown.
func SamplesPerSecond(e runs.Epoch) float64 {
	if e.Samples > 0 && (math.IsNaN(e.SamplesPerSecond) || e.PaddingSamples > 0) {
		return float64(e.Samples-e.PaddingSamples) / e.Seconds
	}
	return e.SamplesPerSecond
}

// PaddingShare returns the fraction (0 to 1) of a run's samples that were repeated to fill a batch
// or a shard.
func PaddingShare(r runs.Run) float64 {
	samples, padding := 0, 0
	for i := range r.Epochs {
		samples, padding = samples+r.Epochs[i].Samples, padding+r.Epochs[i].PaddingSamples
	}
	return float64(padding) / float64(max(samples, 1))
}
