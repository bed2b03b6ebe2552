package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// Values of Sweep.Bind.
const (
	BindCores = "cores"
	BindNUMA  = "numa"
	BindNone  = "none"
)

// validateBind returns an error if s.Bind is not empty and not one of the Bind constants.
func (s Sweep) validateBind() error {
	switch s.Bind {
	case "", BindCores, BindNUMA, BindNone:
		return nil
	}
	return fmt.Errorf("unknown binding %q: use %s, or leave it out", s.Bind, english.Either([]string{BindCores, BindNUMA, BindNone}))
}

// cpuState describes the CPUs of this machine and their use by other processes.
type cpuState struct {
	machine topology.Machine // with the CPUs that this process may use
	taken   []int            // CPUs that other processes are bound to
	// quota is the number of CPUs whose time this process may use; +Inf if not limited.
	quota float64
	// jobCPUs is the number of CPUs on this machine that Slurm has given to the job; 0 if unknown.
	jobCPUs int
	// hasUnseenProcesses reports whether processes that this process cannot see may be using its
	// CPUs. This is so in a container that may use all CPUs of the machine.
	hasUnseenProcesses bool
	problem            string // why processes cannot be bound; "" if they can
}

// readCPUState reads the current state of the CPUs of this machine.
func readCPUState() cpuState {
	if runtime.GOOS != "linux" {
		return cpuState{problem: "only Linux can bind processes to CPUs, not " + runtime.GOOS}
	}
	allowed, err := topology.AllowedCPUs()
	if err != nil {
		return cpuState{problem: err.Error()}
	}
	c := cpuState{quota: topology.CPUQuota(os.DirFS("/"))}
	all, err := topology.ReadMachine(os.DirFS("/sys/devices/system"))
	if c.machine = all.Restrict(allowed); err != nil || len(c.machine.CPUs) < len(allowed) {
		c.machine = topology.NewFlatMachine(allowed)
	}
	proc := os.DirFS("/proc")
	if c.taken, err = topology.TakenCPUs(proc, os.Getpid(), allowed); err != nil {
		return cpuState{problem: "list the processes of this machine: " + err.Error()}
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		namespace = ""
	}
	c.hasUnseenProcesses = len(allowed) >= len(all.CPUs) && !topology.CanSeeAllProcesses(proc, namespace)
	if n, err := strconv.Atoi(os.Getenv("SLURM_CPUS_ON_NODE")); err == nil {
		c.jobCPUs = n
	}
	return c
}

// freeCores returns the machine without the cores that other processes are bound to.
func (c cpuState) freeCores() topology.Machine {
	cores := map[int]bool{}
	for _, cpu := range c.machine.CPUs {
		if slices.Contains(c.taken, cpu.ID) {
			cores[cpu.Core] = true
		}
	}
	var m topology.Machine
	for _, cpu := range c.machine.CPUs {
		if !cores[cpu.Core] {
			m.CPUs = append(m.CPUs, cpu)
		}
	}
	return m
}

// binding assigns CPUs to the workers of one run.
type binding struct {
	runs.Binding
	cpus [][]int // by rank; nil if the workers are not bound
}

// planBinding plans the binding of a run with the given number of workers. device is the
// engine's device, or "" for a program other than lockstep.
func (s Sweep) planBinding(c cpuState, workers int, device string) (binding, error) {
	b := binding{Binding: runs.Binding{Mode: s.Bind, Allowed: topology.FormatList(c.machine.CPUIDs())}}
	switch {
	case c.problem != "" && s.Bind != BindNone:
		b.Mode, b.Reason = BindNone, c.problem
	case s.Bind == "":
		b.Mode = BindCores
		if b.Reason = s.reasonNotToBind(c, device); b.Reason != "" {
			b.Mode = BindNone
		}
	}
	m := c.freeCores()
	if most := slices.Max(s.Workers) * s.Threads; most > len(m.CPUs) { // only if the user asks for it
		m = c.machine
	}
	switch b.Mode {
	case BindCores:
		b.cpus = m.DivideCores(workers, s.Threads)
	case BindNUMA:
		if b.cpus = m.DivideNodes(workers, s.Threads); b.cpus == nil {
			b.cpus = c.machine.DivideNodes(workers, s.Threads)
		}
		if b.cpus == nil {
			return b, fmt.Errorf("bind to NUMA nodes: %s do not fit on one node of this machine: use fewer, or bind to cores (Bind, --bind cores)", english.Count(s.Threads, "thread"))
		}
	}
	for _, cpus := range b.cpus {
		b.CPUs = append(b.CPUs, topology.FormatList(cpus))
	}
	return b, nil
}

