// Package binding decides to which CPUs the workers of a run on this machine are bound.
package binding

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// CPUState describes the CPUs of this machine and their use by other processes.
type CPUState struct {
	Machine topology.Machine // with the CPUs that this process may use
	Taken   []int            // CPUs that other processes are bound to
	Online  []int            // CPUs of the machine that are in use, also those that this process may not use
	// Quota is the CPU time that this process may use, as a number of CPUs, or +Inf if it is not
	// limited. QuotaGroup is the folder of the control group with this quota.
	Quota      float64
	QuotaGroup string
	// JobCPUs is the number of CPUs on this machine that Slurm has given to the job; 0 if unknown.
	JobCPUs int
	// HasUnseenProcesses reports whether other processes may use the same CPUs without being
	// visible to this process, as in a container that is not restricted to a part of the machine's
	// CPUs.
	HasUnseenProcesses bool
	Problem            string // why processes cannot be bound; "" if they can
	// Claimed contains the CPUs that this user's sweep has taken, if several users share the
	// machine. It is nil if the sweep may use all CPUs to which no other process is bound.
	Claimed   []int
	Disturbed string // why other users' sweeps disturb the sweep; "" if it has all cores that it needs
}

// ReadCPUState reads the current state of this machine's CPUs.
func ReadCPUState() CPUState {
	if runtime.GOOS != "linux" {
		return CPUState{Problem: "only Linux can bind processes to CPUs, not " + runtime.GOOS}
	}
	allowed, err := topology.AllowedCPUs()
	if err != nil {
		return CPUState{Problem: err.Error()}
	}
	var c CPUState
	c.Quota, c.QuotaGroup = topology.CPUQuota(os.DirFS("/"))
	all, err := topology.ReadMachine(os.DirFS("/sys/devices/system"))
	c.Online = all.CPUIDs()
	if c.Machine = all.RestrictToCPUs(allowed); err != nil || len(c.Machine.CPUs) < len(allowed) {
		c.Machine, c.Online = topology.NewFlatMachine(allowed), allowed
	}
	proc := os.DirFS("/proc")
	if c.Taken, err = topology.CPUsBoundByOthers(proc, os.Getpid(), allowed); err != nil {
		return CPUState{Problem: "list the processes of this machine: " + err.Error()}
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		namespace = ""
	}
	c.HasUnseenProcesses = len(allowed) >= len(all.CPUs) && !topology.CanSeeAllProcesses(proc, namespace)
	if n, err := strconv.Atoi(os.Getenv("SLURM_CPUS_ON_NODE")); err == nil {
		c.JobCPUs = n
	}
	return c
}

// withoutTakenCores returns the machine without the cores that other processes are bound to.
func (c CPUState) withoutTakenCores() topology.Machine { return c.Machine.WithoutCores(c.Taken) }

// The values of Request.Mode. With Cores, each worker gets cores of its own. With NUMA, it gets all
// cores of one NUMA node.
const (
	Cores = "cores"
	NUMA  = "numa"
	None  = "none"
)

// Request describes the workers of a run that are to be bound.
type Request struct {
	Mode    string // one of the modes, or "" for cores where nothing speaks against it
	Workers int    // of the run
	Most    int    // the largest number of workers of a run of the same sweep
	Threads int    // per worker
	Device  string // of the engine, or "" for a program other than lockstep
	Program string // another program than lockstep, or ""
}

// Binding assigns CPUs to the workers of one run.
type Binding struct {
	runs.Binding
	Lists [][]int // of CPUs, by rank; nil if the workers are not bound
}

