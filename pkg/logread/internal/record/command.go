package record

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ScriptName returns the name of a command's script without .py, or "" if the
// command has no script or the name is a common one such as train.py.
func ScriptName(words []string) string {
	for _, w := range words {
		if stem, ok := strings.CutSuffix(filepath.Base(w), ".py"); ok {
			if slices.Contains([]string{"train", "main", "run", "training", "launch"}, strings.ToLower(stem)) {
				return ""
			}
			return stem
		}
	}
	return ""
}

// CommandWorkers returns the number of workers that a command starts, or 0 if the
// command's arguments do not contain this number.
func CommandWorkers(words []string) int {
	value := func(names ...string) int {
		for i, w := range words {
			for _, name := range names {
				text, joined := strings.CutPrefix(w, name+"=")
				switch {
				case joined:
				case w == name && i+1 < len(words):
					text = words[i+1]
				default:
					continue
				}
				if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= 1<<16 {
					return n
				}
			}
		}
		return 0
	}
	if n := value("--nproc_per_node", "--nproc-per-node"); n > 0 {
		return n * max(1, value("--nnodes"))
	}
	if n := value("--n_gpus", "--num_gpus", "--ngpus", "--num-gpus", "--gpus", "--world_size", "--world-size", "--num_processes"); n > 0 {
		return n
	}
	for i, w := range words {
		switch w {
		case "srun", "mpirun", "mpiexec", "horovodrun":
			rest := words[i+1:]
			for k := range rest {
				if strings.HasSuffix(rest[k], ".py") || strings.HasSuffix(rest[k], "osu_allreduce") || strings.HasSuffix(rest[k], "all_reduce_perf") {
					rest = rest[:k]
					break
				}
			}
			words = rest
			return value("-n", "-np", "--ntasks")
		}
	}
	return 0
}
