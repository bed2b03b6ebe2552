package horovod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"lockstep/pkg/internal/english"
)

// coordinatorRank is the rank that decides which tensors are reduced, and in which order.
const coordinatorRank = 0

type announcement struct {
	tensorRequest
	by    []bool // by rank
	count int
	since time.Duration // first announced, on the clock of the Controller
}

// announcements contains the tensors that some but not all ranks have announced, in the order in
// which the coordinator received the first announcement of each.
type announcements struct {
	ranks int
	list  []*announcement
}

// recordAnnouncement records that rank has announced a tensor. first is true if no rank announced it before. ready
// is true if all ranks have now announced it; the tensor is then removed. It is an error if the
// ranks' tensors differ in size or type.
func (a *announcements) recordAnnouncement(r tensorRequest, rank int, now time.Duration) (first, ready bool, err error) {
	i := slices.IndexFunc(a.list, func(x *announcement) bool { return x.Name == r.Name })
	if first = i < 0; first {
		i = len(a.list)
		a.list = append(a.list, &announcement{tensorRequest: r, by: make([]bool, a.ranks), since: now})
	}
	x := a.list[i]
	if x.tensorRequest != r {
		return first, false, fmt.Errorf("tensor %s has %d elements of %d bits on rank %d and %d elements of %d bits on rank %d: all ranks must train the same model",
			r.Name, r.Elements, r.Bits, rank, x.Elements, x.Bits, slices.Index(x.by, true))
	}
	if !x.by[rank] {
		x.by[rank] = true
		x.count++
	}
	if x.count < a.ranks {
		return first, false, nil
	}
	a.list = slices.Delete(a.list, i, i+1)
	return first, true, nil
}

// describeMissingRanks lists the ranks that tensors are waiting for, with the names of these
// tensors. arrived contains the ranks that have sent a message in this cycle. They cannot announce
// more in this cycle, so if other ranks have sent none, only these others are listed.
func (a *announcements) describeMissingRanks(arrived []int) string {
	complete := len(arrived) == a.ranks-1
	var ranks []string
	for rank := range a.ranks {
		if !complete && (rank == coordinatorRank || slices.Contains(arrived, rank)) {
			continue
		}
		var missing, all []string
		var by []int // ranks that have announced one of these tensors
		for _, x := range a.list {
			all = append(all, x.Name)
			if x.by[rank] {
				continue
			}
			missing = append(missing, x.Name)
			for other := range a.ranks {
				if x.by[other] && !slices.Contains(by, other) {
					by = append(by, other)
				}
			}
		}
		switch {
		case len(missing) > 0:
			ranks = append(ranks, fmt.Sprintf("rank %d has not announced %s, but %s did", rank, listTensorNames(missing), listRanks(by)))
		case !complete:
			ranks = append(ranks, fmt.Sprintf("rank %d has announced %s, but takes no part in the negotiation any more", rank, listTensorNames(all)))
		}
	}
	return strings.Join(ranks, "; ")
}

func listRanks(ranks []int) string {
	var names []string
	for _, rank := range slices.Sorted(slices.Values(ranks)) {
		names = append(names, fmt.Sprintf("rank %d", rank))
	}
	return english.JoinAnd(names)
}

// oldestAnnouncement returns when the tensor that has waited longest was first announced. ok is
// false if no tensor is waiting.
func (a *announcements) oldestAnnouncement() (since time.Duration, ok bool) {
	if len(a.list) == 0 {
		return 0, false
	}
	return a.list[0].since, true
}

// negotiateTensors exchanges own, the announcements of this rank, with the coordinator. It returns
// the tensors to reduce, in the same order on all ranks, and the number of bytes that this rank
// has sent.
func (c *Controller) negotiateTensors(ctx context.Context, own cycleMessage) (responses []tensorRequest, bytes int, err error) {
	var answer cycleMessage
	if c.group.Rank() == coordinatorRank {
		answer, bytes, err = c.coordinateCycle(ctx, own)
	} else if bytes, err = c.send(ctx, coordinatorRank, own); err == nil {
		answer, err = c.receive(ctx, coordinatorRank)
	}
	switch {
	case err != nil && c.group.Rank() != coordinatorRank:
		return nil, bytes, fmt.Errorf("%w; this rank has announced %s", err, listTensorNames(c.pendingTensorNames()))
	case err != nil:
		return nil, bytes, err
	case answer.failure != "":
		return nil, bytes, &coordinatorError{answer.failure}
	}
	for slot := range c.cache.slotCount() {
		if isBitSet(answer.cached, slot) {
			responses = append(responses, c.cache.bySlot[slot])
			c.cache.markUsed(slot)
		}
	}
	for _, r := range answer.requests {
		responses = append(responses, r)
		c.cache.put(r)
	}
	return responses, bytes, nil
}

// coordinatorError is an error that the coordinator reports to the other ranks.
type coordinatorError struct{ text string }

func (f *coordinatorError) Error() string { return f.text }

// workerMessage is a message from a worker, or the error that occurred while receiving it.
type workerMessage struct {
	rank    int
	message cycleMessage
	err     error
}

