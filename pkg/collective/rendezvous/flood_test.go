package rendezvous

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/collective"
)

// watchedListener records what its connections are allowed to do.
type watchedListener struct {
	net.Listener
	open, mostOpen atomic.Int64 // connections
	mostBytes      atomic.Int64 // that were read from one connection
	unlimited      atomic.Int64 // reads without a deadline, or with one that is later than the handshake's
}

func (l *watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raise(&l.mostOpen, l.open.Add(1))
	return &watchedConn{Conn: c, of: l}, nil
}

// raise sets v to n if n is larger.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// watchedConn is a connection of a watchedListener.
type watchedConn struct {
	net.Conn
	of       *watchedListener
	bytes    atomic.Int64
	deadline atomic.Int64 // in ns since 1970; 0: none
	closed   sync.Once
}

func (c *watchedConn) SetDeadline(t time.Time) error {
	var ns int64
	if !t.IsZero() {
		ns = t.UnixNano()
	}
	c.deadline.Store(ns)
	return c.Conn.SetDeadline(t)
}

func (c *watchedConn) Read(p []byte) (int, error) {
	if d := c.deadline.Load(); d == 0 || time.Until(time.Unix(0, d)) > handshakeTimeout {
		c.of.unlimited.Add(1)
	}
	n, err := c.Conn.Read(p)
	raise(&c.of.mostBytes, c.bytes.Add(int64(n)))
	return n, err
}

func (c *watchedConn) Close() error {
	c.closed.Do(func() { c.of.open.Add(-1) })
	return c.Conn.Close()
}

// flood connects to address again and again until ctx ends, as strangers do: it sends noise
// without an end, or nothing, or a proof with a wrong token. It counts the connections of each
// kind, and returns the number of strangers that were let in.
func flood(ctx context.Context, address string, connected *[3]atomic.Int64) (joined int64) {
	var wg sync.WaitGroup
	var admitted atomic.Int64
	for i := range 120 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if stranger(ctx, address, i%3, &connected[i%3]) == nil {
					admitted.Add(1)
				}
				time.Sleep(time.Millisecond) // so that one processor suffices for the test
			}
		})
	}
	wg.Wait()
	return admitted.Load()
}

// stranger makes one connection of the given kind. It returns nil if it was let in.
func stranger(ctx context.Context, address string, kind int, connected *atomic.Int64) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	connected.Add(1)
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }()
	switch kind {
	case 0:
		noise := strings.Repeat("x", 4096)
		for err == nil {
			_, err = io.WriteString(c, noise)
		}
		return err
	case 1:
		_, _ = io.Copy(io.Discard, c)
		return errors.New("closed")
	}
	return clientHandshake(newJSONConn(c), "guess", workerClaim{Rank: 1, World: 3})
}

