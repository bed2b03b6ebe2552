package horovod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
)

// Options are the options of a Controller. They have the same meaning as in Horovod.
type Options struct {
	CycleTime     time.Duration // least time between the starts of two cycles
	FusionBytes   int           // tensors are fused up to this size together; 0: they are not fused
	CacheCapacity int           // number of tensors that a bit can announce, at least 1
	// Reduce replaces b by its mean over all ranks.
	Reduce func(ctx context.Context, b device.Buffer) error
}

// Tensor is a gradient that this rank has computed.
type Tensor struct {
	Number int    // identifies the tensor in an Operation
	Name   string // the same on all ranks
	Buffer device.Buffer
}

// CycleOperation is one part of a cycle: the negotiation or an all-reduce.
type CycleOperation struct {
	Tensors []int // numbers of the tensors that were reduced; empty for the negotiation
	Begin   time.Time
	Took    time.Duration
	Bytes   int // size of this rank's messages, or of its buffer
}

// Controller exchanges the gradients of one rank with the other ranks. Rank 0's Controller is the
// coordinator. A Controller is not safe for concurrent use.
type Controller struct {
	options  Options
	group    collective.Group
	timeline *Timeline // nil: no timeline

	last    time.Time         // start of the last cycle
	pending map[string]Tensor // announced, and not reduced yet
	cache   responseCache
	fusion  fusionBuffer
	clock   process.Stopwatch
	// limit is how long a tensor waits for the ranks that have not announced it. After that, the
	// coordinator waits at most grace for messages of the other ranks, so that it can send them the
	// names of the missing ranks. limit and grace together are shorter than the group's time-out,
	// after which an operation of the group fails.
	limit, grace time.Duration
	table        announcements // on the coordinator
}

// New returns the Controller of one rank. All ranks must use the same options.
func New(group collective.Group, o Options) *Controller {
	timeout := collective.Timeout(group)
	margin := min(timeout/4, 5*time.Second)
	return &Controller{
		options: o, group: group, pending: map[string]Tensor{}, cache: newResponseCache(o.CacheCapacity),
		fusion: fusionBuffer{ranks: group.Size()}, limit: timeout - margin, grace: margin / 2, table: announcements{ranks: group.Size()},
	}
}

// SetTimeline makes the coordinator record its operations in t.
func (c *Controller) SetTimeline(t *Timeline) { c.timeline = t }

// Cycle waits until the next cycle begins, announces the tensors that ready returns for the first
// time, and reduces the tensors that all ranks have announced. complete is true if the caller has
// no other tensors until these are reduced. After an error, the Controller must not be used any
// more.
func (c *Controller) Cycle(ctx context.Context, ready func() (tensors []Tensor, complete bool)) ([]CycleOperation, error) {
	if err := c.waitForCycle(ctx); err != nil {
		return nil, err
	}
	tensors, complete := ready()
	begin := time.Now()
	responses, bytes, err := c.negotiateTensors(ctx, c.newAnnouncement(tensors, complete))
	done := []CycleOperation{{Begin: begin, Took: time.Since(begin), Bytes: bytes}}
	if err != nil {
		err = fmt.Errorf("negotiate gradients: %w", err)
		if failed := (*coordinatorError)(nil); errors.As(err, &failed) { // no operation of the group has failed
			err = collective.RecordFailure(c.group, err)
		}
		return done, err
	}
	for _, fused := range c.groupForFusion(responses) {
		op, err := c.allReduceFused(ctx, fused)
		done = append(done, op)
		if err != nil {
			return done, err
		}
	}
	c.timeline.flush()
	return done, nil
}

func (c *Controller) waitForCycle(ctx context.Context) error {
	if wait := time.Until(c.last.Add(c.options.CycleTime)); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the next cycle: %w", context.Cause(ctx))
		case <-timer.C:
		}
	}
	c.last = time.Now()
	return nil
}

func (c *Controller) newAnnouncement(tensors []Tensor, complete bool) cycleMessage {
	m := cycleMessage{complete: complete, cached: newBitset(c.cache.slotCount())}
	for _, t := range tensors {
		if _, ok := c.pending[t.Name]; ok {
			continue
		}
		c.pending[t.Name] = t
		r := newTensorRequest(t)
		if slot, ok := c.cache.find(r); ok {
			setBit(m.cached, slot)
		} else {
			m.requests = append(m.requests, r)
		}
	}
	return m
}

// groupForFusion divides the responses, in order, into groups that are reduced together.
func (c *Controller) groupForFusion(responses []tensorRequest) [][]tensorRequest {
	var groups [][]tensorRequest
	size := 0
	for _, r := range responses {
		last := len(groups) - 1
		if last >= 0 && groups[last][0].Bits == r.Bits && size+r.bytes() <= c.options.FusionBytes {
			groups[last] = append(groups[last], r)
			size += r.bytes()
			continue
		}
		groups = append(groups, []tensorRequest{r})
		size = r.bytes()
	}
	return groups
}

func (c *Controller) allReduceFused(ctx context.Context, fused []tensorRequest) (CycleOperation, error) {
	op := CycleOperation{Begin: time.Now()}
	var names []string
	var buffers []device.Buffer
	for _, r := range fused {
		t := c.pending[r.Name] // announce has set it, because the coordinator waits for all ranks
		delete(c.pending, r.Name)
		names, buffers, op.Tensors = append(names, r.Name), append(buffers, t.Buffer), append(op.Tensors, t.Number)
	}
	collective.SetBucket(c.group, op.Tensors[0])
	c.timeline.beginAllReduce(names)
	b := buffers[0]
	if len(buffers) > 1 {
		c.timeline.beginActivity(names, activityMemcpyIn)
		b = c.fusion.pack(buffers)
	}
	c.timeline.beginActivity(names, allReduceActivity(c.group.Name()))
	if err := c.options.Reduce(ctx, b); err != nil {
		op.Took = time.Since(op.Begin)
		return op, fmt.Errorf("reduce the gradients of %s: %w", listTensorNames(names), err)
	}
	if len(buffers) > 1 {
		c.timeline.beginActivity(names, activityMemcpyOut)
		c.fusion.unpack(buffers)
	}
	c.timeline.endAllReduce(fused)
	op.Took, op.Bytes = time.Since(op.Begin), b.Bytes()
	return op, nil
}

// listTensorNames lists the first few names, and the number of the others.
func listTensorNames(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %s", strings.Join(names[:most], ", "), english.FormatCount(len(names)-most, "other tensor"))
}

// pendingTensorNames returns the names of the tensors that are announced but not reduced yet.
func (c *Controller) pendingTensorNames() []string {
	var names []string
	for name := range c.pending {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
