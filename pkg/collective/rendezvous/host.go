package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/process"
)

// member is a worker that has proved that it knows the token.
type member struct {
	*wire
	claim
	answer reply
}

// host runs the rendezvous on rank 0: it listens, waits for all ranks, and creates the
// shared memory or the ring with them.
func host(ctx context.Context, e Env, o Options, me claim) (group collective.Group, err error) {
	ctx, cancel := process.WithTimeout(ctx, o.Timeout)
	defer cancel()
	l, err := listen(ctx, e)
	if err != nil {
		return nil, err
	}
	ranks := make([]*member, e.World)
	defer func() {
		for _, g := range ranks {
			if g == nil {
				continue
			}
			if err != nil {
				_ = g.send(order{Error: "rank 0: " + err.Error()}) // the rank may be gone
			}
			_ = g.Close()
		}
	}()
	if err := gather(ctx, l, e, o, me, ranks); err != nil {
		return nil, err
	}
	network, err := transport(me, ranks)
	if err != nil {
		return nil, err
	}
	if network != transportShared {
		return hostRing(ctx, e, o, me, network, ranks)
	}
	return share(ctx, e, o, ranks)
}

// gather accepts workers from l until ranks[1:] is complete, and closes l.
func gather(ctx context.Context, l net.Listener, e Env, o Options, me claim, ranks []*member) error {
	accepting, stop := context.WithCancel(ctx)
	var connections sync.WaitGroup
	arrivals := make(chan *member)
	refused := make(chan string)
	connections.Go(func() { admit(accepting, l, e, &connections, arrivals, refused) })
	defer connections.Wait()
	defer stop()
	defer context.AfterFunc(accepting, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	var refusals []string
	for have := 1; have < e.World; {
		select {
		case <-ctx.Done():
			return absent(ctx, o, ranks, refusals)
		case s := <-refused:
			if len(refusals) < maxRefusals { // enough for an error
				refusals = append(refusals, s)
			}
		case g := <-arrivals:
			if err := checkMember(g, me, ranks); err != nil {
				_ = g.send(reply{Error: err.Error()})
				_ = g.Close()
				return err
			}
			if err := g.send(g.answer); err != nil {
				_ = g.Close()
				continue // the worker has disconnected; it may connect again
			}
			ranks[g.Rank] = g
			have++
		}
	}
	return nil
}

// maxRefusals limits the refused connections that an error lists.
const maxRefusals = 8

// admit authenticates each connection in a separate goroutine, so that a silent one does
// not delay the others. It sends the workers that know the token to arrivals and the
// reasons of refusals to refused. Accept may fail for a while, for example while this
// process has too many open files; then admit tries again.
func admit(ctx context.Context, l net.Listener, e Env, visitors *sync.WaitGroup, arrivals chan<- *member, refused chan<- string) {
	open := halfOpen{most: max(minHalfOpen, e.World)}
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return // all ranks have joined, or ctx has ended
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, longest)
			continue
		}
		pause = shortest
		open.add(c)
		visitors.Go(func() {
			defer open.remove(c)
			g := &member{wire: newWire(c)}
			stop := g.closeOnEnd(ctx)
			defer stop()
			err := c.SetDeadline(time.Now().Add(handshakeTime))
			if err == nil {
				g.claim, g.answer, err = examine(g.wire, e.Token)
			}
			if err == nil {
				err = c.SetDeadline(time.Time{})
			}
			if err == nil {
				stop() // from here on the receiver of arrivals closes the connection
				open.remove(c)
				select {
				case arrivals <- g:
					return
				case <-ctx.Done():
				}
			}
			_ = c.Close()
			var r *refusal
			if errors.As(err, &r) {
				select {
				case refused <- fmt.Sprintf("a worker from %s was refused: %v", c.RemoteAddr(), r):
				case <-ctx.Done():
				}
			}
		})
	}
}

// minHalfOpen is the limit of unauthenticated connections per address, unless the run has
// more ranks.
const minHalfOpen = 32

// halfOpen contains the connections that have not authenticated yet, and limits how many
// each address may have. At the limit it closes the oldest one: a worker authenticates
// within milliseconds, so the oldest is probably no worker, and a worker whose connection
// is closed connects again.
type halfOpen struct {
	most int // connections per address

	mu sync.Mutex
	by map[string][]net.Conn // by address, oldest first
}

// addressOf returns the address at the other end of c, without its port.
func addressOf(c net.Conn) string {
	text := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}

