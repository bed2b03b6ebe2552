package record

import (
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/scan"
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
	if n := strings.Count(rest, ":"); err != nil || d < 0 || d > 1<<20 || n < 1 || n > 2 {
		return 0, false
	}
	seconds, ok := scan.ParseClock([]byte(rest))
	return seconds + float64(d)*86400, ok || strings.Trim(rest, "0:.") == ""
}