// TestFloodOfStrangers floods the port of rank 0 while three workers join. It checks the limits
// on strangers, and that none is let in: the number of connections, the bytes that are read
// from one, and the time that it may take.
func TestFloodOfStrangers(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &watchedListener{Listener: inner}
	e := Env{World: 3, LocalWorld: 3, MasterAddr: "127.0.0.1", MasterPort: inner.Addr().(*net.TCPAddr).Port, Token: "secret"}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	ranks := make([]*authenticatedWorker, 3)
	var wg sync.WaitGroup
	var serr error
	wg.Go(func() { serr = acceptWorkers(ctx, l, e, Options{}, workerClaim{World: 3}, ranks) })
	flooding, stop := context.WithCancel(ctx)
	var connected [3]atomic.Int64
	var admitted int64
	var strangers sync.WaitGroup
	strangers.Go(func() { admitted = flood(flooding, e.Address(), &connected) })
	enough := func() bool { return connected[0].Load() > 50 && connected[1].Load() >= 10 && connected[2].Load() > 50 }
	for !enough() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	errs := make([]error, 3)
	for rank := 1; rank < 3; rank++ { // in the midst of the flood
		wg.Go(func() {
			own := e
			own.Rank = rank
			w, err := connectToServer(ctx, own, Options{Timeout: 4 * time.Minute}, workerClaim{Rank: rank, World: 3})
			if errs[rank] = err; err == nil {
				errs[rank] = w.Close()
			}
		})
	}
	wg.Wait()
	if c, err := net.Dial("tcp", e.Address()); err == nil {
		t.Error("the port still listens after all ranks have joined")
		_ = c.Close()
	}
	stop()
	strangers.Wait()
	if err := errors.Join(append(errs, serr)...); err != nil {
		t.Fatal(err)
	}
	for _, g := range ranks[1:] {
		_ = g.Close()
	}
	// Besides those that have not authenticated, the connections of the two workers are open,
	// and one more until add closes the oldest.
	if n := l.mostOpen.Load(); n > minConnectionsPerAddress+3 {
		t.Errorf("%d connections were open at once, want at most %d", n, minConnectionsPerAddress+3)
	}
	if n := l.mostBytes.Load(); n > maxMessageBytes {
		t.Errorf("%d bytes were read from one connection, want at most %d", n, maxMessageBytes)
	}
	if n := l.unlimited.Load(); n > 0 {
		t.Errorf("%d reads without a deadline within %v", n, handshakeTimeout)
	}
	if n := l.open.Load(); n > 0 {
		t.Errorf("%d connections are left open", n)
	}
	if admitted > 0 {
		t.Errorf("%d strangers were let in", admitted)
	}
}

// TestFloodWhileTraining floods the port from before the start until after several exchanges,
// on each transport, and checks the sums.
func TestFloodWhileTraining(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, transport := range []string{transportShared, transportUnix, transportTCP} {
		t.Run(transport, func(t *testing.T) {
			envs, options := run(t, 3, Options{Timeout: 4 * time.Minute})
			for r := range envs {
				envs[r].Collective = transport
			}
			ctx, stop := context.WithCancel(context.Background())
			var connected [3]atomic.Int64
			var strangers sync.WaitGroup
			var admitted int64
			strangers.Go(func() { admitted = flood(ctx, envs[0].Address(), &connected) })
			groups, errs := join(context.Background(), envs, options)
			if err := errors.Join(errs...); err != nil {
				stop()
				t.Fatal(err)
			}
			for range 100 {
				if err := addUp(groups); err != nil {
					t.Error(err)
					break
				}
			}
			stop()
			strangers.Wait()
			closeAll(t, groups)
			if admitted > 0 {
				t.Errorf("%d strangers were let in", admitted)
			}
		})
	}
}

// unluckyListener closes every connection but each fifth, as a rank does at the limits for strangers.
type unluckyListener struct {
	net.Listener
	accepted atomic.Int64
}

func (l *unluckyListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.accepted.Add(1)%5 == 0 {
			return c, err
		}
		_ = c.Close()
	}
}

// listenAsRing returns the listeners of all ranks of a ring, and their addresses.
func listenAsRing(ctx context.Context, t *testing.T, network string, world int) ([]*ringListener, []string) {
	t.Helper()
	listeners, addresses := make([]*ringListener, world), make([]string, world)
	for rank := range listeners {
		l, err := listenForRing(ctx, network, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		listeners[rank], addresses[rank] = l, l.Addr().String()
	}
	return listeners, addresses
}

// connectAsRing connects all ranks of a ring with each other, and returns their groups by rank.
func connectAsRing(ctx context.Context, listeners []*ringListener, addresses []string) ([]collective.Group, error) {
	world := len(listeners)
	groups, errs := make([]collective.Group, world), make([]error, world)
	var wg sync.WaitGroup
	for rank, d := range listeners {
		wg.Go(func() {
			groups[rank], errs[rank] = d.connectRing(ctx, Env{Rank: rank, World: world, Token: "secret"}, Options{}, workerClaim{Rank: rank, World: world}, addresses)
		})
	}
	wg.Wait()
	return groups, errors.Join(errs...)
}

// TestConnectToRanksTriesAgain: a rank closes connections of workers, because strangers flood its
// port, and the workers connect again. A rank that no longer listens ends the attempts at once.
func TestConnectToRanksTriesAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, network := range []string{transportTCP, transportUnix} {
		listeners, addresses := listenAsRing(ctx, t, network, 2)
		for _, l := range listeners {
			l.Listener = &unluckyListener{Listener: l.Listener}
		}
		groups, err := connectAsRing(ctx, listeners, addresses)
		if err != nil {
			t.Fatal(err)
		}
		if err := addUp(groups); err != nil {
			t.Error(err)
		}
		closeAll(t, groups)
		d := &ringListener{network: network} // the addresses no longer accept connections
		err = d.connectToRanks(ctx, Env{World: 2, Token: "secret"}, workerClaim{World: 2}, addresses, &collective.Connections{})
		wantError(t, err, "connect to rank 1 at "+addresses[1], "connection refused")
	}
}

