package train

import (
	"fmt"

	"lockstep/pkg/collective"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// exchanged sums what the workers have exchanged in the steps of an epoch.
type exchanged struct {
	sent      float64 // bytes, also at the end of the epoch
	staleness float64 // sum over all steps
	oldest    float64 // largest staleness
}

func (x *exchanged) add(s runs.Step) {
	x.sent += float64(s.Sent)
	x.staleness += float64(s.Staleness)
	x.oldest = max(x.oldest, float64(s.Staleness))
}

// countSent returns the bytes that this rank has sent since the previous call, or 0 with NCCL,
// which does not report them.
func (t *Trainer) countSent() int64 {
	if t.usesNCCL() {
		return 0
	}
	now, _ := collective.Sent(t.group)
	n := now - t.sent
	t.sent = now
	return int64(n)
}

// usesNCCL reports whether NCCL, not the group, exchanges the gradients.
func (t *Trainer) usesNCCL() bool {
	_, ok := t.strategy.(*strategy.NCCL)
	return ok
}

// sentFormula returns the bytes that a worker sends in a step according to the strategy's formula,
// averaged over the workers, or 0 if there is no formula or nothing to compare it with.
func (t *Trainer) sentFormula() float64 {
	if t.usesNCCL() {
		return 0
	}
	if e, ok := t.strategy.(strategy.SentEstimator); ok {
		return e.SentBytes(float64(t.sampler.Steps()) / float64(t.stepsPerEpoch()))
	}
	n := 4 * float64(t.net.Parameters())
	if m := t.can.HostMemory; m != nil { // with the engine's padding and precision
		n = 0
		for _, b := range m.Buckets() {
			n += float64(b.Gradients.Bytes())
		}
	}
	bytes, _ := t.cfg.Strategy.SentBytes(t.group.Size(), n)
	return bytes
}

// describeSent returns a log line about the bytes that all workers have sent in an epoch. It
// returns "" if there are none, and for ddp without options, to keep its logs as in older versions.
func (t *Trainer) describeSent(sent float64) string {
	steps := float64(t.group.Size() * t.stepsPerEpoch())
	switch {
	case t.usesNCCL():
		return "  sent per step and worker: not counted, because NCCL exchanges the gradients"
	case t.cfg.Strategy.IsZero() || sent == 0:
		return ""
	}
	line := fmt.Sprintf("  sent per step and worker: %.4g MB", sent/steps/1e6)
	if f := t.sentFormula(); f > 0 {
		line += fmt.Sprintf("; the formula of strategy %s gives %.4g MB", t.cfg.Strategy, f/1e6)
	}
	return line
}

// logExchanged logs the bytes that the workers have sent, after the first epoch of a process, and
// with an asynchronous strategy the staleness of the gradients, after each epoch.
func (r *recorder) logExchanged() error {
	t, x := r.t, r.t.progress.exchanged
	if line := t.describeSent(x.sent); line != "" && !r.sentLogged {
		r.sentLogged = true
		if err := r.log("%s", line); err != nil {
			return err
		}
	}
	if !t.cfg.Strategy.IsAsynchronous() {
		return nil
	}
	steps := float64(t.group.Size() * t.stepsPerEpoch())
	return r.log("  staleness: %.2f updates on average, at most %.0f", x.staleness/steps, x.oldest)
}
