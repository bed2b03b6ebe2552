package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/topology"
)

// ArrayTaskID returns the id of a task of a job array, such as 17_3. array is the id of the array.
func ArrayTaskID(array string, task int) string { return array + "_" + strconv.Itoa(task) }

// IsArrayTask reports whether id is the id of a task of a job array.
func IsArrayTask(id string) bool { return strings.Contains(id, "_") }

// parentJobIDs returns the ids without their task numbers, each once: a job array for its tasks,
// and other jobs unchanged.
func parentJobIDs(ids []string) []string {
	var all []string
	seen := map[string]bool{}
	for _, id := range ids {
		job, _, _ := strings.Cut(id, "_")
		if !seen[job] {
			seen[job] = true
			all = append(all, job)
		}
	}
	return all
}

// ShortenIDs combines the ids of the tasks of a job array into one text, such as 17_[0-3,7], which
// Slurm's commands accept.
func ShortenIDs(ids []string) []string {
	tasks := map[string][]int{}
	for _, id := range ids {
		if job, task, ok := strings.Cut(id, "_"); ok {
			n, _ := strconv.Atoi(task)
			tasks[job] = append(tasks[job], n)
		}
	}
	all := parentJobIDs(ids)
	for i, job := range all {
		switch list := tasks[job]; len(list) {
		case 0:
		case 1:
			all[i] = ArrayTaskID(job, list[0])
		default:
			all[i] = fmt.Sprintf("%s_[%s]", job, topology.FormatCPUList(slices.Compact(slices.Sorted(slices.Values(list)))))
		}
	}
	return all
}

// expandArrayTaskID returns the ids of all tasks in a text such as 17_[0-3,7] or 17_[0-9%2], by which Slurm
// reports tasks that have not started, or any other id unchanged.
func expandArrayTaskID(id string) []string {
	job, list, ok := strings.Cut(id, "_[")
	list, _, _ = strings.Cut(strings.TrimSuffix(list, "]"), "%") // %2: at most two at a time
	if !ok {
		return []string{id}
	}
	var all []string
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || last-first > maxArrayTasks { // such as ..., if the list is too long
			return []string{id}
		}
		for task := first; task <= last; task++ {
			all = append(all, ArrayTaskID(job, task))
		}
	}
	return all
}

const maxArrayTasks = 4_000_001