// TestFloodOfRingPorts floods the ports on which the ranks of a ring wait for each other.
func TestFloodOfRingPorts(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	listeners, addresses := listenAsRing(ctx, t, transportTCP, 2)
	flooding, stop := context.WithCancel(ctx)
	var strangers sync.WaitGroup
	var connected [3]atomic.Int64
	var admitted atomic.Int64
	for _, a := range addresses {
		strangers.Go(func() { admitted.Add(flood(flooding, a, &connected)) })
	}
	for connected[0].Load() < 20 || connected[1].Load() < 20 || connected[2].Load() < 20 {
		time.Sleep(time.Millisecond)
	}
	groups, err := connectAsRing(ctx, listeners, addresses)
	if err != nil {
		stop()
		strangers.Wait()
		t.Fatal(err)
	}
	for range 20 {
		if err := addUp(groups); err != nil {
			t.Error(err)
			break
		}
	}
	stop()
	strangers.Wait()
	closeAll(t, groups)
	if n := admitted.Load(); n > 0 {
		t.Errorf("%d strangers were let in", n)
	}
}

// TestCommandsEndWithTheirContext: a worker that does not receive must not block rank 0, which
// sends it commands.
func TestCommandsEndWithTheirContext(t *testing.T) {
	addresses := []string{strings.Repeat("x", 1000)}
	for _, send := range []func(context.Context, *authenticatedWorker) error{
		func(ctx context.Context, g *authenticatedWorker) error { return g.sendAddresses(ctx, addresses) },
		func(ctx context.Context, g *authenticatedWorker) error {
			return sendStartCommand(ctx, []*authenticatedWorker{nil, g})
		},
		func(ctx context.Context, g *authenticatedWorker) error {
			return mapMemoryOnRanks(ctx, serverCommand{Memory: "x"}, []*authenticatedWorker{nil, g})
		},
	} {
		own, other := net.Pipe() // without a buffer: nobody receives at the other end
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Millisecond, errors.New("the time is over"))
		err := send(ctx, &authenticatedWorker{jsonConn: newJSONConn(own), workerClaim: workerClaim{Rank: 1}})
		wantError(t, err, "send command to rank 1: the time is over")
		cancel()
		_, _ = own.Close(), other.Close()
	}
}

// addressed is a connection from a given address.
type addressed struct {
	net.Conn
	from   string
	closed bool
}

func (a *addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.from), Port: 1} }
func (a *addressed) Close() error         { a.closed = true; return nil }

// TestPendingConnections checks which connection is closed at each limit.
func TestPendingConnections(t *testing.T) {
	h := &pendingConnections{limit: 4, perAddress: 2}
	var all []*addressed
	for i, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
		all = append(all, &addressed{from: from})
		h.add(all[i])
	}
	// The fourth closes the oldest of its address, and the sixth the oldest of all.
	for i, want := range []bool{true, true, false, false, false, false} {
		if all[i].closed != want {
			t.Errorf("connection %d: closed is %v, want %v", i, all[i].closed, want)
		}
	}
	for _, a := range all[2:] {
		h.remove(a)
	}
	if len(h.conns) != 0 {
		t.Errorf("%d connections are left", len(h.conns))
	}
	if h := newPendingConnections(1000); h.limit != 1000 || h.perAddress != 1000 {
		t.Errorf("limits of 1000 workers: %d and %d", h.limit, h.perAddress)
	}
}
