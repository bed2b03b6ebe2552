package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/process"
)

// DefaultTimeout is how long the ranks wait for each other to come.
const DefaultTimeout = time.Minute

// Options of Join.
type Options struct {
	// BuildID names the sources of the program; workers of another are refused.
	BuildID string
	// Timeout bounds the whole rendezvous; 0 is DefaultTimeout.
	Timeout time.Duration
	// Group holds the options of the group that comes out; equal on all ranks.
	Group collective.Options

	machine string // what machine says, unless a test knows better
}

// Join waits until all ranks are there and returns their group. A world of one
// needs no network. An error names the ranks that are missing, or the worker
// that does not fit and why; then every rank that was there gets it.
func Join(ctx context.Context, e Env, o Options) (collective.Group, error) {
	if e.World < 1 || e.Rank < 0 || e.Rank >= e.World {
		return nil, fmt.Errorf("join run: rank %d of %d: use ranks from 0 to one less than the world size", e.Rank, e.World)
	}
	if e.World == 1 {
		return collective.Single(), nil
	}
	if e.Token == "" {
		return nil, fmt.Errorf("join run as rank %d: no token: give all ranks the same %s", e.Rank, tokenVariable)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if err := validCollective(e.Collective); err != nil {
		return nil, fmt.Errorf("join run as rank %d: %w", e.Rank, err)
	}
	me := claim{Rank: e.Rank, World: e.World, BuildID: o.BuildID, Collective: e.Collective, Machine: o.machine, PID: os.Getpid()}
	if me.Machine == "" {
		me.Machine = machine()
	}
	me.Host, _ = os.Hostname() // only for messages
	var group collective.Group
	var err error
	if e.Rank == 0 {
		group, err = host(ctx, e, o, me)
	} else {
		group, err = visit(ctx, e, o, me)
	}
	if err != nil {
		return nil, fmt.Errorf("join run as rank %d of %d: %w", e.Rank, e.World, err)
	}
	return group, nil
}

// machine is equal on two workers exactly if they run on the same start of the
// same machine.
func machine() string {
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(id))
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// verdictTime is how much longer than rank 0 the others wait: it alone knows
// who is missing.
const verdictTime = 3 * time.Second

// visit is the way of the ranks other than 0.
func visit(ctx context.Context, e Env, o Options, me claim) (collective.Group, error) {
	w, err := call(ctx, e, o, me)
	if err != nil {
		return nil, err
	}
	// Rank 0 may have started just now, with all its time before it.
	ctx, cancel := process.WithTimeout(ctx, o.Timeout+verdictTime)
	defer cancel()
	defer w.closeOnEnd(ctx)()
	defer func() { _ = w.Close() }()
	ord, err := w.next(ctx, o)
	if err != nil {
		return nil, err
	}
	if ord.Network != "" {
		return visitRing(ctx, e, o, me, w, ord)
	}
	group, err := collective.OpenSharedMemory(ord.Memory, e.Rank, e.World, o.Group)
	if err != nil {
		return nil, w.complain(err)
	}
	if err = w.send(report{}); err != nil {
		err = fmt.Errorf("report to rank 0: %w", err)
	} else {
		_, err = w.next(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, nil
}

// next receives rank 0's next order.
func (w *wire) next(ctx context.Context, o Options) (order, error) {
	var ord order
	if err := w.receive(&ord); err != nil {
		return ord, fmt.Errorf("wait for the other ranks: %w", lost(ctx, o, err))
	}
	if ord.Error != "" {
		return ord, errors.New(ord.Error)
	}
	return ord, nil
}

// complain tells rank 0 why this rank cannot go on, and returns that.
func (w *wire) complain(err error) error {
	_ = w.send(report{Error: err.Error()}) // it may be gone itself
	return err
}

// lost says what the end of the connection to rank 0 means.
func lost(ctx context.Context, o Options, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("rank 0 said nothing for %v", o.Timeout+verdictTime)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errForeign):
		return err
	}
	return fmt.Errorf("rank 0 is gone (%w)", err)
}

// call connects to rank 0, which may start later than this rank, and proves
// itself.
func call(ctx context.Context, e Env, o Options, me claim) (*wire, error) {
	ctx, cancel := process.WithTimeout(ctx, o.Timeout)
	defer cancel()
	pause := 10 * time.Millisecond
	var last error
	for {
		w, err := connect(ctx, "tcp", e.Address(), e.Token, me)
		var r *refusal
		switch {
		case err == nil:
			return w, nil
		case errors.As(err, &r):
			return nil, fmt.Errorf("rank 0 at %s refused: %w", e.Address(), err)
		case errors.Is(err, errForeign):
			return nil, fmt.Errorf("%s: %w; choose another %s", e.Address(), err, portVariable)
		case ctx.Err() == nil || last == nil:
			last = err // else only the echo of ctx
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return nil, fmt.Errorf("rank 0 was not reached at %s within %v (%w); did it start, and are %s and %s the same everywhere?", e.Address(), o.Timeout, last, addrVariable, portVariable)
			}
			return nil, context.Cause(ctx)
		case <-time.After(pause):
			pause = min(2*pause, 250*time.Millisecond)
		}
	}
}

// connect dials, and proves both sides' knowledge of the token.
func connect(ctx context.Context, network, address, token string, me claim) (*wire, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := newWire(c)
	stop := w.closeOnEnd(ctx)
	defer stop()
	err = c.SetDeadline(time.Now().Add(handshakeTime))
	if err == nil {
		err = introduce(w, token, me)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, closed(c))
	}
	return w, nil
}

// closed closes c; that it was closed already is no error.
func closed(c net.Conn) error {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// listen opens rank 0's door at exactly the address that was given, so that
// 127.0.0.1 stays this machine's.
func listen(ctx context.Context, e Env) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.Address())
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d on %s is taken, perhaps by another run; choose another %s, or end what listens there: %w", e.MasterPort, e.MasterAddr, portVariable, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine; %s must be that of rank 0's: %w", e.MasterAddr, addrVariable, err)
	case err != nil:
		return nil, fmt.Errorf("listen at %s (%s, %s): %w", e.Address(), addrVariable, portVariable, err)
	}
	return l, nil
}
