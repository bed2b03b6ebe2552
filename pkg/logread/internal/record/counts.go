package record

import (
	"math"
	"strconv"
	"strings"

	"lockstep/pkg/runs"
)

// MaxWorkers exceeds the workers of any machine. A larger number must count something else.
const MaxWorkers = 1 << 22

// IsPlausibleCount reports whether v is a whole number from 1 to MaxWorkers.
func IsPlausibleCount(v float64) bool { return v >= 1 && v <= MaxWorkers && v == float64(int(v)) }

// ConfigNumber returns the value of the first key in c that is a number, or a text that
// contains only a number. ok is false if there is none.
func ConfigNumber(c map[string]any, keys ...string) (v float64, ok bool) {
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

// SetConfigValue stores a setting in info.Config.
func SetConfigValue(info *runs.Info, key string, v any) { PutInMap(&info.Config, key, v) }

// PutInMap stores v in *m, and creates the map if it is nil.
func PutInMap[K comparable, V any](m *map[K]V, key K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = v
}

// CountDevices returns the number of devices in a list such as "0,1,2" or "[0, 1]", or 0 if the text
// is not a list of different numbers.
func CountDevices(text string) int {
	seen := map[int]bool{}
	for word := range strings.SplitSeq(strings.Trim(text, "[]'\" "), ",") {
		word = strings.TrimSpace(word)
		if word == "" && len(seen) > 0 {
			continue // "0," is a list of one device
		}
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || seen[n] {
			return 0
		}
		seen[n] = true
	}
	return len(seen)
}

// SlurmJobKey is the key of the Slurm job number in runs.Info.JobIDs.
const SlurmJobKey = "slurm"

// UncompressedName returns path without the extension .gz, .zst, .zstd, .xz or .bz2.
func UncompressedName(path string) string {
	for _, end := range []string{".gz", ".zst", ".zstd", ".xz", ".bz2"} {
		if bare, ok := strings.CutSuffix(path, end); ok {
			return bare
		}
	}
	return path
}

// TrainingSecondsKey is the key in runs.Info.Config of the duration of the complete training
// in seconds, if a log contains it.
const TrainingSecondsKey = "training_seconds"

// TrainingEpochsKey is the key in runs.Info.Config of the number of epochs, a float64, that
// were trained in TrainingSecondsKey, if a log contains it. It may have a fraction, and it may
// differ from the number of epochs with values in the log.
const TrainingEpochsKey = "training_epochs"

// PlannedEpochs returns the number of epochs that the settings of a run state. ok is false if they state none.
func PlannedEpochs(config map[string]any) (n float64, ok bool) {
	n, ok = ConfigNumber(config, "epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "total_epochs", "train_epochs", "nb_epochs", "trainer/max_epochs")
	return n, ok && n > 0 && !math.IsInf(n, 0)
}

// MaxRunSettings is the largest number of settings that are kept per run.
const MaxRunSettings = 1000

// ModelSettingKeys returns the names of settings that name the model, in the order in which they count.
func ModelSettingKeys() []string {
	return []string{"model", "arch", "architecture", "model_name", "model_name_or_path", "network", "backbone"}
}

// BatchSettingKeys returns the names of settings that may contain the batch size, in order of precedence.
// Batch sizes per worker come first.
func BatchSettingKeys() []string {
	return []string{
		"per_device_train_batch_size", "batch_size_per_gpu", "batch-size-per-gpu", "local_batch_size", "micro_batch_size",
		"batch_size", "batch-size", "train_batch_size", "train-batch-size", "batch", "bs",
	}
}
