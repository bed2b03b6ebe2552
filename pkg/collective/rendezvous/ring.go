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
	"strings"
	"sync"
	"syscall"
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
	transportMPI    = "mpi"
)

// localTransport returns the default transport between workers of one machine. goos is its
// operating system. Shared memory is used only on Linux, where we can create files that exist only
// in memory, wake a rank that waits, and notice when a rank's process ends. Elsewhere the workers
// use unix sockets.
func localTransport(goos string) string {
	if goos == "linux" {
		return transportShared
	}
	return transportUnix
}

// chooseTransport returns the transport that LOCKSTEP_COLLECTIVE selects. By default it is
// the result of localTransport on one machine and TCP between several.
func chooseTransport(me workerClaim, ranks []*authenticatedWorker) (string, error) {
	var remote *authenticatedWorker // on another machine
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

// ringListener accepts the other ranks' connections while a ring is being created.
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
		return nil, fmt.Errorf("listen for the other ranks: %w", err)
	}
	return &ringListener{l, network}, nil
}

// maxSocketPathBytes is the largest length in bytes of a unix socket's path on macOS and the BSDs:
// sun_path in sys/un.h has 104 bytes, one of them for the final zero.
const maxSocketPathBytes = 103

// newSocketName returns an unpredictable name for a unix socket on the operating system goos. On
// Linux it is in the abstract namespace (unix(7)) rather than a file, so that nothing is left
// on disk. Elsewhere it is a file in the folder temporary, or in /tmp if its path would be
// too long.
func newSocketName(goos, temporary string) string {
	name := "lockstep-" + rand.Text()
	if goos == "linux" {
		return "@" + name
	}
	if path := filepath.Join(temporary, name); len(path) <= maxSocketPathBytes {
		return path
	}
	return filepath.Join("/tmp", name)
}

// connectRing creates the ring of this rank. It connects to the next rank, and twice to each higher
// rank: for Send and Recv, and for algorithms other than the ring. It accepts the connections of
// the previous rank and of the lower ranks. addresses contains the address of each rank. All
// connections are authenticated. At the end, connectRing closes the listener.
func (d *ringListener) connectRing(ctx context.Context, e Env, o Options, me workerClaim, addresses []string) (_ collective.Group, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Two goroutines fill different fields and elements of all.
	all := collective.Connections{Messages: make([]net.Conn, e.World), Scheduled: make([]net.Conn, e.World)}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.acceptRanks(ctx, e, &all); err != nil {
			cancel(err)
		}
	})
	if err := d.connectToRanks(ctx, e, me, addresses, &all); err != nil {
		cancel(err)
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var group collective.Group
	if err == nil {
		name := d.network + " ring"
		if e.TLS {
			name += ", TLS"
		}
		group, err = collective.NewRing(name, e.Rank, e.World, all, o.Group)
	}
	if err != nil {
		_ = all.Close() // err is the error to report
		return nil, err
	}
	return group, nil
}

func (d *ringListener) connectToRanks(ctx context.Context, e Env, me workerClaim, addresses []string, all *collective.Connections) error {
	dial := func(rank int, link string) (net.Conn, error) {
		me.Link = link
		w, err := connectRepeatedly(ctx, d.network, addresses[rank], e.Token, me, mayStillListen)
		if err != nil {
			return nil, fmt.Errorf("connect to rank %d at %s: %w; each worker of a ring must be able to reach the others", rank, addresses[rank], err)
		}
		return w.dataConn(), nil
	}
	var err error
	if all.To, err = dial((e.Rank+1)%e.World, linkRing); err != nil {
		return err
	}
	for rank := e.Rank + 1; rank < e.World; rank++ {
		if all.Messages[rank], err = dial(rank, linkMessages); err != nil {
			return err
		}
		if all.Scheduled[rank], err = dial(rank, linkScheduled); err != nil {
			return err
		}
	}
	return nil
}

// mayStillListen reports whether a rank that has listened may accept another connection after the
// error err. The rank may have closed this connection because too many connections from strangers
// were waiting.
func mayStillListen(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return errors.Is(err, syscall.EAGAIN) || dial.Timeout()
	}
	return true
}

// acceptRanks accepts one connection of the previous rank and two of each lower rank, and
// refuses all others.
func (d *ringListener) acceptRanks(ctx context.Context, e Env, all *collective.Connections) error {
	accepting, stop := context.WithCancel(ctx)
	var connections sync.WaitGroup
	arrivals, refused := make(chan *authenticatedWorker), make(chan string)
	connections.Go(func() { acceptConnections(accepting, d.Listener, e, &connections, arrivals, refused) })
	defer connections.Wait()
	defer stop()
	defer context.AfterFunc(accepting, func() { _ = d.Close() })()
	defer func() { _ = d.Close() }()
	for missing := 1 + 2*e.Rank; missing > 0; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to connect: %w", describeMissingPeers(e, all), context.Cause(ctx))
		case <-refused: // not a worker of this run; go on waiting
		case g := <-arrivals:
			place, err := findConnectionSlot(g, e, all)
			if err != nil {
				_ = g.send(handshakeReply{Error: err.Error()})
				_ = g.Close()
				continue
			}
			if err := g.send(g.answer); err != nil {
				_ = g.Close()
				continue // the connection was closed for a stranger's; the rank connects again
			}
			*place = g.dataConn()
			missing--
		}
	}
	return nil
}

