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

// collectErrorsTimeout is how long rank 0 goes on collecting reports after the first error,
// because another rank may report the cause of that error.
const collectErrorsTimeout = time.Second

// The values of LOCKSTEP_COLLECTIVE.
const (
	transportShared = "shm"
	transportUnix   = "unix"
	transportTCP    = "tcp"
)

// localTransport returns the default transport between workers of one machine with the
// operating system goos. Only on Linux do we create files that exist in memory alone, wake a
// rank that waits for shared memory, and see the end of a rank's process. Elsewhere the
// workers use unix sockets.
func localTransport(goos string) string {
	if goos == "linux" {
		return transportShared
	}
	return transportUnix
}

// chooseTransport returns the transport that LOCKSTEP_COLLECTIVE selects. By default it is
// the result of localTransport on one machine and TCP between several.
func chooseTransport(me claim, ranks []*member) (string, error) {
	var remote *member // on another machine
	for _, g := range ranks[1:] {
		if g.Machine != me.Machine {
			remote = g
			break
		}
	}
	switch {
	case remote == nil && me.Collective == "":
		return localTransport(runtime.GOOS), nil
	case remote == nil || me.Collective == transportTCP:
		return me.Collective, nil
	case me.Collective == "":
		return transportTCP, nil
	}
	return "", fmt.Errorf("%s is %s, which joins workers of one machine, but rank %d is on %s and rank 0 on %s: set it to %s on all workers, or leave it unset",
		collectiveVariable, me.Collective, remote.Rank, remote.Host, me.Host, transportTCP)
}

// ringListener accepts the connection of the previous rank in a ring. It is open only
// while the ring is being created.
type ringListener struct {
	net.Listener
	network string
}

// listenForRing listens on an address that the other ranks can reach. For TCP it uses the
// IP address of local, the local address of this rank's connection to rank 0, which is a
// loopback address if all ranks run on one machine.
func listenForRing(ctx context.Context, network string, local net.Addr) (*ringListener, error) {
	address := newSocketName(runtime.GOOS, os.TempDir())
	if network == transportTCP {
		ap, err := netip.ParseAddrPort(local.String())
		if err != nil {
			return nil, fmt.Errorf("parse local address: %w", err)
		}
		address = netip.AddrPortFrom(ap.Addr(), 0).String()
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listen for the previous rank: %w", err)
	}
	return &ringListener{l, network}, nil
}

// maxSocketName is the largest length in bytes of a unix socket's path on macOS and the BSDs:
// sun_path in sys/un.h has 104 bytes, one of them for the final zero.
const maxSocketName = 103

// newSocketName returns an unpredictable name for a unix socket on the operating system goos. On
// Linux it is in the abstract namespace (unix(7)) rather than a file, so that nothing is left
// on disk. Elsewhere it is a file in the folder temporary, or in /tmp if its path would be
// too long.
func newSocketName(goos, temporary string) string {
	name := "lockstep-" + rand.Text()
	if goos == "linux" {
		return "@" + name
	}
	if path := filepath.Join(temporary, name); len(path) <= maxSocketName {
		return path
	}
	return filepath.Join("/tmp", name)
}

// connectRing connects to the next rank at the address next and accepts the previous rank.
// Both connections are authenticated. Then it closes the listener and creates the ring.
func (d *ringListener) connectRing(ctx context.Context, e Env, o Options, me claim, next string) (_ collective.Group, err error) {
	me.Ring = true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var from, to net.Conn
	var ferr error
	var wg sync.WaitGroup
	wg.Go(func() {
		if from, ferr = d.acceptPreviousRank(ctx, e); ferr != nil {
			cancel(ferr)
		}
	})
	w, terr := connect(ctx, d.network, next, e.Token, me)
	if terr != nil {
		terr = fmt.Errorf("connect to rank %d at %s: %w; each worker of a ring must be able to reach the next one", (e.Rank+1)%e.World, next, terr)
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
				_ = c.Close() // err is the error to report
			}
		}
		return nil, err
	}
	return group, nil
}

