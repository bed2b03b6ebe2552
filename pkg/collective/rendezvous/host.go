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

// guest is a worker that proved itself.
type guest struct {
	*wire
	claim
	answer reply
}

// host is rank 0's way: it opens the door, gathers all ranks, and sets up the
// memory or the ring with them.
func host(ctx context.Context, e Env, o Options, me claim) (group collective.Group, err error) {
	ctx, cancel := process.WithTimeout(ctx, o.Timeout)
	defer cancel()
	l, err := listen(ctx, e)
	if err != nil {
		return nil, err
	}
	ranks := make([]*guest, e.World)
	defer func() {
		for _, g := range ranks {
			if g == nil {
				continue
			}
			if err != nil {
				_ = g.send(order{Error: "rank 0: " + err.Error()}) // it may be gone itself
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

// gather fills ranks[1:] with the workers that come through l, and closes it.
func gather(ctx context.Context, l net.Listener, e Env, o Options, me claim, ranks []*guest) error {
	door, stop := context.WithCancel(ctx)
	var visitors sync.WaitGroup
	arrivals := make(chan *guest)
	refused := make(chan string)
	visitors.Go(func() { admit(door, l, e, &visitors, arrivals, refused) })
	defer visitors.Wait()
	defer stop()
	defer context.AfterFunc(door, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	var strangers []string
	for have := 1; have < e.World; {
		select {
		case <-ctx.Done():
			return absent(ctx, o, ranks, strangers)
		case s := <-refused:
			if len(strangers) < maxStrangers { // enough for an error
				strangers = append(strangers, s)
			}
		case g := <-arrivals:
			if err := fits(g, me, ranks); err != nil {
				_ = g.send(reply{Error: err.Error()})
				_ = g.Close()
				return err
			}
			if err := g.send(g.answer); err != nil {
				_ = g.Close()
				continue // it was only here for a moment; it may come again
			}
			ranks[g.Rank] = g
			have++
		}
	}
	return nil
}

// maxStrangers is how many of those who were refused an error names.
const maxStrangers = 8

// admit examines everyone who comes, each on a goroutine of its own: a
// stranger that says nothing keeps nobody waiting. Accept may fail for a while, as
// when this process has too many files open, and is tried again.
func admit(ctx context.Context, l net.Listener, e Env, visitors *sync.WaitGroup, arrivals chan<- *guest, refused chan<- string) {
	open := halfOpen{most: max(minHalfOpen, e.World)}
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return // all are there, or time is up
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
			g := &guest{wire: newWire(c)}
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
				stop() // from here on the connection is gather's
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

// minHalfOpen is how many connections of one address may be unproven at once, in a
// run of no more ranks than that.
const minHalfOpen = 32

// halfOpen holds the connections that have not proven themselves. It bounds how many
// one address may have: beyond that the oldest ends. A worker proves
// itself within milliseconds, so the oldest is hardly a worker, and a worker whose
// connection is closed tries again.
type halfOpen struct {
	most int // of one address

	mu sync.Mutex
	by map[string][]net.Conn // in the order in which they came
}

// addressOf returns the address at the other end of c, without its port.
func addressOf(c net.Conn) string {
	text := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}

// add notes that c has come.
func (h *halfOpen) add(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[string][]net.Conn{}
	}
	address := addressOf(c)
	h.by[address] = append(h.by[address], c)
	if all := h.by[address]; len(all) > h.most {
		_ = all[0].Close() // which ends its goroutine
		h.by[address] = all[1:]
	}
}

// remove notes that c has proven itself, or has ended.
func (h *halfOpen) remove(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	address := addressOf(c)
	h.by[address] = slices.DeleteFunc(h.by[address], func(o net.Conn) bool { return o == c })
	if len(h.by[address]) == 0 {
		delete(h.by, address)
	}
}

// fits says why a worker that knows the token does not belong to this run.
func fits(g *guest, me claim, ranks []*guest) error {
	who := fmt.Sprintf("rank %d (process %d on %s)", g.Rank, g.PID, g.Host)
	switch {
	case g.World != me.World:
		return fmt.Errorf("%s has %s %d, rank 0 has %d: give all workers the same", who, worldVariable, g.World, me.World)
	case g.Rank < 1 || g.Rank >= me.World:
		return fmt.Errorf("%s: there are ranks 1 to %d to join", who, me.World-1)
	case g.Ring:
		return fmt.Errorf("%s takes rank 0 for its neighbour in a ring", who)
	case ranks[g.Rank] != nil:
		return fmt.Errorf("%s came, but process %d on %s is rank %d already: give each worker a %s of its own", who, ranks[g.Rank].PID, ranks[g.Rank].Host, g.Rank, rankVariable)
	case g.BuildID != me.BuildID:
		return fmt.Errorf("%s is build %q, rank 0 is build %q: start all workers from the same lockstep binary", who, g.BuildID, me.BuildID)
	case g.Collective != me.Collective:
		return fmt.Errorf("%s has %s %q, rank 0 has %q: give all workers the same", who, collectiveVariable, g.Collective, me.Collective)
	}
	return nil
}

// absent names the ranks that did not come, and who was turned away.
func absent(ctx context.Context, o Options, ranks []*guest, strangers []string) error {
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
	for _, s := range strangers {
		text += "; " + s
	}
	return fmt.Errorf("not all of %d ranks came within %v: missing %s", len(ranks), o.Timeout, text)
}

// share makes the memory and waits until all ranks have mapped it.
func share(ctx context.Context, e Env, o Options, ranks []*guest) (collective.Group, error) {
	group, err := collective.CreateSharedMemory(e.World, o.Group)
	if err != nil {
		return nil, err
	}
	err = mapped(ctx, group.Path(), ranks)
	// From here on nothing is left behind, however the ranks end.
	if err = errors.Join(err, group.Unlink()); err == nil {
		err = start(ranks)
	}
	if err != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, nil
}

func mapped(ctx context.Context, path string, ranks []*guest) error {
	for _, g := range ranks[1:] {
		if err := g.send(order{Memory: path}); err != nil {
			return fmt.Errorf("send to rank %d: %w", g.Rank, err)
		}
	}
	for _, g := range ranks[1:] {
		if _, err := g.hear(ctx, "map the shared memory"); err != nil {
			return err
		}
	}
	return nil
}

// hear receives a rank's report that it has done what it was ordered to.
func (g *guest) hear(ctx context.Context, what string) (report, error) {
	// Not closed at the end of ctx: the rank is still to be told why.
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

// start tells the ranks that all are ready.
func start(ranks []*guest) error {
	for _, g := range ranks[1:] {
		if err := g.send(order{}); err != nil {
			return fmt.Errorf("tell rank %d to start: %w", g.Rank, err)
		}
	}
	return nil
}