// reasonNotToBind returns why the workers of s should not be bound to cores unless the user
// asks for it, or "" if they should. The answer is the same for all runs of a sweep, so that
// their times can be compared.
//
// Two processes that are bound to the same core are slower than two that the operating system
// may move. So workers are bound only to cores that no other process is bound to, and only if
// all processes that could do the same are visible: not in a container without CPUs of its
// own, and not under a quota of CPU time.
func (s Sweep) reasonNotToBind(c cpuState, device string) string {
	most := slices.Max(s.Workers)
	need := fmt.Sprintf("%s × %s", english.Count(most, "worker"), english.Count(s.Threads, "thread"))
	count := len(c.machine.CPUs)
	switch {
	case s.isForeign():
		return s.Command[0] + " may start processes and threads of its own"
	case device != "" && !strings.HasPrefix(device, "cpu") && device != "reference":
		return "the threads that feed a GPU need other cores than the computing thread"
	case most*s.Threads > count:
		return fmt.Sprintf("%s do not fit on %s", need, english.Count(count, "CPU"))
	case c.quota < float64(count):
		return fmt.Sprintf("a quota of %s CPUs limits this process, and others may use the same cores", strconv.FormatFloat(math.Round(10*c.quota)/10, 'f', -1, 64))
	case c.jobCPUs > 0 && c.jobCPUs < count:
		return fmt.Sprintf("the Slurm job has %d of %s, but may run on all of them, as other jobs may", c.jobCPUs, english.Count(count, "CPU"))
	case c.hasUnseenProcesses:
		return "this container shares all CPUs of the machine with processes that it does not see"
	case most*s.Threads > len(c.freeCores().CPUs):
		return fmt.Sprintf("other processes are bound to CPUs %s, and %s do not fit on the rest", topology.FormatList(c.taken), need)
	}
	return ""
}

// PlanBinding returns the binding that a run of s with the given number of workers would get
// if it started now. It does not read Config, and assumes that the run uses the CPU engine.
func (s Sweep) PlanBinding(workers int) (runs.Binding, error) {
	if workers < 1 {
		return runs.Binding{}, fmt.Errorf("plan binding: got %d workers: use at least 1", workers)
	}
	if err := s.validateBind(); err != nil {
		return runs.Binding{}, fmt.Errorf("plan binding: %w", err)
	}
	if len(s.Workers) == 0 {
		s.Workers = []int{workers}
	}
	if s.Threads == 0 {
		s.Threads = 1
	}
	b, err := s.planBinding(readCPUState(), workers, "cpu")
	if err != nil {
		return runs.Binding{}, fmt.Errorf("plan binding: %w", err)
	}
	return b.Binding, nil
}

// planBinding plans the binding of the run. The workers of one process share their CPUs.
func (r *run) planBinding(c cpuState) (binding, error) {
	b, err := r.sweep.planBinding(c, r.workers, r.device())
	n := r.replicasPerProcess()
	for first := 0; n > 1 && first < len(b.cpus); first += n {
		shared := slices.Concat(b.cpus[first : first+n]...)
		slices.Sort(shared)
		shared = slices.Compact(shared)
		for rank := first; rank < first+n; rank++ {
			b.cpus[rank], b.CPUs[rank] = shared, topology.FormatList(shared)
		}
	}
	return b, err
}

// withBinding plans the binding of the run and calls start with it. No other sweep of this
// user plans a binding until start returns, because it has to see which CPUs the workers of
// this run are bound to.
func (r *run) withBinding(ctx context.Context, start func(binding) error) error {
	plan := func() error {
		b, err := r.planBinding(readCPUState())
		if err == nil && b.cpus != nil {
			if e := b.checkApplicable(); e != nil { // the mask of this process has changed a moment ago
				if r.sweep.Bind != "" {
					return e
				}
				b = binding{Binding: runs.Binding{Mode: BindNone, Reason: e.Error()}}
			}
		}
		if err != nil {
			return err
		}
		return start(b)
	}
	if r.sweep.Bind == BindNone {
		return plan()
	}
	folder, err := locksFolder()
	if err != nil {
		return err
	}
	return withQueueLock(ctx, folder, plan)
}

// checkBindings returns an error if the workers of a run cannot be bound as the user asks.
func (l *localSweep) checkBindings() error {
	c := readCPUState()
	for _, r := range l.all {
		if _, err := r.planBinding(c); err != nil {
			return err
		}
	}
	return nil
}

// device returns the device of the run's engine, or "" for a program other than lockstep.
func (r *run) device() string {
	engine, _ := r.config["engine"].(map[string]any)
	device, _ := engine["device"].(string)
	return device
}

// checkApplicable returns an error if a worker cannot be bound to its CPUs.
func (b binding) checkApplicable() error {
	return b.withThreadBinder(func(bind func(rank int) error) error {
		for rank := range b.cpus {
			if err := bind(rank); err != nil {
				return err
			}
		}
		return nil
	})
}

// withThreadBinder calls do with a function bind, which binds the calling thread, and with it
// the processes that the thread starts, to the CPUs of a rank. bind does nothing if the workers
// are not bound. After do has returned, the thread may use the same CPUs as before. The calling
// goroutine must be locked to its thread; Go does not start other threads from such a thread.
func (b binding) withThreadBinder(do func(bind func(rank int) error) error) (err error) {
	if b.cpus == nil {
		return do(func(int) error { return nil })
	}
	before, err := topology.AllowedCPUs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topology.BindThread(before)) }()
	return do(func(rank int) error { return topology.BindThread(b.cpus[rank]) })
}

// environmentEntry returns the entry of a worker's environment that contains the binding.
func (b binding) environmentEntry() string {
	text, err := json.Marshal(b.Binding)
	if err != nil {
		return train.BindingVariable + "=" // strings always can be encoded
	}
	return train.BindingVariable + "=" + string(text)
}
