package record

import (
	"strconv"
	"strings"

	"lockstep/pkg/runs"
)

// SlurmStatus returns the status of a run whose job has the given state and
// exit code, and the reason if the job did not complete.
func SlurmStatus(state, exit string) (status, why string) {
	word, _, _ := strings.Cut(state, " ")
	switch word {
	case "COMPLETED":
		return runs.StatusDone, ""
	case "RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "":
		return runs.StatusRunning, ""
	case "CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE":
		status = runs.StatusCanceled
	default:
		status = runs.StatusFailed
	}
	why = "Slurm: " + state
	if exit != "" && exit != "0:0" {
		why += ", exit code " + exit
	}
	return status, why
}

// ParseSlurmDuration parses [days-]hours:minutes:seconds[.fraction] or
// minutes:seconds and returns the number of seconds.
func ParseSlurmDuration(text string) (float64, bool) {
	days, rest, hasDays := strings.Cut(text, "-")
	if !hasDays {
		days, rest = "0", text
	}
	d, err := strconv.Atoi(days)
	if err != nil || d < 0 || d > 1<<20 {
		return 0, false
	}
	total := 0.0
	fields := strings.Split(rest, ":")
	if len(fields) < 2 || len(fields) > 3 {
		return 0, false
	}
	for _, f := range fields {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil || !(v >= 0 && v < 1e9) {
			return 0, false
		}
		total = total*60 + v
	}
	return total + float64(d)*86400, true
}
