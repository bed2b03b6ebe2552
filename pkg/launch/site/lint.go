package site

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
)

// Problem is something that Check found wrong with a job. What states what is wrong, and Next what
// to do. Each is a sentence without a capital letter and a period.
type Problem struct {
	Field   string // of Job, or the key of the profile
	What    string
	Next    string
	Warning bool // the job would run, but probably not as intended
}

// String returns What and Next in one line.
func (p Problem) String() string { return p.What + ": " + p.Next }

// Cluster describes a cluster, as Slurm reports it.
type Cluster struct {
	Partitions   []Partition
	Reservations []Reservation
	Now          time.Time // when Slurm stated it

	// NeedsAccount reports whether Slurm refuses jobs in accounts other than Accounts.
	NeedsAccount bool
	Accounts     []Account // that the user may use; nil without NeedsAccount
}

// Partition is a partition of a cluster. Numbers that are unknown are 0.
type Partition struct {
	Name        string
	Default     bool
	State       string // as sinfo names it: up, down, drain, inact; empty if unknown
	Nodes       int
	CPUsPerNode int           // of the largest node
	GPUsPerNode int           // of the node with most GPUs
	NoGPUs      bool          // it is known that no node has a GPU
	MemoryMiB   int           // of the node with most memory
	TimeLimit   time.Duration // 0: none, or unknown
	Limits      []Limit       // of the partition's QOS
}

// Reservation is a reservation of a cluster.
type Reservation struct {
	Name       string
	Start, End time.Time // zero if unknown
}

// Partition returns the partition with the given name, or the default partition for "", or nil. c
// may be nil.
func (c *Cluster) Partition(name string) *Partition {
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.Partitions, func(p Partition) bool { return p.Name == name || name == "" && p.Default })
	if i < 0 {
		return nil
	}
	return &c.Partitions[i]
}

// Check returns what is wrong with j before it is submitted. If c, the cluster, is nil, only the profile's
// rules are checked. Problems without Warning mean that the job would be refused, wait for ever or fail.
func (p *Profile) Check(j Job, c *Cluster) []Problem {
	for _, problem := range []*Problem{j.checkSizes(), j.checkTexts()} {
		if problem != nil {
			return []Problem{*problem}
		}
	}
	var found []Problem
	if u := p.unknownProblem(j); u != nil {
		found = append(found, *u)
	}
	j = p.Complete(j)
	found = append(found, p.checkStartCommand(j)...)
	found = append(found, p.checkTasks(j)...)
	found = append(found, p.checkCPUs(j)...)
	found = append(found, p.checkGPUs(j)...)
	if p.Account == AccountRequired && j.Account == "" {
		found = append(found, Problem{
			Field: "Account", What: fmt.Sprintf("site %s requires an account, and the job has none", p.Name),
			Next: "give the name of your project's account (Account, --account)",
		})
	}
	if j.Time > 0 && j.Estimate > j.Time {
		source := ""
		if j.Source != "" {
			source = ", because " + j.Source
		}
		found = append(found, Problem{
			Field: "Time", What: fmt.Sprintf("the time limit is %s, but the job will probably take %s%s", j.Time, j.Estimate, source),
			Next: "raise the time limit (Time, --time), or train fewer epochs", Warning: true,
		})
	}
	if c != nil {
		found = append(found, p.checkPartition(j, c)...)
		found = append(found, checkReservation(j, c)...)
		found = append(found, checkAccount(j, c)...)
	}
	return found
}

func (p *Profile) checkTasks(j Job) []Problem {
	var found []Problem
	if most := j.Nodes * j.TasksPerNode; j.Tasks > most {
		found = append(found, Problem{
			Field: "Tasks", What: fmt.Sprintf("the job has %s, but %s with %s each have room for %d",
				english.FormatCount(j.Tasks, "task"), english.FormatCount(j.Nodes, "node"), english.FormatCount(j.TasksPerNode, "task"), most),
			Next: "use more nodes, more tasks per node, or fewer tasks",
		})
	}
	if j.Tasks < j.Nodes {
		found = append(found, Problem{
			Field: "Nodes", What: fmt.Sprintf("the job has %s for %s", english.FormatCount(j.Nodes, "node"), english.FormatCount(j.Tasks, "task")),
			Next: fmt.Sprintf("use at most %s, because each node needs a task", english.FormatCount(j.Tasks, "node")),
		})
	}
	if fixed := p.TasksPerNode.valueOrZero(); fixed > 0 && j.TasksPerNode != fixed {
		found = append(found, Problem{
			Field: "TasksPerNode", What: fmt.Sprintf("the job has %s per node, but site %s starts %d", english.FormatCount(j.TasksPerNode, "task"), p.Name, fixed),
			Next: fmt.Sprintf("use %s per node", english.FormatCount(fixed, "task")), Warning: true,
		})
	}
	return found
}