// add adds c. It may close the oldest connection from the same address.
func (h *halfOpen) add(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[string][]net.Conn{}
	}
	address := addressOf(c)
	h.by[address] = append(h.by[address], c)
	if all := h.by[address]; len(all) > h.most {
		_ = all[0].Close() // this ends its goroutine
		h.by[address] = all[1:]
	}
}

// remove removes c, which has authenticated or ended.
func (h *halfOpen) remove(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	address := addressOf(c)
	h.by[address] = slices.DeleteFunc(h.by[address], func(o net.Conn) bool { return o == c })
	if len(h.by[address]) == 0 {
		delete(h.by, address)
	}
}

// checkMember returns an error if a worker that knows the token does not fit this run.
func checkMember(g *member, me claim, ranks []*member) error {
	name := fmt.Sprintf("rank %d (process %d on %s)", g.Rank, g.PID, g.Host)
	switch {
	case g.World != me.World:
		return fmt.Errorf("%s has %s %d, rank 0 has %d: give all workers the same", name, worldVariable, g.World, me.World)
	case g.Rank < 1 || g.Rank >= me.World:
		return fmt.Errorf("%s: invalid rank: want 1 to %d", name, me.World-1)
	case g.Ring:
		return fmt.Errorf("%s connected to rank 0 as to its neighbor in a ring", name)
	case ranks[g.Rank] != nil:
		return fmt.Errorf("%s: process %d on %s is rank %d already: give each worker a different %s", name, ranks[g.Rank].PID, ranks[g.Rank].Host, g.Rank, rankVariable)
	case g.BuildID != me.BuildID:
		return fmt.Errorf("%s is build %q, rank 0 is build %q: start all workers from the same lockstep binary", name, g.BuildID, me.BuildID)
	case g.Collective != me.Collective:
		return fmt.Errorf("%s has %s %q, rank 0 has %q: give all workers the same", name, collectiveVariable, g.Collective, me.Collective)
	}
	return nil
}

// absent returns the error that lists the ranks that did not join and the connections that
// were refused.
func absent(ctx context.Context, o Options, ranks []*member, refusals []string) error {
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	var names []string
	for r, g := range ranks {
		if r > 0 && g == nil {
			names = append(names, fmt.Sprint(r))
		}
	}
	text := "rank " + strings.Join(names, ", ")
	if len(names) > 1 {
		text = "ranks " + strings.Join(names, ", ")
	}
	for _, s := range refusals {
		text += "; " + s
	}
	return fmt.Errorf("not all of %d ranks joined within %v: missing %s", len(ranks), o.Timeout, text)
}

// share creates the shared memory and waits until all ranks have mapped it.
func share(ctx context.Context, e Env, o Options, ranks []*member) (collective.Group, error) {
	group, err := collective.CreateSharedMemory(e.World, o.Group)
	if err != nil {
		return nil, err
	}
	err = mapped(ctx, group.Path(), ranks)
	// After Unlink no file is left, however the ranks end.
	if err = errors.Join(err, group.Unlink()); err == nil {
		err = start(ranks)
	}
	if err != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, nil
}

// mapped sends the path of the shared memory to all ranks and waits until each has mapped
// it.
func mapped(ctx context.Context, path string, ranks []*member) error {
	for _, g := range ranks[1:] {
		if err := g.send(order{Memory: path}); err != nil {
			return fmt.Errorf("send to rank %d: %w", g.Rank, err)
		}
	}
	for _, g := range ranks[1:] {
		if _, err := g.receiveReport(ctx, "map the shared memory"); err != nil {
			return err
		}
	}
	return nil
}

// receiveReport waits for a rank's report that it has carried out an order. what
// describes the order for an error message.
func (g *member) receiveReport(ctx context.Context, what string) (report, error) {
	// The end of ctx must not close the connection: the rank is still sent the reason.
	defer context.AfterFunc(ctx, func() { _ = g.SetReadDeadline(time.Now()) })()
	var rep report
	err := g.receive(&rep)
	switch {
	case ctx.Err() != nil:
		return rep, fmt.Errorf("wait for rank %d to %s: %w", g.Rank, what, context.Cause(ctx))
	case err != nil:
		return rep, fmt.Errorf("rank %d is gone (%w)", g.Rank, err)
	case rep.Error != "":
		return rep, fmt.Errorf("rank %d: %s", g.Rank, rep.Error)
	}
	return rep, nil
}

// start tells the other ranks that all ranks are ready.
func start(ranks []*member) error {
	for _, g := range ranks[1:] {
		if err := g.send(order{}); err != nil {
			return fmt.Errorf("tell rank %d to start: %w", g.Rank, err)
		}
	}
	return nil
}
