package launch

import (
	"fmt"
	"slices"
	"time"

	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/cores"
	"lockstep/pkg/launch/internal/queue"
)

// sharesCores reports whether the sweep takes its cores from those that the users of this machine
// share. It does not check whether an administrator has set up the sharing.
func (p *SweepPlan) sharesCores() bool {
	return !hasReservedCores() && (p.On == OnLocal || p.On == OnMPI && !p.Sweep.mayUseSeveralHosts())
}

// noteSharingProblem adds a note to the plan if the users should share this machine's cores, but cannot.
func (p *SweepPlan) noteSharingProblem() {
	folder, _, err := cores.ReadSharingConfig()
	if folder == "" || !p.sharesCores() {
		return
	}
	if err == nil {
		err = cores.CheckClaimsFolder(folder)
	}
	if err != nil {
		p.Warnings = append(p.Warnings, fmt.Sprintf("note: this sweep starts whether or not other users' sweeps use the cores: %v", err))
	}
}

// openClaim makes the sweep share the cores of this machine with other users. It does nothing if
// sharing is not set up, or if it does not work, about which noteSharingProblem has warned.
func (l *inProcessSweep) openClaim() {
	folder, limit, err := cores.ReadSharingConfig()
	if folder == "" || err != nil || !l.plan.sharesCores() {
		return
	}
	s := &l.plan.Sweep
	if l.claim, err = cores.NewClaim(folder, limit, binding.ReadCPUState(), slices.Max(s.Workers), s.Threads); err != nil {
		l.claim = nil
	} else if s.Now {
		l.claim.Until = time.Now()
	}
}

// tryTakeCores takes the cores that the sweep needs, and returns true, if enough are free. Otherwise it
// records what the sweep waits for. With NoWait it returns an error instead.
func (l *inProcessSweep) tryTakeCores() (ok bool, err error) {
	l.openClaim()
	if l.claim == nil {
		return true, nil
	}
	ok, place, err := l.claim.TryTakeCores()
	switch {
	case err != nil: // such as a full disk: start the sweep, as without other users
		return true, nil
	case ok:
		l.plan.claimed = l.claim.CPUs
	case l.plan.Sweep.NoWait:
		l.releaseCores()
		return false, &BusyError{Cores: place.String()}
	case !l.plan.Sweep.Now:
		l.record.WaitsFor = l.describeCoreWait(place)
	}
	return ok, nil
}

func (l *inProcessSweep) describeCoreWait(p cores.QueuePosition) string {
	return fmt.Sprintf("waiting for %v; starts at the latest at %s; --now starts it anyway", p, queue.FormatTime(l.claim.Until))
}

func (l *inProcessSweep) awaitCores() error {
	if l.claim == nil {
		l.openClaim()
	}
	if l.claim == nil {
		return nil
	}
	disturbed, err := l.claim.WaitForCores(l.ctx, func(p cores.QueuePosition) {
		if note := l.describeCoreWait(p); l.setWaitsFor(note) {
			l.out.WriteLine(note)
		}
	})
	if l.ctx.Err() != nil {
		return queue.ContextEndError(l.ctx)
	}
	if err == nil { // otherwise start the sweep, as without other users
		l.plan.claimed, l.plan.disturbed = l.claim.CPUs, disturbed
	}
	return l.endWaiting()
}

func (l *inProcessSweep) releaseCores() {
	if l.claim != nil {
		_ = l.claim.Close() // its lock ends in any case
	}
}