// coordinateCycle collects the announcements of all ranks, and sends them the tensors to reduce. If the
// announcements are inconsistent, or a rank is missing, it sends the reason to the ranks that have
// announced something.
func (c *Controller) coordinateCycle(ctx context.Context, own cycleMessage) (answer cycleMessage, bytes int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	arrivals := c.receiveWorkerMessages(ctx)
	defer func() {
		cancel()
		for range arrivals { // the receivers end now
		}
	}()
	ready, arrived, err := c.collectAnnouncements(own, arrivals)
	answer.cached = newBitset(c.cache.slotCount())
	var failed *coordinatorError
	switch {
	case errors.As(err, &failed):
		answer.failure = failed.text
	case err != nil && len(c.table.list) > 0:
		return answer, 0, fmt.Errorf("%w; %s", err, c.table.describeMissingRanks(arrived))
	case err != nil:
		return answer, 0, err
	}
	for _, r := range ready {
		if slot, ok := c.cache.find(r); ok {
			setBit(answer.cached, slot)
		} else {
			answer.requests = append(answer.requests, r)
		}
	}
	for _, rank := range arrived {
		n, err := c.send(ctx, rank, answer)
		if bytes += n; err != nil && failed == nil {
			return answer, bytes, err
		}
	}
	return answer, bytes, nil
}

// receiveWorkerMessages receives one message from each worker. It closes the channel after the last one.
func (c *Controller) receiveWorkerMessages(ctx context.Context) <-chan workerMessage {
	arrivals := make(chan workerMessage, c.group.Size())
	var receivers sync.WaitGroup
	for rank := range c.group.Size() {
		if rank != coordinatorRank {
			receivers.Go(func() {
				m, err := c.receive(ctx, rank)
				arrivals <- workerMessage{rank, m, err}
			})
		}
	}
	go func() {
		receivers.Wait()
		close(arrivals)
	}()
	return arrivals
}

// stallCheckInterval is the time between two checks for tensors that have waited too long.
const stallCheckInterval = 100 * time.Millisecond

// collectAnnouncements records the announcements of the coordinator and of the workers. It returns
// the tensors that all ranks have announced, and the ranks whose message has arrived. The error is
// a *coordinatorError if its text can be sent to these ranks.
func (c *Controller) collectAnnouncements(own cycleMessage, arrivals <-chan workerMessage) (ready []tensorRequest, arrived []int, err error) {
	ticker := time.NewTicker(stallCheckInterval)
	defer ticker.Stop()
	complete := own.complete
	ready, err = c.recordAnnouncements(own, coordinatorRank, ready)
	for {
		select {
		case a, open := <-arrivals:
			switch {
			case !open && err == nil && complete && len(ready) == 0 && len(c.table.list) > 0:
				return ready, arrived, &coordinatorError{c.table.describeMissingRanks(arrived) + ", and now all ranks wait: they must train the same model"}
			case !open && err == nil && c.hasStalledTensor(c.limit):
				return ready, arrived, c.newStallError(arrived)
			case !open:
				return ready, arrived, err
			case a.err != nil:
				return ready, arrived, a.err
			}
			arrived, complete = append(arrived, a.rank), complete && a.message.complete
			var rerr error
			if ready, rerr = c.recordAnnouncements(a.message, a.rank, ready); err == nil {
				err = rerr
			}
		case <-ticker.C:
			// After a failure, ranks may still arrive to receive it.
			if c.hasStalledTensor(c.limit + c.grace) {
				if err == nil {
					err = c.newStallError(arrived)
				}
				return ready, arrived, err
			}
		}
	}
}

// recordAnnouncements records m, the announcements of rank. It appends the tensors that all ranks
// have then announced to ready.
func (c *Controller) recordAnnouncements(m cycleMessage, rank int, ready []tensorRequest) ([]tensorRequest, error) {
	requests := m.requests
	for slot := range c.cache.slotCount() {
		if isBitSet(m.cached, slot) {
			requests = append(requests, c.cache.bySlot[slot])
		}
	}
	now := c.clock.Elapsed()
	for _, r := range requests {
		first, all, err := c.table.recordAnnouncement(r, rank, now)
		if err != nil {
			return ready, &coordinatorError{err.Error()}
		}
		if first {
			c.timeline.beginNegotiation(r.Name)
		}
		c.timeline.recordRankReady(r.Name, rank)
		if all {
			c.timeline.endNegotiation(r.Name)
			ready = append(ready, r)
		}
	}
	return ready, nil
}

// hasStalledTensor reports whether a tensor has waited longer than limit for some ranks.
func (c *Controller) hasStalledTensor(limit time.Duration) bool {
	now := c.clock.Elapsed()
	since, ok := c.table.oldestAnnouncement()
	return ok && now-since > limit
}

// newStallError returns an error that names the ranks for which a tensor has waited too long.
func (c *Controller) newStallError(arrived []int) error {
	return &coordinatorError{fmt.Sprintf("gradients have waited for %v: %s: check whether the named ranks still run, or set a longer timeout_collective", c.limit, c.table.describeMissingRanks(arrived))}
}