func (e Env) previousRank() int { return (e.Rank + e.World - 1) % e.World }

// findConnectionSlot returns the element of all to which the connection of g belongs. It returns an
// error if g may not connect to this rank, or has done so already.
func findConnectionSlot(g *authenticatedWorker, e Env, all *collective.Connections) (*net.Conn, error) {
	var place *net.Conn
	switch {
	case g.World != e.World:
	case g.Link == linkRing && g.Rank == e.previousRank():
		place = &all.From
	case g.Link == linkRing:
		return nil, fmt.Errorf("rank %d is not the rank before rank %d", g.Rank, e.Rank)
	case g.Rank < 0 || g.Rank >= e.Rank:
	case g.Link == linkMessages:
		place = &all.Messages[g.Rank]
	case g.Link == linkScheduled:
		place = &all.Scheduled[g.Rank]
	}
	if place == nil {
		return nil, fmt.Errorf("rank %d has no connection for this purpose to rank %d", g.Rank, e.Rank)
	}
	if *place != nil {
		return nil, fmt.Errorf("rank %d is connected to rank %d already", g.Rank, e.Rank)
	}
	return place, nil
}

func describeMissingPeers(e Env, all *collective.Connections) string {
	var names []string
	if all.From == nil {
		names = append(names, fmt.Sprintf("rank %d", e.previousRank()))
	}
	for rank := range e.Rank {
		if (all.Messages[rank] == nil || all.Scheduled[rank] == nil) && (all.From != nil || rank != e.previousRank()) {
			names = append(names, fmt.Sprintf("rank %d", rank))
		}
	}
	return strings.Join(names, ", ")
}

// addressesPerCommand limits the number of addresses in a command, so that the command is shorter
// than maxMessageBytes. The path of a unix socket has at most 108 bytes.
const addressesPerCommand = 100

func (g *authenticatedWorker) sendAddresses(ctx context.Context, addresses []string) error {
	for part := range slices.Chunk(addresses, addressesPerCommand) {
		if err := g.sendCommand(ctx, serverCommand{Addresses: part}); err != nil {
			return err
		}
	}
	return nil
}

func (w *jsonConn) receiveAddresses(ctx context.Context, e Env, o Options) ([]string, error) {
	var addresses []string
	for len(addresses) < e.World {
		cmd, err := w.receiveCommand(ctx, o)
		if err != nil {
			return nil, err
		}
		if len(cmd.Addresses) == 0 {
			return nil, errForeignProtocol
		}
		addresses = append(addresses, cmd.Addresses...)
	}
	return addresses, nil
}

// serveRing creates the ring on rank 0.
func serveRing(ctx context.Context, e Env, o Options, me workerClaim, network string, ranks []*authenticatedWorker) (_ collective.Group, err error) {
	d, err := listenForRing(ctx, network, ranks[1].LocalAddr())
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	for _, g := range ranks[1:] {
		if err := g.sendCommand(ctx, serverCommand{Network: network, ChunkBytes: o.Group.ChunkBytes, RanksPerNode: o.Group.RanksPerNode}); err != nil {
			return nil, err
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
		if err := g.sendAddresses(ctx, addresses); err != nil {
			return nil, err
		}
	}
	group, err := connectAll(ctx, e, o, me, d, addresses, ranks)
	if err == nil {
		err = sendStartCommand(ctx, ranks)
	}
	if err != nil && group != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, err
}

var errOtherRank = errors.New("another rank failed")

// connectAll connects rank 0 to the other ranks and waits for their reports that they are
// connected. If one rank fails, others soon fail too, so the error contains all reports.
func connectAll(ctx context.Context, e Env, o Options, me workerClaim, d *ringListener, addresses []string, ranks []*authenticatedWorker) (collective.Group, error) {
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
	group, err := d.connectRing(ctx, e, o, me, addresses)
	if err != nil {
		errs[0] = err
		limitWait()
	}
	wg.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, errOtherRank) })
	return group, errors.Join(errs...)
}

// joinRing runs on ranks other than 0. cmd is rank 0's first command.
func joinRing(ctx context.Context, e Env, o Options, me workerClaim, w *jsonConn, cmd serverCommand) (collective.Group, error) {
	if cmd.ChunkBytes != o.Group.ChunkBytes {
		return nil, w.reportError(fmt.Errorf("invalid chunk size %d bytes: rank 0 has %d (0 is the default): use the same chunk size on all ranks", o.Group.ChunkBytes, cmd.ChunkBytes))
	}
	d, err := listenForRing(ctx, cmd.Network, w.LocalAddr())
	if err != nil {
		return nil, w.reportError(err)
	}
	defer func() { _ = d.Close() }()
	if err := w.send(workerReport{Address: d.Addr().String()}); err != nil {
		return nil, fmt.Errorf("send report to rank 0: %w", err)
	}
	addresses, err := w.receiveAddresses(ctx, e, o)
	if err != nil {
		return nil, err
	}
	// Rank 0 may end the rendezvous while this rank waits for the others.
	jctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var verdict error
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, verdict = w.receiveCommand(ctx, o); verdict != nil {
			cancel(verdict)
		}
	})
	group, err := d.connectRing(jctx, e, o, me, addresses)
	if err != nil {
		err = w.reportError(err)
	} else if err = w.send(workerReport{}); err != nil {
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