// Plan assigns CPUs to the workers that q describes. It returns an error if their threads do not
// fit on one NUMA node and q.Mode is NUMA.
func (c CPUState) Plan(q Request) (Binding, error) {
	b := Binding{Binding: runs.Binding{Mode: q.Mode, Allowed: topology.FormatCPUList(c.Machine.CPUIDs()), Disturbed: c.Disturbed}}
	if c.Claimed != nil && q.Mode != NUMA { // who asks for nodes gets all their CPUs
		c.Machine = c.Machine.RestrictToCPUs(c.Claimed)
	}
	switch {
	case c.Problem != "" && q.Mode != None:
		b.Mode, b.Reason = None, c.Problem
	case q.Mode == "":
		b.Mode = Cores
		if b.Reason = c.reasonNotToBind(q); b.Reason != "" {
			b.Mode = None
		}
	}
	m := c.withoutTakenCores()
	if q.Most*q.Threads > len(m.CPUs) { // only if the user asks for it
		m = c.Machine
	}
	switch b.Mode {
	case Cores:
		b.Lists = m.DivideCores(q.Workers, q.Threads)
	case NUMA:
		if b.Lists = m.AssignNUMANodes(q.Workers, q.Threads); b.Lists == nil {
			b.Lists = c.Machine.AssignNUMANodes(q.Workers, q.Threads)
		}
		if b.Lists == nil {
			return b, fmt.Errorf("bind to NUMA nodes: %s do not fit on one node of this machine: use fewer, or bind to cores (Bind, --bind cores)", english.FormatCount(q.Threads, "thread"))
		}
	}
	for _, cpus := range b.Lists {
		b.CPUs = append(b.CPUs, topology.FormatCPUList(cpus))
	}
	return b, nil
}

// reasonNotToBind returns why the workers should not be bound to cores by default, or "" if they
// should. The answer is the same for all runs of a sweep, so that their times can be compared.
//
// Two processes that are bound to the same core are slower than two that the operating system may
// move. So workers are bound only to cores to which no other process is bound, and only if every
// process that could take the same cores is visible. That is not so in a container without CPUs of
// its own, or under a quota of CPU time.
func (c CPUState) reasonNotToBind(q Request) string {
	need := fmt.Sprintf("%s × %s", english.FormatCount(q.Most, "worker"), english.FormatCount(q.Threads, "thread"))
	count := len(c.Machine.CPUs)
	switch {
	case q.Program != "":
		return q.Program + " may start processes and threads of its own"
	case q.Device != "" && !strings.HasPrefix(q.Device, "cpu") && q.Device != "reference":
		return "the threads that feed a GPU need other cores than the computing thread"
	case q.Most*q.Threads > count:
		return fmt.Sprintf("%s do not fit on %s", need, english.FormatCount(count, "CPU"))
	case c.Quota < float64(count):
		return fmt.Sprintf("a quota of %s CPUs limits this process, and others may use the same cores", strconv.FormatFloat(math.Round(10*c.Quota)/10, 'f', -1, 64))
	case c.JobCPUs > 0 && c.JobCPUs < count:
		return fmt.Sprintf("the Slurm job has %d of %s, but may run on all of them, as other jobs may", c.JobCPUs, english.FormatCount(count, "CPU"))
	case c.Disturbed != "":
		return c.Disturbed
	case c.HasUnseenProcesses:
		return "this container shares all CPUs of the machine with processes that it does not see"
	case q.Most*q.Threads > len(c.withoutTakenCores().CPUs):
		return fmt.Sprintf("other processes are bound to CPUs %s, and %s do not fit on the rest", topology.FormatCPUList(c.Taken), need)
	}
	return ""
}

// CheckApplicable returns an error if a worker cannot be bound to its CPUs.
func (b Binding) CheckApplicable() error {
	return b.WithThreadBinder(func(bind func(rank int) error) error {
		for rank := range b.Lists {
			if err := bind(rank); err != nil {
				return err
			}
		}
		return nil
	})
}

// WithThreadBinder calls do with a function that binds the calling thread to the CPUs of a rank.
// Processes that the thread starts inherit the binding. If the workers are not bound, bind does
// nothing. When do returns, the thread may again use the same CPUs as before. The calling goroutine
// must be locked to its thread, because Go starts no other threads from a locked one.
func (b Binding) WithThreadBinder(do func(bind func(rank int) error) error) (err error) {
	if b.Lists == nil {
		return do(func(int) error { return nil })
	}
	before, err := topology.AllowedCPUs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topology.BindThread(before)) }()
	return do(func(rank int) error { return topology.BindThread(b.Lists[rank]) })
}

// EnvironmentEntry returns the binding as an entry of a worker's environment.
func (b Binding) EnvironmentEntry() string {
	text, err := json.Marshal(b.Binding)
	if err != nil {
		return train.BindingVariable + "=" // strings always can be encoded
	}
	return train.BindingVariable + "=" + string(text)
}
