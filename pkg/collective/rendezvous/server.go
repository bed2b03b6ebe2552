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
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
)

// authenticatedWorker is the connection of a worker that has proved that it knows the token.
type authenticatedWorker struct {
	*jsonConn
	workerClaim
	answer handshakeReply // proves to the worker that this rank knows the token too
}

// serveRendezvous runs the rendezvous on rank 0: it listens, waits for all ranks, and creates the
// shared memory or the ring with them.
func serveRendezvous(ctx context.Context, e Env, o Options, me workerClaim) (group collective.Group, err error) {
	ctx, cancel := process.WithTimeout(ctx, o.Timeout)
	defer cancel()
	l, err := listenForWorkers(ctx, e)
	if err != nil {
		return nil, err
	}
	ranks := make([]*authenticatedWorker, e.World)
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), sendErrorsTimeout)
		defer cancel()
		for _, g := range ranks {
			if g == nil {
				continue
			}
			if err != nil {
				_ = g.sendCommand(ending, serverCommand{Error: "rank 0: " + err.Error()}) // the rank may be gone
			}
			_ = g.Close()
		}
	}()
	if err := acceptWorkers(ctx, l, e, o, me, ranks); err != nil {
		return nil, err
	}
	network, err := chooseTransport(me, ranks)
	if err != nil {
		return nil, err
	}
	if network != transportShared {
		return serveRing(ctx, e, o, me, network, ranks)
	}
	return createSharedMemoryGroup(ctx, e, o, ranks)
}

// sendErrorsTimeout limits how long rank 0 tries to send its error to the other ranks.
const sendErrorsTimeout = 2 * time.Second

