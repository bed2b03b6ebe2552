package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/process"
)

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = time.Minute

// Options configures Join.
type Options struct {
	// BuildID identifies the build of the program. Rank 0 refuses workers of another
	// build.
	BuildID string
	// Timeout is how long the ranks wait for each other to join; 0 means DefaultTimeout.
	Timeout time.Duration
	// Advice is appended to the error that ranks have not joined in time, such as the name of the
	// setting for Timeout. It may be empty.
	Advice string
	// Group configures the resulting group. It must be the same on all ranks.
	Group collective.Options

	replicas int    // ranks in each process, see JoinReplicas; 0: 1
	machine  string // in a test: replaces the result of machineID
}

// joinTimeoutAdvice returns the end of an error about ranks that have not joined in time.
func (o Options) joinTimeoutAdvice() string {
	if o.Advice == "" {
		return ""
	}
	return "; " + o.Advice
}

// Join waits until all ranks have joined and returns their group. With a world size of 1
// it uses no network. An error names the ranks that are missing, or the worker that was
// refused and the reason. Every rank that has joined gets this error.
func Join(ctx context.Context, e Env, o Options) (collective.Group, error) {
	if e.World < 1 || e.Rank < 0 || e.Rank >= e.World {
		return nil, fmt.Errorf("join run: invalid rank %d of %d: use ranks from 0 to one less than the world size", e.Rank, e.World)
	}
	if e.World == 1 {
		return collective.Single(), nil
	}
	if e.Collective == transportMPI {
		group, err := joinMPI(ctx, e, o)
		if err != nil {
			return nil, fmt.Errorf("join run as rank %d of %d: %w", e.Rank, e.World, err)
		}
		return group, nil
	}
	e = e.ResolveMaster(ctx)
	if e.Token == "" && !isLoopback(e.MasterAddr) {
		return nil, fmt.Errorf("join run as rank %d: no token: give all ranks the same %s", e.Rank, tokenVariable)
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if err := checkCollectiveName(e.Collective); err != nil {
		return nil, fmt.Errorf("join run as rank %d: %w", e.Rank, err)
	}
	if e.TLS {
		if e.Token == "" {
			return nil, fmt.Errorf("join run as rank %d: %s needs a secret: give all ranks the same %s", e.Rank, tlsVariable, tokenVariable)
		}
		var err error
		if e.certificate, err = newCertificate(); err != nil {
			return nil, fmt.Errorf("join run as rank %d: %w", e.Rank, err)
		}
	}
	o.Group.Algorithm = cmp.Or(o.Group.Algorithm, e.Algorithm)
	o.Group.RanksPerNode = cmp.Or(o.Group.RanksPerNode, e.LocalWorld)
	me := workerClaim{Rank: e.Rank, World: e.World, BuildID: o.BuildID, Collective: e.Collective, TLS: e.TLS, Algorithm: o.Group.Algorithm, Machine: o.machine, PID: os.Getpid(), Replicas: o.replicas}
	if me.Machine == "" {
		me.Machine = machineID()
	}
	me.Host, _ = os.Hostname() // used in messages only
	var group collective.Group
	var err error
	if e.Rank == 0 {
		group, err = serveRendezvous(ctx, e, o, me)
	} else {
		group, err = joinAsClient(ctx, e, o, me)
	}
	if err == nil {
		if err = collective.Tune(ctx, group); err != nil {
			err = errors.Join(err, group.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("join run as rank %d of %d: %w", e.Rank, e.World, err)
	}
	return group, nil
}

// machineID returns a text that identifies this boot of this machine. On systems without
// boot IDs it is the host name, or "unknown".
func machineID() string {
	if id := process.BootID(); id != "" {
		return id
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// extraWorkerTimeout is how much longer the other ranks wait than rank 0. Only rank 0
// knows which ranks are missing, and it sends the other ranks an error that names them.
const extraWorkerTimeout = 3 * time.Second

// joinAsClient runs on ranks other than 0: it connects to rank 0 and follows its commands.
func joinAsClient(ctx context.Context, e Env, o Options, me workerClaim) (collective.Group, error) {
	w, err := connectToServer(ctx, e, o, me)
	if err != nil {
		return nil, err
	}
	// Rank 0 may have started only now, so its time-out may be just beginning.
	ctx, cancel := process.WithTimeout(ctx, o.Timeout+extraWorkerTimeout)
	defer cancel()
	defer w.closeWhenDone(ctx)()
	defer func() { _ = w.Close() }()
	cmd, err := w.receiveCommand(ctx, o)
	if err != nil {
		return nil, err
	}
	o.Group.RanksPerNode = cmd.RanksPerNode
	if cmd.Network != "" {
		return joinRing(ctx, e, o, me, w, cmd)
	}
	group, err := collective.OpenSharedMemory(cmd.Memory, e.Rank, e.World, o.Group)
	if err != nil {
		return nil, w.reportError(err)
	}
	if err = w.send(workerReport{}); err != nil {
		err = fmt.Errorf("send report to rank 0: %w", err)
	} else {
		_, err = w.receiveCommand(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, nil
}

// receiveCommand waits for a command of rank 0, or returns the error that it contains.
func (w *jsonConn) receiveCommand(ctx context.Context, o Options) (serverCommand, error) {
	var cmd serverCommand
	if err := w.receive(&cmd); err != nil {
		return cmd, fmt.Errorf("wait for the other ranks: %w", lostServerError(ctx, o, err))
	}
	if cmd.Error != "" {
		return cmd, errors.New(cmd.Error)
	}
	return cmd, nil
}

func (w *jsonConn) reportError(err error) error {
	_ = w.send(workerReport{Error: err.Error()}) // rank 0 may be gone
	return err
}

// lostServerError explains err, the error of a receive from rank 0.
func lostServerError(ctx context.Context, o Options, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("no message from rank 0 within %v", o.Timeout+extraWorkerTimeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errForeignProtocol):
		return err
	}
	return fmt.Errorf("rank 0 is gone (%w)", err)
}

// connectToServer connects to rank 0 and authenticates. It tries again until the time-out,
// because rank 0 may start later.
func connectToServer(ctx context.Context, e Env, o Options, me workerClaim) (*jsonConn, error) {
	ctx, cancel := process.WithTimeout(ctx, o.Timeout)
	defer cancel()
	w, err := connectRepeatedly(ctx, "tcp", e.Address(), e.Token, me, func(error) bool { return true })
	var r *refusalError
	switch {
	case err == nil:
		return w, nil
	case errors.As(err, &r):
		return nil, fmt.Errorf("rank 0 at %s refused: %w", e.Address(), err)
	case errors.Is(err, errForeignProtocol):
		return nil, fmt.Errorf("%s: %w; choose another %s", e.Address(), err, portVariable)
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return nil, fmt.Errorf("rank 0 was not reached at %s within %v (%w): check that it has started, and that all ranks have the same %s and %s%s", e.Address(), o.Timeout, err, addrVariable, portVariable, o.joinTimeoutAdvice())
	}
	return nil, context.Cause(ctx)
}

// connectRepeatedly calls connectAndAuthenticate until it succeeds. It stops, and returns the last
// error, if the other end refuses this worker or does not use the protocol, if again returns false
// for an error, or if ctx has ended.
func connectRepeatedly(ctx context.Context, network, address, token string, me workerClaim, again func(error) bool) (*jsonConn, error) {
	pause := 10 * time.Millisecond
	var last error
	for {
		w, err := connectAndAuthenticate(ctx, network, address, token, me)
		var r *refusalError
		if err == nil || errors.As(err, &r) || errors.Is(err, errForeignProtocol) {
			return w, err
		}
		if ctx.Err() == nil || last == nil {
			last = err // otherwise err only reports the end of ctx
		}
		if !again(err) {
			return nil, last
		}
		select {
		case <-ctx.Done():
			return nil, last
		case <-time.After(pause):
			pause = min(2*pause, 250*time.Millisecond)
		}
	}
}

// connectAndAuthenticate connects to address. Both processes then prove to each other that they
// know the token.
func connectAndAuthenticate(ctx context.Context, network, address, token string, me workerClaim) (*jsonConn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := newJSONConn(c)
	stop := w.closeWhenDone(ctx)
	defer stop()
	err = c.SetDeadline(time.Now().Add(handshakeTimeout))
	if err == nil {
		err = clientHandshake(w, token, me)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, closeConnection(c))
	}
	return w, nil
}

// closeConnection returns nil if c is already closed.
func closeConnection(c net.Conn) error {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// listenForWorkers listens on rank 0's address only. It must not listen on all interfaces, because
// 127.0.0.1 must not be reachable from outside.
func listenForWorkers(ctx context.Context, e Env) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.Address())
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d on %s is in use, perhaps by another run; choose another %s, or end the program that listens there: %w", e.MasterPort, e.MasterAddr, portVariable, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine; %s must be the address of rank 0's machine: %w", e.MasterAddr, addrVariable, err)
	case err != nil:
		return nil, fmt.Errorf("listen at %s (%s, %s): %w", e.Address(), addrVariable, portVariable, err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); e.Token == "" && (!ok || !a.IP.IsLoopback()) { // "localhost" may be anything
		return nil, errors.Join(fmt.Errorf("listen at %s: %v is not a loopback address: set %s on all ranks to allow other addresses", e.Address(), l.Addr(), tokenVariable), l.Close())
	}
	return l, nil
}
