package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"lockstep/pkg/collective"
)

// reasonTime is how long rank 0 still listens after one rank's error: another's
// may be the reason of it.
const reasonTime = time.Second

// The values of LOCKSTEP_COLLECTIVE.
const (
	transportShared = "shm"
	transportUnix   = "unix"
	transportTCP    = "tcp"
)

// transport says what shall carry the numbers of the ranks: what was asked
// for, or shared memory on one machine and TCP between several.
func transport(me claim, ranks []*guest) (string, error) {
	var far *guest
	for _, g := range ranks[1:] {
		if g.Machine != me.Machine {
			far = g
			break
		}
	}
	switch {
	case far == nil && me.Collective == "":
		return transportShared, nil
	case far == nil || me.Collective == transportTCP:
		return me.Collective, nil
	case me.Collective == "":
		return transportTCP, nil
	}
	return "", fmt.Errorf("%s is %s, which joins workers of one machine, but rank %d is on %s and rank 0 on %s: set it to %s on all workers, or leave it unset",
		collectiveVariable, me.Collective, far.Rank, far.Host, me.Host, transportTCP)
}

// door is where the rank before this one in a ring comes in. It is open from
// the rendezvous to the ring's start.
type door struct {
	net.Listener
	network string
}

// openDoor listens where the others reach this rank: for TCP on the address
// on which it talks to rank 0 (local), which on one machine is the loopback.
func openDoor(ctx context.Context, network string, local net.Addr) (*door, error) {
	address := socketName()
	if network == transportTCP {
		ap, err := netip.ParseAddrPort(local.String())
		if err != nil {
			return nil, fmt.Errorf("find own address: %w", err)
		}
		address = netip.AddrPortFrom(ap.Addr(), 0).String()
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listen for the rank before: %w", err)
	}
	return &door{l, network}, nil
}

// socketName is a unix socket's that nobody guesses; on Linux it is not a
// file, so that nothing can be left behind.
func socketName() string {
	name := "lockstep-" + rand.Text()
	if runtime.GOOS == "linux" {
		return "@" + name
	}
	return filepath.Join(os.TempDir(), name)
}

// join connects to the next rank at its address, lets the rank before in, both
// with proof of the token, closes the door, and makes the ring.
func (d *door) join(ctx context.Context, e Env, o Options, me claim, next string) (_ collective.Group, err error) {
	me.Ring = true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var from, to net.Conn
	var ferr error
	var wg sync.WaitGroup
	wg.Go(func() {
		if from, ferr = d.admitBefore(ctx, e); ferr != nil {
			cancel(ferr)
		}
	})
	w, terr := connect(ctx, d.network, next, e.Token, me)
	if terr != nil {
		terr = fmt.Errorf("connect to rank %d at %s: %w; workers of a ring must reach each other", (e.Rank+1)%e.World, next, terr)
		cancel(terr)
	} else {
		to = w.Conn
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var group collective.Group
	if err == nil {
		group, err = collective.NewRing(d.network+" ring", e.Rank, e.World, from, to, o.Group)
	}
	if err != nil {
		for _, c := range []net.Conn{from, to} {
			if c != nil {
				_ = c.Close() // the error that counts is err
			}
		}
		return nil, err
	}
	return group, nil
}

// admitBefore lets the rank before in, and nobody else.
func (d *door) admitBefore(ctx context.Context, e Env) (net.Conn, error) {
	before := (e.Rank + e.World - 1) % e.World
	entry, stop := context.WithCancel(ctx)
	var visitors sync.WaitGroup
	arrivals, refused := make(chan *guest), make(chan string)
	visitors.Go(func() { admit(entry, d.Listener, e, &visitors, arrivals, refused) })
	defer visitors.Wait()
	defer stop()
	defer context.AfterFunc(entry, func() { _ = d.Close() })()
	defer func() { _ = d.Close() }()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for rank %d to connect: %w", before, context.Cause(ctx))
		case <-refused: // a stranger; whoever belongs here comes too
		case g := <-arrivals:
			if !g.Ring || g.Rank != before || g.World != e.World {
				_ = g.send(reply{Error: fmt.Sprintf("rank %d is not the one before rank %d", g.Rank, e.Rank)})
				_ = g.Close()
				continue
			}
			if err := g.send(g.answer); err != nil {
				_ = g.Close()
				return nil, fmt.Errorf("rank %d is gone (%w)", before, err)
			}
			return g.Conn, nil
		}
	}
}

