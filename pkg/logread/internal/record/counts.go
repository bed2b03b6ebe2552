package record

import (
	"strconv"
	"strings"
)

// MaxWorkers is more than any machine has: a number above it counts something
// else.
const MaxWorkers = 1 << 22

func IsCount(v float64) bool { return v >= 1 && v <= MaxWorkers && v == float64(int(v)) }

// ConfigNumber is the first of the keys that holds a number.
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

// SlurmJob is the key of Info.JobIDs under which a Slurm job's number stands.
const SlurmJob = "slurm"

// UncompressedName leaves out the ending that a compression adds.
func UncompressedName(path string) string {
	for _, end := range []string{".gz", ".zst", ".zstd"} {
		if bare, ok := strings.CutSuffix(path, end); ok {
			return bare
		}
	}
	return path
}

// TrainingSeconds is the key of Info.Config under which the seconds of the
// whole training stand, where a log tells them.
const TrainingSeconds = "training_seconds"

// MaxSettings bounds the settings that are kept of a run.
const MaxSettings = 1000
