package train

import (
	"fmt"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
)

// exchanged sums what the workers have exchanged in the steps of an epoch.
type exchanged struct {
	sent      float64 // bytes, also at the end of the epoch
	staleness float64 // sum over all steps
	oldest    float64 // largest staleness
	dropped   float64 // steps whose gradient was not used
}

// add adds a step of this rank.
func (x *exchanged) add(s runs.Step) {
	x.sent += float64(s.Sent)
	x.staleness += float64(s.Staleness)
	x.oldest = max(x.oldest, float64(s.Staleness))
	if s.Dropped {
		x.dropped++
	}
}

// countSent returns the number of bytes that this rank has sent since the previous call.
func (t *Trainer) countSent() int64 {
	now, _ := collective.Sent(t.group)
	n := now - t.sent
	t.sent = now
	return int64(n)
}

// sentFormula returns the mean number of bytes that a worker sends in a step according to the
// formula of the strategy, or 0 if there is none.
func (t *Trainer) sentFormula() float64 {
	n := 4 * float64(t.net.Parameters())
	if m, ok := t.train.(engine.HostMemory); ok { // with the engine's padding and precision
		n = 0
		for _, b := range m.BucketMemory() {
			n += float64(b.Gradients.Bytes())
		}
	}
	bytes, _ := t.cfg.Strategy.SentBytes(t.group.Size(), n)
	return bytes
}

// logExchanged logs the bytes that the workers have sent, after the first epoch of a process,
// and the staleness of their gradients, after each epoch of an asynchronous strategy. It logs
// nothing for ddp without options.
func (r *recorder) logExchanged() error {
	t, x := r.t, r.t.progress.exchanged
	if t.cfg.Strategy.IsZero() { // its logs are those of older versions
		return nil
	}
	workers := float64(t.group.Size())
	if steps := workers * float64(t.stepsPerEpoch()); x.sent > 0 && !r.sentLogged {
		r.sentLogged = true
		line := fmt.Sprintf("  sent per step and worker: %.4g MB", x.sent/steps/1e6)
		if f := t.sentFormula(); f > 0 {
			line += fmt.Sprintf("; the gradients and parameters of strategy %s are %.4g MB", t.cfg.Strategy, f/1e6)
		}
		if err := r.log("%s", line); err != nil {
			return err
		}
	}
	if !t.cfg.Strategy.IsAsynchronous() {
		return nil
	}
	return r.log("  staleness: %.2f updates on average, at most %.0f; gradients dropped: %.0f", x.staleness/(workers*float64(t.stepsPerEpoch())), x.oldest, x.dropped)
}