// acceptPreviousRank accepts the connection of the previous rank and refuses all others.
func (d *ringListener) acceptPreviousRank(ctx context.Context, e Env) (net.Conn, error) {
	previous := (e.Rank + e.World - 1) % e.World
	accepting, stop := context.WithCancel(ctx)
	var connections sync.WaitGroup
	arrivals, refused := make(chan *member), make(chan string)
	connections.Go(func() { acceptConnections(accepting, d.Listener, e, &connections, arrivals, refused) })
	defer connections.Wait()
	defer stop()
	defer context.AfterFunc(accepting, func() { _ = d.Close() })()
	defer func() { _ = d.Close() }()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for rank %d to connect: %w", previous, context.Cause(ctx))
		case <-refused: // not a worker of this run; go on waiting
		case g := <-arrivals:
			if !g.Ring || g.Rank != previous || g.World != e.World {
				_ = g.send(reply{Error: fmt.Sprintf("rank %d is not the rank before rank %d", g.Rank, e.Rank)})
				_ = g.Close()
				continue
			}
			if err := g.send(g.answer); err != nil {
				_ = g.Close()
				return nil, fmt.Errorf("rank %d is gone (%w)", previous, err)
			}
			return g.Conn, nil
		}
	}
}

// serveRing creates the ring on rank 0, which sends commands to the other ranks.
func serveRing(ctx context.Context, e Env, o Options, me claim, network string, ranks []*member) (_ collective.Group, err error) {
	d, err := listenForRing(ctx, network, ranks[1].LocalAddr())
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	for _, g := range ranks[1:] {
		if err := g.send(command{Network: network, ChunkBytes: o.Group.ChunkBytes}); err != nil {
			return nil, fmt.Errorf("send command to rank %d: %w", g.Rank, err)
		}
	}
	addresses := make([]string, e.World)
	addresses[0] = d.Addr().String()
	for _, g := range ranks[1:] {
		rep, err := g.receiveReport(ctx, "listen")
		if err != nil {
			return nil, err
		}
		addresses[g.Rank] = rep.Address
	}
	for _, g := range ranks[1:] {
		if err := g.send(command{Next: addresses[(g.Rank+1)%e.World]}); err != nil {
			return nil, fmt.Errorf("send command to rank %d: %w", g.Rank, err)
		}
	}
	group, err := connectAll(ctx, e, o, me, d, addresses[1], ranks)
	if err == nil {
		err = sendStartCommand(ranks)
	}
	if err != nil && group != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, err
}

// errOtherRank is the cause that ends a wait for reports after another rank's error.
var errOtherRank = errors.New("another rank failed")

// connectAll connects rank 0 to its neighbors and waits until the other ranks report that
// they are connected too. If one rank fails, its neighbors soon fail too, so the error
// contains the reports of all ranks.
func connectAll(ctx context.Context, e Env, o Options, me claim, d *ringListener, next string, ranks []*member) (collective.Group, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limitWait := func() {
		timer := time.AfterFunc(collectErrorsTimeout, func() { cancel(errOtherRank) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	errs := make([]error, e.World)
	var wg sync.WaitGroup
	for _, g := range ranks[1:] {
		wg.Go(func() {
			if _, errs[g.Rank] = g.receiveReport(ctx, "connect"); errs[g.Rank] != nil {
				limitWait()
			}
		})
	}
	group, err := d.connectRing(ctx, e, o, me, next)
	if err != nil {
		errs[0] = err
		limitWait()
	}
	wg.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, errOtherRank) })
	return group, errors.Join(errs...)
}

// joinRing joins the ring on a rank other than 0. cmd is the first command of rank 0.
func joinRing(ctx context.Context, e Env, o Options, me claim, w *jsonConn, cmd command) (collective.Group, error) {
	if cmd.ChunkBytes != o.Group.ChunkBytes {
		return nil, w.reportError(fmt.Errorf("invalid chunk size %d bytes: rank 0 has %d (0 is the default): use the same chunk size on all ranks", o.Group.ChunkBytes, cmd.ChunkBytes))
	}
	d, err := listenForRing(ctx, cmd.Network, w.LocalAddr())
	if err != nil {
		return nil, w.reportError(err)
	}
	defer func() { _ = d.Close() }()
	if err := w.send(report{Address: d.Addr().String()}); err != nil {
		return nil, fmt.Errorf("send report to rank 0: %w", err)
	}
	if cmd, err = w.receiveCommand(ctx, o); err != nil {
		return nil, err
	}
	// Rank 0 may end the rendezvous while this rank waits for its neighbors.
	jctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var verdict error
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, verdict = w.receiveCommand(ctx, o); verdict != nil {
			cancel(verdict)
		}
	})
	group, err := d.connectRing(jctx, e, o, me, cmd.Next)
	if err != nil {
		err = w.reportError(err)
	} else if err = w.send(report{}); err != nil {
		err = fmt.Errorf("send report to rank 0: %w", err)
	}
	if err != nil {
		_ = w.Close() // this ends the goroutine that receives the verdict
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
