package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// squeueFields are the columns that QueryJobs reads, in this order. squeue prints the separator
// after each of them. QueryJobs does not use squeue's JSON, because version 22.05 prints all jobs
// of the cluster with --json, regardless of the jobs asked for (environment/adr/015-slurm.md).
var squeueFields = []string{"JobArrayID", "State", "Reason", "NodeList", "RestartCnt", "exit_code", "TimeLimit", "StartTime", "EndTime"}

// sacctFields are the fields for Jobs, in this order.
var sacctFields = []string{"JobID", "State", "ExitCode", "NodeList", "Timelimit", "Start", "End"}

const fieldSeparator = "|"

// QueryJobs returns the state of each job in ids, by id. It asks squeue first, and sacct about the
// jobs that have ended, because sacct knows more about them. A job that neither of them knows has
// the state "".
func (c Client) QueryJobs(ctx context.Context, ids []string) (map[string]Job, error) {
	jobs := map[string]Job{}
	for _, id := range ids {
		jobs[id] = Job{ID: id}
	}
	if len(ids) == 0 {
		return jobs, nil
	}
	var format []string
	for _, f := range squeueFields {
		format = append(format, f+":"+fieldSeparator)
	}
	// --array prints a line for each task of an array, also for tasks that wait.
	text, err := c.runCommand(ctx, "squeue", "--noheader", "--states=all", "--array", "--jobs="+strings.Join(parentJobIDs(ids), ","), "--Format="+strings.Join(format, ","))
	var refused *CommandError
	if err != nil && !(errors.As(err, &refused) && strings.Contains(refused.Message, "Invalid job id")) {
		return nil, err
	}
	all, err := parseSqueue(text)
	if err != nil {
		return nil, err
	}
	var ended []string
	for _, j := range all {
		if _, asked := jobs[j.ID]; asked {
			jobs[j.ID] = j
		}
	}
	for _, id := range ids {
		if j := jobs[id]; j.HasEnded() && !j.Succeeded() || !j.IsKnown() {
			ended = append(ended, id)
		}
	}
	if len(ended) == 0 {
		return jobs, nil
	}
	text, err = c.runCommand(ctx, "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+strings.Join(parentJobIDs(ended), ","), "--format="+strings.Join(sacctFields, ","))
	if err != nil {
		return jobs, nil // accounting is disabled, or does not answer: squeue's answer counts
	}
	recorded, err := parseSacct(text)
	if err != nil {
		return nil, err
	}
	for _, j := range recorded {
		if known, asked := jobs[j.ID]; asked && j.HasEnded() {
			j.Restarts = known.Restarts
			jobs[j.ID] = j
		}
	}
	return jobs, nil
}

func parseSqueue(text string) ([]Job, error) {
	var all []Job
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, fieldSeparator), fieldSeparator)
		if len(f) != len(squeueFields) {
			return nil, fmt.Errorf("read output of squeue: got %q, want %d fields: %s", line, len(squeueFields), strings.Join(squeueFields, ", "))
		}
		j := Job{ID: f[0], State: f[1], Reason: f[2], Nodes: f[3], Limit: f[6], Started: parseTime(f[7]), Ended: parseTime(f[8])}
		j.Restarts, _ = strconv.Atoi(f[4])
		status, _ := strconv.Atoi(f[5]) // as from wait(2)
		j.ExitCode, j.Signal = status>>8, status&0x7f
		if j.Reason == "None" {
			j.Reason = ""
		}
		all = append(all, j)
	}
	return all, nil
}

// parseSacct parses the output of sacct with sacctFields. One line may describe all tasks of an
// array that have not started.
func parseSacct(text string) ([]Job, error) {
	var all []Job
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		f := strings.Split(line, fieldSeparator)
		if len(f) != len(sacctFields) {
			return nil, fmt.Errorf("read output of sacct: got %q, want %d fields: %s", line, len(sacctFields), strings.Join(sacctFields, ", "))
		}
		j := Job{Nodes: f[3], Limit: f[4], Started: parseTime(f[5]), Ended: parseTime(f[6])}
		j.State, j.By, _ = strings.Cut(f[1], " by ") // "CANCELLED by 1000"
		code, signal, _ := strings.Cut(f[2], ":")
		j.ExitCode, _ = strconv.Atoi(code)
		j.Signal, _ = strconv.Atoi(signal)
		if j.Nodes == "None assigned" {
			j.Nodes = ""
		}
		for _, id := range expandArrayTaskID(f[0]) {
			j.ID = id
			all = append(all, j)
		}
	}
	return all, nil
}

// parseTime parses a time in the local time zone, or returns the zero time.
func parseTime(text string) time.Time {
	t, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.Local)
	if err != nil {
		return time.Time{} // N/A or Unknown
	}
	return t
}