func (p *Profile) checkCPUs(j Job) []Problem {
	var found []Problem
	perNode := j.TasksPerNode * j.CPUsPerTask
	asked := fmt.Sprintf("the job needs %s per node (%s × %s)", english.FormatCount(perNode, "CPU"), english.FormatCount(j.TasksPerNode, "task"), english.FormatCount(j.CPUsPerTask, "CPU"))
	if cores := p.CoresPerNode.valueOrZero(); cores > 0 && perNode > cores {
		found = append(found, Problem{
			Field: "CPUsPerTask", What: fmt.Sprintf("%s, but a node of site %s has %d", asked, p.Name, cores),
			Next: fmt.Sprintf("use at most %s per task, or fewer tasks per node", english.FormatCount(max(1, cores/j.TasksPerNode), "CPU")),
		})
	}
	if r := p.findCPUsRange(j.GPUsPerNode); r != nil && (perNode < r.Min || perNode > r.Max) {
		want := fmt.Sprintf("%d to %d", r.Min, r.Max)
		if r.Min == r.Max {
			want = fmt.Sprintf("exactly %d", r.Min)
		}
		found = append(found, Problem{
			Field: "CPUsPerTask", What: fmt.Sprintf("%s, but site %s allows %s with %s", asked, p.Name, want, english.FormatCount(r.GPUs, "GPU")),
			Next: fmt.Sprintf("use %s per task", english.FormatCount(max(1, r.Min/j.TasksPerNode), "CPU")),
		})
	}
	return found
}

func (p *Profile) checkGPUs(j Job) []Problem {
	if j.GPUsPerNode == 0 {
		return nil
	}
	var found []Problem
	need := j.TasksPerNode * max(1, j.GPUsPerTask)
	asked := fmt.Sprintf("the workers of a node need %s, but the job asks for %s per node", english.FormatCount(need, "GPU"), english.FormatCount(j.GPUsPerNode, "GPU"))
	switch {
	case need > j.GPUsPerNode:
		found = append(found, Problem{
			Field: "GPUsPerNode", What: asked,
			Next: fmt.Sprintf("use one worker per GPU: %s per node, or fewer tasks per node", english.FormatCount(need, "GPU")),
		})
	case need < j.GPUsPerNode:
		found = append(found, Problem{
			Field: "GPUsPerNode", What: asked,
			Next: fmt.Sprintf("ask for %s per node, or use more tasks per node; the other GPUs would be idle", english.FormatCount(need, "GPU")), Warning: true,
		})
	}
	switch has := p.GPUsPerNode.valueOrZero(); {
	case has == 0: // not known
	case j.GPUsPerTask > has:
		found = append(found, Problem{
			Field: "GPUsPerTask", What: fmt.Sprintf("each process of the job uses %s, but a node of site %s has %d, and a process cannot use several nodes", english.FormatCount(j.GPUsPerTask, "GPU"), p.Name, has),
			Next: adviseFewerGPUs(has),
		})
	case j.GPUsPerNode > has:
		found = append(found, Problem{
			Field: "GPUsPerNode", What: fmt.Sprintf("the job asks for %s per node, but a node of site %s has %d", english.FormatCount(j.GPUsPerNode, "GPU"), p.Name, has),
			Next: fmt.Sprintf("use at most %s per node and more nodes", english.FormatCount(has, "GPU")),
		})
	}
	return append(found, p.checkVisibleDevices(j, need)...)
}

func adviseFewerGPUs(has int) string {
	return fmt.Sprintf("use at most %s per process, or a program with one process per GPU", english.FormatCount(has, "GPU"))
}