// hostRing makes the ring with all ranks, as rank 0.
func hostRing(ctx context.Context, e Env, o Options, me claim, network string, ranks []*guest) (_ collective.Group, err error) {
	d, err := openDoor(ctx, network, ranks[1].LocalAddr())
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	for _, g := range ranks[1:] {
		if err := g.send(order{Network: network, ChunkBytes: o.Group.ChunkBytes}); err != nil {
			return nil, fmt.Errorf("send to rank %d: %w", g.Rank, err)
		}
	}
	addresses := make([]string, e.World)
	addresses[0] = d.Addr().String()
	for _, g := range ranks[1:] {
		rep, err := g.hear(ctx, "listen")
		if err != nil {
			return nil, err
		}
		addresses[g.Rank] = rep.Address
	}
	for _, g := range ranks[1:] {
		if err := g.send(order{Next: addresses[(g.Rank+1)%e.World]}); err != nil {
			return nil, fmt.Errorf("send to rank %d: %w", g.Rank, err)
		}
	}
	group, err := joinAll(ctx, e, o, me, d, addresses[1], ranks)
	if err == nil {
		err = start(ranks)
	}
	if err != nil && group != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, err
}

// errElsewhere ends a wait because of another rank's error.
var errElsewhere = errors.New("another rank failed")

// joinAll joins the ring and hears that the others have. One rank's failure is
// soon that of its neighbours: the error says what each reported.
func joinAll(ctx context.Context, e Env, o Options, me claim, d *door, next string, ranks []*guest) (collective.Group, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait := func() {
		timer := time.AfterFunc(reasonTime, func() { cancel(errElsewhere) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	errs := make([]error, e.World)
	var wg sync.WaitGroup
	for _, g := range ranks[1:] {
		wg.Go(func() {
			if _, errs[g.Rank] = g.hear(ctx, "connect"); errs[g.Rank] != nil {
				wait()
			}
		})
	}
	group, err := d.join(ctx, e, o, me, next)
	if err != nil {
		errs[0] = err
		wait()
	}
	wg.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, errElsewhere) })
	return group, errors.Join(errs...)
}

// visitRing makes the ring as another rank, on rank 0's order.
func visitRing(ctx context.Context, e Env, o Options, me claim, w *wire, ord order) (collective.Group, error) {
	if ord.ChunkBytes != o.Group.ChunkBytes {
		return nil, w.complain(fmt.Errorf("chunks are %d bytes here and %d at rank 0 (0: the default): all ranks must have the same chunk size", o.Group.ChunkBytes, ord.ChunkBytes))
	}
	d, err := openDoor(ctx, ord.Network, w.LocalAddr())
	if err != nil {
		return nil, w.complain(err)
	}
	defer func() { _ = d.Close() }()
	if err := w.send(report{Address: d.Addr().String()}); err != nil {
		return nil, fmt.Errorf("report to rank 0: %w", err)
	}
	if ord, err = w.next(ctx, o); err != nil {
		return nil, err
	}
	// Rank 0 may end all this while this rank waits for its neighbours.
	jctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var verdict error
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, verdict = w.next(ctx, o); verdict != nil {
			cancel(verdict)
		}
	})
	group, err := d.join(jctx, e, o, me, ord.Next)
	if err != nil {
		err = w.complain(err)
	} else if err = w.send(report{}); err != nil {
		err = fmt.Errorf("report to rank 0: %w", err)
	}
	if err != nil {
		_ = w.Close() // ends the reading of the verdict
	}
	wg.Wait()
	if err == nil {
		err = verdict
	}
	if err != nil && group != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, err
}
