package verify

import (
	"fmt"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// maxClockSkew is the largest accepted difference between the clocks of two machines whose records
// are compared.
const maxClockSkew = time.Minute

// readAndCheckOwners checks that at most one process at a time owned the run, and returns the owners. It
// skips the check if the run recorded no owners.
func (v *verifier) readAndCheckOwners() ([]runs.Owner, error) {
	owners, problems, err := runs.Owners(v.run.Dir)
	if err != nil || len(owners)+len(problems) == 0 {
		return nil, err
	}
	v.addBoolCheck("every owner of the run can be read", len(problems) == 0, "%s cannot be read: %v", english.FormatCount(len(problems), "line"), problems)
	detail, ok := fmt.Sprintf("%s, one after the other", english.FormatCount(len(owners), "owner")), true
	for i := 1; ok && i < len(owners); i++ {
		before, next := owners[i-1], owners[i]
		skew := time.Duration(0)
		if before.BootID != next.BootID || before.BootID == "" {
			skew = maxClockSkew
		}
		if overlap := before.Heartbeat.Sub(next.Started); overlap > skew {
			ok = false
			detail = fmt.Sprintf("pid %d on %s owned it from %s on, when pid %d on %s still did, until %s",
				next.PID, next.Host, next.Started.Format(time.DateTime), before.PID, before.Host, before.Heartbeat.Format(time.DateTime))
		}
	}
	v.addBoolCheck("one process at a time owned the run", ok, "%s", detail)
	return owners, nil
}

// checkStepOrder checks that each rank's steps are consecutive, and that every process whose first
// step was not step 1 resumed from a checkpoint.
func (v *verifier) checkStepOrder(owners []runs.Owner) error {
	detail, processes, steps := "", 0, 0
	for rank := range v.run.Info.Workers {
		parts, _, err := runs.ReadStepParts(v.run.Dir, rank)
		if err != nil {
			return err
		}
		for _, p := range parts {
			processes++
			steps += len(p.Steps)
			if detail == "" {
				detail = describeStepOrderError(p, owners)
			}
		}
	}
	ok := detail == ""
	if ok {
		detail = fmt.Sprintf("%d steps of %d processes", steps, processes)
	}
	v.addBoolCheck("each step follows the one before it or is replayed from a checkpoint", ok, "%s", detail)
	return nil
}

// describeStepOrderError describes the first error in the order of one process's steps, or returns "".
func describeStepOrderError(p runs.StepPart, owners []runs.Owner) string {
	who := fmt.Sprintf("rank %d, pid %d on %s", p.Worker.Rank, p.Worker.PID, p.Worker.Host)
	for i := 1; i < len(p.Steps); i++ {
		if a, b := p.Steps[i-1].Step, p.Steps[i].Step; b != a+1 {
			return fmt.Sprintf("%s: step %d is followed by step %d, as if two processes had written the file", who, a, b)
		}
	}
	// Versions that did not record owners did not record the first step either.
	if len(owners) == 0 || p.Worker.Started.Before(owners[0].Started) {
		return ""
	}
	if first := p.Steps[0].Step; first != p.Worker.FromStep+1 {
		return fmt.Sprintf("%s: began with step %d, but its checkpoint is of step %d", who, first, p.Worker.FromStep)
	}
	if p.Worker.Rank > 0 {
		return ""
	}
	for _, o := range owners {
		if o.PID == p.Worker.PID && o.Host == p.Worker.Host && !o.Started.After(p.Worker.Started) {
			return ""
		}
	}
	return who + ": trained without owning the run"
}
