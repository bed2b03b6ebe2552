package train

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"lockstep/pkg/collective"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// exchangeState is the state that a worker needs to exchange gradients or parameters with the
// others.
type exchangeState struct {
	strategy   strategy.Strategy
	cancelWork context.CancelFunc // cancels the exchange of gradients
	sent       uint64             // value of collective.Sent at the last call of countSentBytes
	// optimizerBytes contains the size of each rank's part of the optimizer's state. It is nil if
	// every rank has the complete state, whose size is completeOptimizerBytes.
	optimizerBytes         []int64
	completeOptimizerBytes int64
}

// startStrategy makes the state of all workers consistent. If the run is resumed, it first restores
// the checkpoint's tensors. It also starts the timeline if the config asks for one.
func (t *Trainer) startStrategy(ctx context.Context) error {
	if w, ok := t.strategy.(strategy.TimelineWriter); ok && t.cfg.Strategy.Timeline && t.options.Dir != "" {
		if err := w.StartTimeline(filepath.Join(t.options.Dir, "trace-horovod.json")); err != nil {
			return err
		}
	}
	if t.resumed != nil {
		if err := t.strategy.Start(ctx, t.train, t.resumed.Tensors); err != nil {
			return fmt.Errorf("checkpoint %s: %w", t.resumed.Path, err)
		}
	} else if err := t.strategy.Start(ctx, t.train, nil); err != nil {
		return fmt.Errorf("broadcast initial state: %w", err)
	}
	return t.measureOptimizerBytes(ctx)
}

// measureOptimizerBytes sets t.optimizerBytes if the strategy divides the optimizer's state among
// the ranks.
func (t *Trainer) measureOptimizerBytes(ctx context.Context) error {
	s, ok := t.strategy.(strategy.OptimizerSharder)
	if !ok {
		return nil
	}
	own, complete := s.OptimizerBytes(t.cfg.Optimizer.Update(0, 1))
	all := make([]float64, t.group.Size())
	all[t.group.Rank()] = float64(own)
	if err := t.allReduce(ctx, all); err != nil {
		return fmt.Errorf("compare the memory of the ranks: %w", err)
	}
	for _, v := range all {
		t.optimizerBytes = append(t.optimizerBytes, int64(v))
	}
	t.completeOptimizerBytes = complete
	return nil
}

// exchangeTotals sums the exchange statistics of the steps of an epoch.
type exchangeTotals struct {
	sent      float64 // bytes, also at the end of the epoch
	staleness float64 // sum over all steps
	oldest    float64 // largest staleness
}

func (x *exchangeTotals) addStep(s runs.Step) {
	x.sent += float64(s.Sent)
	x.staleness += float64(s.Staleness)
	x.oldest = max(x.oldest, float64(s.Staleness))
}

// countSentBytes returns the bytes that this rank has sent since the previous call. It returns 0
// with NCCL, which does not report them.
func (t *Trainer) countSentBytes() int64 {
	if t.usesNCCL() {
		return 0
	}
	now, _ := collective.Sent(t.group)
	n := now - t.sent
	t.sent = now
	return int64(n)
}

// usesNCCL reports whether NCCL exchanges the gradients, instead of t.group.
func (t *Trainer) usesNCCL() bool {
	_, ok := t.strategy.(*strategy.NCCL)
	return ok
}

// expectedSentBytes returns the bytes that a worker sends per step according to the strategy's
// formula, averaged over the workers. It returns 0 if there is no formula, or if the sent bytes are
// not measured.
func (t *Trainer) expectedSentBytes() float64 {
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

// describeSentBytes returns a log line about the bytes that all workers have sent in an epoch. It
// returns "" if there are none. It also returns "" for ddp without options, so that its logs stay
// the same as in older versions.
func (t *Trainer) describeSentBytes(sent float64) string {
	steps := float64(t.group.Size() * t.stepsPerEpoch())
	switch {
	case t.usesNCCL():
		return "  sent per step and worker: not counted, because NCCL exchanges the gradients"
	case t.cfg.Strategy.IsZero() || sent == 0:
		return ""
	}
	line := fmt.Sprintf("  sent per step and worker: %.4g MB", sent/steps/1e6)
	if f := t.expectedSentBytes(); f > 0 {
		line += fmt.Sprintf("; the formula of strategy %s gives %.4g MB", t.cfg.Strategy, f/1e6)
	}
	return line
}

// logExchangeTotals logs what the workers exchanged in an epoch. The sent bytes are logged only
// after the first epoch of a process. The staleness of the gradients is logged after each epoch if
// the strategy is asynchronous.
func (r *runFiles) logExchangeTotals() error {
	t, x := r.t, r.t.progress.exchanged
	if line := t.describeSentBytes(x.sent); line != "" && !r.sentLogged {
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

// measureBubbles returns a log line with the fraction of the epoch's steps in which each stage of a
// pipeline was idle. It returns "" for other strategies and for a single stage. All ranks must call
// it after each epoch.
func (t *Trainer) measureBubbles(ctx context.Context) (string, error) {
	m, ok := t.strategy.(strategy.BubbleMeasurer)
	if !ok || t.group.Size() == 1 {
		return "", nil
	}
	own := m.TakeBubble()
	idle := make([]float64, t.group.Size())
	if own.Total > 0 {
		idle[t.group.Rank()] = own.Idle.Seconds() / own.Total.Seconds()
	}
	if err := t.allReduce(ctx, idle); err != nil {
		return "", err
	}
	return formatBubbles(idle, own.Formula), nil
}

func formatBubbles(idle []float64, formula float64) string {
	var list []string
	for _, part := range idle {
		list = append(list, fmt.Sprintf("%.1f %%", 100*part))
	}
	return fmt.Sprintf("pipeline bubble: the stages were idle for %s of the steps; (S−1)/(M+S−1) is %.1f %%", strings.Join(list, ", "), 100*formula)
}
