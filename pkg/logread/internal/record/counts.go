package record

import (
	"strconv"
	"strings"
)

// MaxWorkers is more workers than any machine has. A larger number in a log
// counts something else.
const MaxWorkers = 1 << 22

// IsCount reports whether v is a whole number from 1 to MaxWorkers.
func IsCount(v float64) bool { return v >= 1 && v <= MaxWorkers && v == float64(int(v)) }

// ConfigNumber returns the value of the first key in c that is a number or the
// text of one.
func ConfigNumber(c map[string]any, keys ...string) (float64, bool) {
	for _, k := range keys {
		switch v := c[k].(type) {
		case float64:
			return v, true
		case int:
			return float64(v), true
		case int64:
			return float64(v), true
		case string:
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				return f, true
			}
		}
	}
	return 0, false
}

// SlurmJob is the key of runs.Info.JobIDs for the number of a Slurm job.
const SlurmJob = "slurm"

// UncompressedName returns path without the ending that a compressed file has.
func UncompressedName(path string) string {
	for _, end := range []string{".gz", ".zst", ".zstd"} {
		if bare, ok := strings.CutSuffix(path, end); ok {
			return bare
		}
	}
	return path
}

// TrainingSeconds is the key of runs.Info.Config for the seconds of the whole
// training, if a log has them.
const TrainingSeconds = "training_seconds"

// MaxSettings limits the settings that are kept per run.
const MaxSettings = 1000
