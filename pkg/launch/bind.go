package launch

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/runs"
)

// Values of Sweep.Bind.
const (
	BindCores = binding.Cores
	BindNUMA  = binding.NUMA
	BindNone  = binding.None
)

// validateBind returns an error if s.Bind is neither empty nor one of the Bind constants.
func (s Sweep) validateBind() error {
	switch s.Bind {
	case "", BindCores, BindNUMA, BindNone:
		return nil
	}
	return fmt.Errorf("unknown binding %q: use %s, or leave it out", s.Bind, english.JoinOr([]string{BindCores, BindNUMA, BindNone}))
}

// PlanBinding returns the CPUs that the workers of a run would get if it started now on the CPU
// engine. workers is the run's number of workers. PlanBinding does not read Config.
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
	s.Threads = cmp.Or(s.Threads, 1)
	b, err := s.planBinding(binding.ReadCPUState(), workers, "cpu")
	if err != nil {
		return runs.Binding{}, fmt.Errorf("plan binding: %w", err)
	}
	return b.Binding, nil
}

// planBinding assigns the CPUs in c to a run with the given number of workers. device is the
// engine's device, or "" if the workers run a program other than lockstep.
func (s Sweep) planBinding(c binding.CPUState, workers int, device string) (binding.Binding, error) {
	q := binding.Request{Mode: s.Bind, Workers: workers, Most: slices.Max(s.Workers), Threads: s.Threads, Device: device}
	if s.hasCommand() {
		q.Program = s.Command[0]
	}
	return c.Plan(q)
}

// planBinding plans the binding of r. The workers of one process share their CPUs.
func (p *SweepPlan) planBinding(r *PlannedRun, c binding.CPUState) (binding.Binding, error) {
	c.Claimed, c.Disturbed = p.claimed, p.disturbed
	b, err := p.Sweep.planBinding(c, r.Workers, r.device())
	n := r.workersPerProcess()
	for first := 0; n > 1 && first < len(b.Lists); first += n {
		shared := slices.Concat(b.Lists[first : first+n]...)
		slices.Sort(shared)
		shared = slices.Compact(shared)
		for rank := first; rank < first+n; rank++ {
			b.Lists[rank], b.CPUs[rank] = shared, topology.FormatCPUList(shared)
		}
	}
	return b, err
}

// withBinding plans the binding of the run and calls start with it. No other sweep of this user
// plans a binding until start returns, because it has to see the CPUs of this run.
func (r *runningRun) withBinding(ctx context.Context, start func(binding.Binding) error) error {
	plan := func() error {
		b, err := r.plan.planBinding(r.PlannedRun, binding.ReadCPUState())
		if err == nil && b.Lists != nil {
			if e := b.CheckApplicable(); e != nil { // the mask of this process has changed a moment ago
				if r.plan.Sweep.Bind != "" {
					return e
				}
				b = binding.Binding{Binding: runs.Binding{Mode: BindNone, Reason: e.Error()}}
			}
		}
		if err != nil {
			return err
		}
		return start(b)
	}
	if r.plan.Sweep.Bind == BindNone {
		return plan()
	}
	folder, err := queue.FindLocksFolder()
	if err != nil {
		return err
	}
	return queue.WithQueueLock(ctx, folder, plan)
}