// acceptWorkers accepts workers from l until ranks[1:] is complete, and closes l. It
// returns an error if a worker that knows the token does not belong to this run, or if ctx
// ends first.
func acceptWorkers(ctx context.Context, l net.Listener, e Env, o Options, me workerClaim, ranks []*authenticatedWorker) error {
	accepting, stop := context.WithCancel(ctx)
	var connections sync.WaitGroup
	arrivals := make(chan *authenticatedWorker)
	refused := make(chan string)
	connections.Go(func() { acceptConnections(accepting, l, e, &connections, arrivals, refused) })
	defer connections.Wait()
	defer stop()
	defer context.AfterFunc(accepting, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	var refusals []string
	for have := 1; have < e.World; {
		select {
		case <-ctx.Done():
			return missingRanksError(ctx, o, ranks, refusals)
		case s := <-refused:
			if len(refusals) < maxRefusals { // enough for an error
				refusals = append(refusals, s)
			}
		case g := <-arrivals:
			if err := checkWorkerClaim(g, me, ranks); err != nil {
				_ = g.send(handshakeReply{Error: err.Error()})
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

const maxRefusals = 8

// acceptConnections accepts connections from l until ctx ends. It authenticates each client
// in a separate goroutine, so that a client that sends nothing does not delay the others. It
// sends workers that know the token to the channel arrivals, and the reasons for refusing
// other clients to the channel refused. When Accept fails, for example because this process
// has too many open files, it tries again after a pause. The caller can wait for the
// goroutines with the WaitGroup connections.
func acceptConnections(ctx context.Context, l net.Listener, e Env, connections *sync.WaitGroup, arrivals chan<- *authenticatedWorker, refused chan<- string) {
	pending := newPendingConnections(e.World)
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
		pending.add(c)
		connections.Go(func() {
			defer pending.remove(c)
			g := &authenticatedWorker{jsonConn: newJSONConn(c)}
			g.certificate = e.certificate
			stop := g.closeWhenDone(ctx)
			defer stop()
			err := c.SetDeadline(time.Now().Add(handshakeTimeout))
			if err == nil {
				g.workerClaim, g.answer, err = serverHandshake(g.jsonConn, e.Token)
			}
			if err == nil {
				err = c.SetDeadline(time.Time{})
			}
			if err == nil {
				stop() // from here on the receiver of arrivals closes the connection
				pending.remove(c)
				select {
				case arrivals <- g:
					return
				case <-ctx.Done():
				}
			}
			_ = c.Close()
			var r *refusalError
			if errors.As(err, &r) {
				select {
				case refused <- fmt.Sprintf("a worker from %s was refused: %v", c.RemoteAddr(), r):
				case <-ctx.Done():
				}
			}
		})
	}
}

// Lower bounds for the limits of pendingConnections. A limit is the number of ranks if that is
// larger.
const (
	minConnectionsPerAddress = 32
	minConnections           = 256
)

// pendingConnections contains the connections that have not authenticated yet, and limits
// how many there may be, in total and from each address. At a limit it closes the oldest one.
// A worker authenticates within milliseconds, so the oldest connection probably does not
// belong to a worker; if it does, the worker connects again.
type pendingConnections struct {
	limit, perAddress int

	mu    sync.Mutex
	conns []net.Conn // oldest first
}

func newPendingConnections(world int) *pendingConnections {
	return &pendingConnections{limit: max(minConnections, world), perAddress: max(minConnectionsPerAddress, world)}
}

func remoteAddress(c net.Conn) string {
	text := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}

// add adds c. If there are then too many connections from the address of c, or in total, it closes
// the oldest of these.
func (h *pendingConnections) add(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	address := remoteAddress(c)
	h.conns = append(h.conns, c)
	same, oldest := 0, -1 // connections from the address, and the index of the oldest
	for i, o := range h.conns {
		if remoteAddress(o) == address {
			if same++; oldest < 0 {
				oldest = i
			}
		}
	}
	switch {
	case same > h.perAddress:
	case len(h.conns) > h.limit:
		oldest = 0
	default:
		return
	}
	_ = h.conns[oldest].Close() // this ends its goroutine
	h.conns = slices.Delete(h.conns, oldest, oldest+1)
}

// remove is called when c has authenticated or ended.
func (h *pendingConnections) remove(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = slices.DeleteFunc(h.conns, func(o net.Conn) bool { return o == c })
}

// checkWorkerClaim returns an error if a worker's claim does not match this run.
func checkWorkerClaim(g *authenticatedWorker, me workerClaim, ranks []*authenticatedWorker) error {
	name := fmt.Sprintf("rank %d (process %d on %s)", g.Rank, g.PID, g.Host)
	switch {
	case g.World != me.World:
		return fmt.Errorf("%s has %s %d, rank 0 has %d: set the same value on all workers", name, worldVariable, g.World, me.World)
	case g.Rank < 1 || g.Rank >= me.World:
		return fmt.Errorf("%s: invalid rank: want 1 to %d", name, me.World-1)
	case g.Link != "":
		return fmt.Errorf("%s: invalid connection: it is for another rank of a ring, not for joining the run", name)
	case ranks[g.Rank] != nil:
		return fmt.Errorf("%s: process %d on %s already has rank %d: set a different %s for each worker", name, ranks[g.Rank].PID, ranks[g.Rank].Host, g.Rank, rankVariable)
	case g.BuildID != me.BuildID:
		return fmt.Errorf("%s runs build %q, rank 0 runs build %q: start all workers from the same lockstep binary", name, g.BuildID, me.BuildID)
	case max(1, g.Replicas) != max(1, me.Replicas):
		return fmt.Errorf("%s has %s in its process, rank 0 has %s: give all processes the same strategy and the same strategy.replicas", name, english.FormatCount(max(1, g.Replicas), "replica"), english.FormatCount(max(1, me.Replicas), "replica"))
	case g.Algorithm != me.Algorithm:
		return fmt.Errorf("%s has %s %q, rank 0 has %q: set the same value on all workers", name, algorithmVariable, g.Algorithm, me.Algorithm)
	case g.Collective != me.Collective:
		return fmt.Errorf("%s has %s %q, rank 0 has %q: set the same value on all workers", name, collectiveVariable, g.Collective, me.Collective)
	}
	return nil
}

// missingRanksError returns the error for a rendezvous whose ctx has ended. After a
// time-out, the error lists the ranks that did not join and the refused connections.
func missingRanksError(ctx context.Context, o Options, ranks []*authenticatedWorker, refusals []string) error {
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
	if len(refusals) == 0 { // otherwise a longer wait does not help
		text += o.joinTimeoutAdvice()
	}
	return fmt.Errorf("not all of %d ranks joined within %v: missing %s", len(ranks), o.Timeout, text)
}

func createSharedMemoryGroup(ctx context.Context, e Env, o Options, ranks []*authenticatedWorker) (collective.Group, error) {
	group, err := collective.CreateSharedMemory(e.World, o.Group)
	if err != nil {
		return nil, err
	}
	err = mapMemoryOnRanks(ctx, serverCommand{Memory: group.Path(), RanksPerNode: o.Group.RanksPerNode}, ranks)
	// After Unlink, no file is left on disk, however the ranks end.
	if err = errors.Join(err, group.Unlink()); err == nil {
		err = sendStartCommand(ctx, ranks)
	}
	if err != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, nil
}

// mapMemoryOnRanks sends cmd, with a path, and waits until each rank has mapped the file.
func mapMemoryOnRanks(ctx context.Context, cmd serverCommand, ranks []*authenticatedWorker) error {
	for _, g := range ranks[1:] {
		if err := g.sendCommand(ctx, cmd); err != nil {
			return err
		}
	}
	for _, g := range ranks[1:] {
		if _, err := g.receiveReport(ctx, "map the shared memory"); err != nil {
			return err
		}
	}
	return nil
}

// receiveReport waits for the next report of the rank. It returns an error if the report contains
// one, if the rank is gone, or if ctx ends first. what describes, for the error, what the rank was
// told to do.
func (g *authenticatedWorker) receiveReport(ctx context.Context, what string) (workerReport, error) {
	// The end of ctx ends only the read and keeps the connection open: rank 0 still sends
	// the reason to the rank.
	defer context.AfterFunc(ctx, func() { _ = g.SetReadDeadline(time.Now()) })()
	var rep workerReport
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

// sendCommand sends cmd to the rank. It returns an error if the rank does not receive before ctx
// ends.
func (g *authenticatedWorker) sendCommand(ctx context.Context, cmd serverCommand) error {
	// The end of ctx ends only the write, as in receiveReport.
	defer context.AfterFunc(ctx, func() { _ = g.dataConn().SetWriteDeadline(time.Now()) })()
	err := g.send(cmd)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("send command to rank %d: %w", g.Rank, err)
	}
	return nil
}

func sendStartCommand(ctx context.Context, ranks []*authenticatedWorker) error {
	for _, g := range ranks[1:] {
		if err := g.sendCommand(ctx, serverCommand{}); err != nil {
			return err
		}
	}
	return nil
}