// checkVisibleDevices returns a problem if CUDA_VISIBLE_DEVICES shows fewer GPUs than need, the
// number that the tasks of a node need. The variable may be set in the exports of p or in the job's
// environment.
func (p *Profile) checkVisibleDevices(j Job, need int) []Problem {
	for _, e := range slices.Concat(p.Exports, j.Environment) {
		value, ok := strings.CutPrefix(e, "CUDA_VISIBLE_DEVICES=")
		if !ok {
			continue
		}
		visible := len(strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' }))
		if visible < need {
			return []Problem{{
				Field: "Environment", What: fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s shows %s to each task, but the workers of a node need %d", value, english.FormatCount(visible, "GPU"), need),
				Next: "remove it from exports in the site profile or from the environment, because Slurm sets it, or list all GPUs of the node",
			}}
		}
	}
	return nil
}

// checkPartition returns a problem for each reason why j's partition could not run it.
func (p *Profile) checkPartition(j Job, c *Cluster) []Problem {
	part := c.Partition(j.Partition)
	if part == nil {
		return missingPartitionProblems(j, c)
	}
	var found []Problem
	add := func(field, what, next string) { found = append(found, Problem{Field: field, What: what, Next: next}) }
	more := func(field, unit, each string, asked, has int, next string) {
		if has > 0 && asked > has {
			add(field, fmt.Sprintf("the job asks for %s%s, but partition %s has %d, so that it would wait for ever", english.FormatCount(asked, unit), each, part.Name, has),
				next+", or another partition (Partition, --partition)")
		}
	}
	if s := strings.ToLower(part.State); s != "" && s != "up" {
		add("Partition", fmt.Sprintf("partition %s is %s and starts no jobs", part.Name, s), "use another partition, or wait until the site has started it again")
	}
	more("Nodes", "node", "", j.Nodes, part.Nodes, "use fewer workers, more workers on each node (TasksPerNode, --tasks-per-node)")
	more("CPUsPerTask", "CPU", " per node", j.TasksPerNode*max(1, j.CPUsPerTask), part.CPUsPerNode, "use fewer workers on each node (TasksPerNode, --tasks-per-node), fewer CPUs for each (CPUsPerTask, --cpus-per-task)")
	fewerGPUs := "use fewer GPUs on each node (GPUsPerNode, --gpus-per-node)"
	if j.GPUsPerTask > part.GPUsPerNode {
		fewerGPUs = adviseFewerGPUs(part.GPUsPerNode)
	}
	more("GPUsPerNode", "GPU", " per node", j.GPUsPerNode, part.GPUsPerNode, fewerGPUs)
	if asked := j.memoryMiB(); part.MemoryMiB > 0 && asked > part.MemoryMiB {
		add("Memory", fmt.Sprintf("the job asks for %s of memory per node (%d MiB), but partition %s has %d MiB, so that it would wait for ever", j.Memory, asked, part.Name, part.MemoryMiB),
			"use less memory (Memory, --mem), or another partition (Partition, --partition)")
	}
	if part.NoGPUs && j.GPUsPerNode > 0 {
		add("GPUsPerNode", fmt.Sprintf("the job asks for GPUs, but partition %s has none", part.Name), "use a partition with GPUs, train on CPUs (device: cpu), or start a program without GPUs (GPUsPerWorker, --gpus-per-worker 0)")
	}
	if part.TimeLimit > 0 && j.Time > part.TimeLimit {
		add("Time", fmt.Sprintf("the time limit is %s, but partition %s allows %s, so that the job would wait for ever", j.Time, part.Name, part.TimeLimit),
			"lower the time limit (Time, --time), or use another partition (Partition, --partition)")
	}
	return found
}

// missingPartitionProblems returns a problem if c has no partition named j.Partition, or no default
// partition for a job without one. If nothing is known about the partitions or the site's choice,
// it returns nil.
func missingPartitionProblems(j Job, c *Cluster) []Problem {
	if len(c.Partitions) == 0 || j.Partition == Unknown { // unknownProblem names the key
		return nil
	}
	var names []string
	for _, part := range c.Partitions {
		names = append(names, part.Name)
	}
	p := Problem{Field: "Partition", What: "the cluster has no default partition, and the job names none", Next: "use one of " + strings.Join(names, ", ") + " (Partition, --partition)"}
	if j.Partition != "" {
		p.What = fmt.Sprintf("the cluster has no partition %q%s", j.Partition, nearest.Hint(j.Partition, names))
	}
	return []Problem{p}
}

func checkReservation(j Job, c *Cluster) []Problem {
	if j.Reservation == "" {
		return nil
	}
	problem := func(what, next string) []Problem {
		return []Problem{{Field: "Reservation", What: what, Next: next}}
	}
	i := slices.IndexFunc(c.Reservations, func(r Reservation) bool { return r.Name == j.Reservation })
	if i < 0 {
		var names []string
		for _, r := range c.Reservations {
			names = append(names, r.Name)
		}
		next := "remove it, because the cluster has no reservation now"
		if len(names) > 0 {
			next = "remove it, or use one of " + strings.Join(names, ", ")
		}
		return problem(fmt.Sprintf("the cluster has no reservation %q%s, or it has expired", j.Reservation, nearest.Hint(j.Reservation, names)), next)
	}
	switch r := c.Reservations[i]; {
	case r.End.IsZero() || c.Now.IsZero():
	case !r.End.After(c.Now):
		return problem(fmt.Sprintf("reservation %s expired at %s", r.Name, r.End.Format("2006-01-02 15:04")), "remove it, or use one that has not expired")
	case j.Time > 0 && c.Now.Add(j.Time).After(r.End):
		return problem(fmt.Sprintf("reservation %s ends at %s, before a job of %s that starts now, so that it would wait for ever", r.Name, r.End.Format("2006-01-02 15:04"), j.Time),
			fmt.Sprintf("lower the time limit below %s, or remove the reservation", r.End.Sub(c.Now).Truncate(time.Minute)))
	}
	return nil
}
