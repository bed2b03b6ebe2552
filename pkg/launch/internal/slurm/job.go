package slurm

import (
	"fmt"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Job describes a job of Slurm and its state.
type Job struct {
	ID       string // such as 17, or 17_3 for a task of an array
	State    string // in Slurm's words, such as PENDING; "" if Slurm no longer knows the job
	Reason   string // why it waits or ended, in Slurm's words; "" if none
	By       string // the user who canceled it; "" if unknown
	Nodes    string // list of its nodes, in Slurm's notation
	Restarts int    // how often it was requeued
	ExitCode int    // of its script
	Signal   int    // the signal that ended its script; 0 if none
	Limit    string // its time limit, such as 10:00
	Started  time.Time
	Ended    time.Time
}

// The states of a job that this package treats specially.
const (
	statePending   = "PENDING"
	stateCompleted = "COMPLETED"
	stateCanceled  = "CANCELLED"
	stateFailed    = "FAILED"
)

func terminalJobStates() []string {
	return []string{
		stateCompleted, stateFailed, stateCanceled, "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED",
	}
}

// IsKnown reports whether Slurm still knows the job.
func (j Job) IsKnown() bool { return j.State != "" }

// HasEnded reports whether the job has ended and does not start again.
func (j Job) HasEnded() bool { return slices.Contains(terminalJobStates(), j.State) }

// Succeeded reports whether the job's script ended with exit code 0.
func (j Job) Succeeded() bool { return j.State == stateCompleted }

// IsCanceled reports whether a user canceled the job.
func (j Job) IsCanceled() bool { return j.State == stateCanceled }

// IsPending reports whether the job waits for its start, also after it was requeued.
func (j Job) IsPending() bool {
	return slices.Contains([]string{statePending, "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}, j.State)
}

// AsFailed returns a copy of j whose script ended with the given exit code. It is for one of
// several runs that share a job.
func (j Job) AsFailed(code int) Job {
	j.State, j.ExitCode, j.Signal = stateFailed, code, 0
	return j
}

// DescribeEnd describes why the job ended. output is the last part of the job's output, in which
// Slurm reports some causes, such as running out of memory.
func (j Job) DescribeEnd(output string) string {
	nodes := ""
	if j.Nodes != "" {
		nodes = " on " + j.Nodes
	}
	limit := ""
	if j.Limit != "" {
		limit = " of " + j.Limit
	}
	switch state := j.State; {
	case state == "OUT_OF_MEMORY" || strings.Contains(output, "oom_kill") || strings.Contains(output, "oom-kill") || strings.Contains(output, ": Out Of Memory") || strings.Contains(output, "Exceeded job memory limit"):
		return "out of memory" + nodes + ": ask for more memory (Memory, --mem), or use a smaller batch"
	case state == "TIMEOUT" || state == "DEADLINE" || strings.Contains(output, "DUE TO TIME LIMIT"):
		return "the time limit" + limit + " was reached: ask for more time, and resume the run (Resume, --resume)"
	case state == "NODE_FAIL" || state == "BOOT_FAIL" || strings.Contains(output, "DUE TO NODE FAILURE"):
		return "a node failed" + nodes + ": resume the run (Resume, --resume)"
	case state == "PREEMPTED" || strings.Contains(output, "DUE TO PREEMPTION"):
		return "it was preempted by a job of higher priority: resume the run (Resume, --resume)"
	case state == stateCanceled && j.By != "":
		return "canceled by " + lookUpUserName(j.By)
	case state == stateCanceled:
		return "canceled by scancel; this cluster does not record by whom"
	case state == stateFailed && findTaskFailure(output) != nil:
		return findTaskFailure(output).String()
	case state == stateFailed && j.Signal != 0:
		return fmt.Sprintf("its script was ended by signal %d", j.Signal)
	case state == stateFailed:
		return fmt.Sprintf("its script ended with exit code %d", j.ExitCode)
	case state == "":
		return "it has left the queue, and this cluster does not record why"
	}
	return "it ended in state " + j.State
}

// taskFailure describes the end of one or more tasks of a step.
type taskFailure struct {
	node, tasks string
	code        int
}

// String describes the failure for users.
func (f *taskFailure) String() string {
	name := "task "
	if strings.ContainsAny(f.tasks, ",-") {
		name = "tasks "
	}
	text := fmt.Sprintf("%s%s ended with exit code %d on %s", name, f.tasks, f.code, f.node)
	if f.code == killedExitCode {
		text += " (killed by signal 9: by a user's kill -9, or because memory ran out)"
	}
	return text
}

const killedExitCode = 128 + 9

var taskFailurePattern = regexp.MustCompile(`srun: error: ([^:\s]+): tasks? ([0-9,-]+): Exited with exit code ([0-9]+)`)

// findTaskFailure returns the first failure of tasks in the output of a job script, or nil. If one
// task fails, srun ends the others, whose failures have no exit code.
func findTaskFailure(output string) *taskFailure {
	m := taskFailurePattern.FindStringSubmatch(output)
	if m == nil {
		return nil
	}
	code, _ := strconv.Atoi(m[3])
	return &taskFailure{node: m[1], tasks: m[2], code: code}
}

// FirstFailedTask returns the number of the first task that ended with an exit code other than 0,
// according to the output of the job script. It returns 0 if there is none.
func FirstFailedTask(output string) int {
	f := findTaskFailure(output)
	if f == nil {
		return 0
	}
	end := strings.IndexAny(f.tasks+",", ",-")
	n, _ := strconv.Atoi(f.tasks[:end])
	return n
}

// DescribeWait describes why a job has not started, such as "Resources: waiting for free nodes". It
// returns an unknown reason of Slurm unchanged.
func (j Job) DescribeWait() string {
	meanings := map[string]string{
		"Resources":              "waiting for free nodes",
		"Priority":               "jobs of higher priority are before it",
		"Dependency":             "waiting for another job",
		"BeginTime":              "its start time has not come; a requeued job waits about two minutes",
		"JobHeldUser":            "held by its user: scontrol release",
		"JobHeldAdmin":           "held by an administrator",
		"Reservation":            "waiting for its reservation",
		"ReqNodeNotAvail":        "a node that it needs is not available",
		"PartitionNodeLimit":     "it asks for more nodes than the partition has, and never starts: cancel it",
		"PartitionTimeLimit":     "it asks for more time than the partition allows, and never starts: cancel it",
		"AssocMaxJobsLimit":      "you already have as many jobs as your account allows",
		"QOSMaxJobsPerUserLimit": "you already have as many jobs as its QOS allows",

		"Nodes required for job are DOWN": "it starts when the nodes that it needs work again",
	}
	reason, _, _ := strings.Cut(j.Reason, ",")
	switch meaning := meanings[reason]; {
	case meaning != "":
		return reason + ": " + meaning
	case reason == "" || reason == "None":
		return "waiting for the scheduler"
	case strings.HasPrefix(reason, "QOSMax") && strings.Contains(reason, "PerUser"): // such as QOSMaxGRESPerUser
		return reason + ": your other jobs use all that you may use at a time; this job starts when one of them ends"
	case strings.HasPrefix(reason, "QOSGrp") || strings.HasPrefix(reason, "AssocGrp"):
		return reason + ": the jobs of your class or account use all that it may use at a time; this job starts when some of them end"
	}
	return j.Reason
}

// lookUpUserName returns the name of a user, given as a name or a number.
func lookUpUserName(id string) string {
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
