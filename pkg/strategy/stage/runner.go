package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// Runner runs the forward and backward passes of one stage. Rank s of a group runs stage s.
type Runner struct {
	ctx      context.Context
	group    collective.Group
	schedule string
	sync     engine.GradSync // gets the gradients of the parameters
	sent     func(bytes int)
	senders  []*messageSender // by rank; nil for this rank

	beginPass func(name, part string) (end func()) // see engine.Capabilities; nil without a profiler

	passes   []microBatchPass // remaining passes of the current optimizer step
	running  map[int]*microBatch
	messages []device.Buffer       // by rank: gradients that this rank receives
	received map[int]device.Buffer // by tensor ID: the parts of messages
}

// NewRunner returns a runner for this rank's stage. It passes the parameter gradients of each
// micro-batch to sync, and calls sent after it has queued a message to another stage. If a message
// cannot be sent, it calls cancel, which must cancel ctx.
func NewRunner(ctx context.Context, cancel context.CancelFunc, group collective.Group, schedule string, sync engine.GradSync, sent func(bytes int)) *Runner {
	r := &Runner{ctx: ctx, group: group, schedule: schedule, sync: sync, sent: sent, running: map[int]*microBatch{}, received: map[int]device.Buffer{}}
	r.senders = make([]*messageSender, group.Size())
	for to := range r.senders {
		if to != group.Rank() {
			r.senders[to] = newSender(ctx, cancel, group, to)
		}
	}
	return r
}

// beginProfileSpan begins a span of the profile and returns the function that ends it. what is a format
// string for the name of the span; its argument is the number of the micro-batch.
func (r *Runner) beginProfileSpan(part, what string, batch int) (end func()) {
	if r.beginPass == nil {
		return func() {}
	}
	return r.beginPass(fmt.Sprintf(what, batch), part)
}

// BeginFinalWait begins the span of the profile in which this stage waits for the other stages at
// the end of an optimizer step. It returns the function that ends the span.
func (r *Runner) BeginFinalWait() (end func()) {
	if r.beginPass == nil {
		return func() {}
	}
	return r.beginPass("wait for the end of the other stages", "exchange")
}

// Start allocates the memory of the messages that stage x receives.
func (r *Runner) Start(x *Executable) {
	r.beginPass = x.backward.can.BeginPass
	for _, ids := range x.stages[x.stage].Gradients {
		message, parts := x.newMessage(ids)
		r.messages = append(r.messages, message)
		for i, id := range ids {
			r.received[id] = parts[i]
		}
	}
}

// Begin begins an optimizer step of the given number of micro-batches.
func (r *Runner) Begin(x *Executable, batches int) {
	r.passes, x.sum, x.loss = stageSchedule(r.schedule, len(x.stages), x.stage, batches), 0, 0
}

// RunNext runs the forward pass of the next micro-batch, whose inputs are already set, and the
// backward passes that the schedule places before the next forward pass. It adds the times to t.
func (r *Runner) RunNext(ctx context.Context, x *Executable, t *engine.Timing) error {
	for first := true; len(r.passes) > 0 && (first || r.passes[0].backward); first = false {
		next := r.passes[0]
		r.passes = r.passes[1:]
		run := r.runForward
		if next.backward {
			run = r.runBackward
		}
		if err := run(ctx, x, next.batch, t); err != nil {
			return r.findSendError(err)
		}
	}
	return nil
}

// Flush returns when all messages of this rank are sent.
func (r *Runner) Flush() error {
	for _, s := range r.senders {
		if s != nil {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close ends all goroutines. The context of NewRunner must be canceled.
func (r *Runner) Close() {
	for _, s := range r.senders {
		if s != nil {
			s.close()
		}
	}
}

// findSendError returns the error of the sender that has canceled the operation, if err is such a
// cancellation. Otherwise it returns err.
func (r *Runner) findSendError(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	for _, s := range r.senders {
		if s != nil {
			err = cmp.Or(s.sendError(), err)
		}
	}
	return err
}

// runForward receives the activations of a micro-batch, runs its forward pass and sends the
// results to the stages that need them.
func (r *Runner) runForward(ctx context.Context, x *Executable, batch int, t *engine.Timing) error {
	b := x.takeMicroBatch()
	r.running[batch] = b
	if err := r.receiveTensors(x.stages[x.stage].Activations, b.messages, "activations of micro-batch %d", batch, t); err != nil {
		return err
	}
	begin := time.Now()
	defer r.beginProfileSpan("forward", "forward of micro-batch %d", batch)()
	err := x.runForward(ctx, b)
	if err != nil {
		return fmt.Errorf("micro-batch %d: %w", batch, err)
	}
	if x.HasOutputs() {
		x.sum += x.forward.Loss()
	}
	for to, stage := range x.stages {
		for _, id := range stage.Activations[x.stage] {
			r.senders[to].addTensor(b.tensors[id])
		}
		r.send(to)
	}
	t.Forward += time.Since(begin)
	return nil
}

// runBackward receives the gradients of a micro-batch, runs its backward pass and sends the
// results to the stages that need them.
func (r *Runner) runBackward(ctx context.Context, x *Executable, batch int, t *engine.Timing) error {
	if err := r.receiveTensors(x.stages[x.stage].Gradients, r.messages, "gradients of micro-batch %d", batch, t); err != nil {
		return err
	}
	begin := time.Now()
	defer r.beginProfileSpan("backward", "backward of micro-batch %d", batch)()
	b := r.running[batch]
	delete(r.running, batch)
	if err := x.runBackward(ctx, b, r.received, r.sync); err != nil {
		return fmt.Errorf("micro-batch %d: %w", batch, err)
	}
	x.releaseMicroBatch(b)
	for to, stage := range x.stages {
		for _, id := range stage.Gradients[x.stage] {
			v := x.newBuffer(x.program.Tensors[id].Elements())
			if err := readOutput(x.backward, plan.StageInputName(id), v); err != nil {
				return err
			}
			r.senders[to].addTensor(v)
		}
		r.send(to)
	}
	t.Backward += time.Since(begin)
	return nil
}

// receiveTensors receives one message from each stage that computes any of the given tensors, and adds the
// waiting time to t. ids and messages are indexed by stage. what is a format string that describes
// the message; its argument is the number of the micro-batch.
func (r *Runner) receiveTensors(ids [][]int, messages []device.Buffer, what string, batch int, t *engine.Timing) error {
	begin := time.Now()
	defer func() { t.Wait += time.Since(begin) }()
	if slices.ContainsFunc(ids, func(list []int) bool { return len(list) > 0 }) {
		defer r.beginProfileSpan("exchange", "wait for "+what, batch)()
	}
	for from, list := range ids {
		if len(list) == 0 {
			continue
		}
		if err := r.group.Recv(r.ctx, messages[from], from); err != nil {
			return fmt.Errorf("receive "+what+": %w", batch, err)
		}
	}
	return nil
}

// send sends the tensors that were added for rank to, as one message.
func (r *Runner) send(to int) {
	if s := r.senders[to]; s != nil {
		if n := s.send(); n > 0 {
			r.sent(n)
		}
	}
}
