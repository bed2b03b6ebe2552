package server

import (
	"context"
	"fmt"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/shard"
)

// Options describe the parameter servers.
type Options struct {
	Servers       int // number of servers, in the processes of the first ranks
	MaxStaleness  int // 0 with backup workers
	BackupWorkers int
}

// Async is one rank's part of a parameter server whose workers do not wait for each other in
// each step. The servers, and a coordinator in rank 0's process, run beside the workers from
// Begin until Finish.
//
// With MaxStaleness, every gradient is an update of its own, as in Downpour SGD (Dean et al.
// 2012, "Large Scale Distributed Deep Networks", NIPS), with a bound on its staleness. With
// BackupWorkers, an update uses the first gradients of each step (Chen et al. 2016,
// arXiv:1604.00981, section 3).
type Async struct {
	Heartbeat time.Duration // longest time until a server replies

	group   collective.Group
	servers int
	limit   int // the largest staleness; 0 with backup workers
	quorum  int // gradients per update

	buckets     []engine.BucketMemory // of the executable
	store       store                 // this rank's server; without values on a rank that has none
	coordinator *coordinator          // rank 0
	links       *links                // nil before the first Begin
	running     bool                  // between Begin and Finish
}

// NewAsync returns one rank's part of the exchange.
func NewAsync(group collective.Group, o Options) *Async {
	a := &Async{Heartbeat: Heartbeat, group: group, servers: o.Servers, limit: o.MaxStaleness, quorum: 1}
	if o.BackupWorkers > 0 {
		a.quorum = group.Size() - o.BackupWorkers
	}
	return a
}

// Start makes s, which must be started, the memory of this rank's server. The executable keeps
// the parameters that the worker has read.
func (a *Async) Start(s *shard.Shard) {
	a.buckets = s.Buckets
	s.Separate()
	a.store.shard, a.store.part = s, part{s.Buckets, a.servers, a.group.Rank()}
}

// part returns the part of the executable's parameters and gradients that a server has.
func (a *Async) part(server int) part { return part{a.buckets, a.servers, server} }

// Begin starts the servers before the first step of an epoch, whose update is u. All workers
// have then done the same number of steps, u.Step - 1. It does nothing if the servers run. The
// servers end when ctx ends.
func (a *Async) Begin(ctx context.Context, u optim.Update) error {
	if a.running {
		return nil
	}
	if a.servers > 1 && (u.ClipNorm != 0 || u.Rule == optim.RuleLARS || u.Rule == optim.RuleLAMB) {
		return fmt.Errorf("update parameters: optimizer %s with clip_norm %g needs norms over all servers, which do not update at the same time: use strategy.servers=1", u.Rule, u.ClipNorm)
	}
	n, rank := a.group.Size(), a.group.Rank()
	version := u.Step - 1
	if a.limit > 0 {
		version *= n // each gradient was an update
	}
	s := &a.store
	s.update, s.version, s.quorum, s.gathered = u, version, a.quorum, 0
	for _, name := range u.Slots() {
		s.shard.Slot(name) // all ranks have the same slots, so that they are collected in the same order
	}
	if rank == 0 {
		a.coordinator = newCoordinator(n, a.limit, a.quorum, version)
	}
	a.links = newLinks(ctx, a.group, a.servers, a.part)
	a.links.handle = a.handle
	a.links.start()
	a.running = true
	return nil
}

// handle answers a worker's request to this rank's server.
func (a *Async) handle(ctx context.Context, worker int, m message) (reply message, err error) {
	switch m.kind {
	case messageCheckout:
		version, ok := a.coordinator.checkout(ctx, a.Heartbeat, worker, int(m.a))
		return message{ok: ok, a: float64(version)}, nil
	case messageAdmit:
		update, staleness, ok := a.coordinator.admit(ctx, a.Heartbeat, worker, int(m.a))
		return message{ok: ok, a: float64(update), b: float64(staleness)}, nil
	case messageFinish:
		return message{ok: a.coordinator.finish(ctx, a.Heartbeat, worker)}, nil
	case messagePush:
		return message{ok: true}, a.store.push(ctx, int(m.a), m.b, m.payload)
	case messagePull:
		b := a.links.answers(worker)
		if !a.store.read(ctx, a.Heartbeat, int(m.a), b) {
			return message{}, nil
		}
		return message{ok: true, payload: b}, nil
	}
	return reply, fmt.Errorf("answer worker %d: unknown request %d", worker, m.kind)
}

// Read sets the executable's parameters to those of the servers, for an optimizer step. It
// returns true, and reads nothing, if the other workers have made the step's update already.
func (a *Async) Read(step int) (late bool, err error) {
	replies, err := a.links.ask([]int{0}, func(int) message { return message{kind: messageCheckout, a: float64(step)} })
	if err != nil {
		return false, fmt.Errorf("ask the parameter server for a version: %w", err)
	}
	version := replies[0].a
	if a.limit == 0 && int(version) >= step {
		return true, nil
	}
	replies, err = a.links.ask(a.links.allServers(), func(int) message { return message{kind: messagePull, a: version} })
	if err != nil {
		return false, fmt.Errorf("read parameters from the parameter server: %w", err)
	}
	for server, m := range replies {
		a.part(server).writeWeights(m.payload)
	}
	return false, nil
}

// Push sends the executable's gradients to the servers, and returns their staleness. It returns
// false, and sends nothing, if the gradients of this step are dropped.
func (a *Async) Push(u optim.Update) (staleness int, used bool, err error) {
	replies, err := a.links.ask([]int{0}, func(int) message { return message{kind: messageAdmit, a: float64(u.Step)} })
	if err != nil {
		return 0, false, fmt.Errorf("ask the parameter server for an update: %w", err)
	}
	update, staleness := int(replies[0].a), int(replies[0].b)
	if update == 0 {
		return staleness, false, nil
	}
	if _, err := a.links.ask(a.links.allServers(), func(server int) message {
		b := a.links.outgoing(server)
		a.part(server).readGradients(b)
		return message{kind: messagePush, a: float64(update), b: u.LearningRate, payload: b}
	}); err != nil {
		return staleness, false, fmt.Errorf("send gradients to the parameter server: %w", err)
	}
	return staleness, true, nil
}

// Finish waits until all workers have finished the epoch, and ends the servers. It returns
// false if they do not run.
func (a *Async) Finish() (ended bool, err error) {
	if !a.running {
		return false, nil
	}
	if err := a.links.finish(); err != nil {
		return false, fmt.Errorf("end the parameter servers: %w", err)
	}
	a.running = false
	return true, nil
}

// Broadcast copies the parameters of all servers to all executables, after Finish.
func (a *Async) Broadcast(ctx context.Context) error {
	for server := range a.servers {
		if err := a.broadcastFrom(ctx, server); err != nil {
			return fmt.Errorf("copy parameters of parameter server %d: %w", server, err)
		}
	}
	return nil
}

// broadcastFrom copies a server's parameters to all executables.
func (a *Async) broadcastFrom(ctx context.Context, server int) error {
	b := a.links.buffer(&a.links.peers[server].reply, server)
	if b.Len() == 0 {
		return nil
	}
	if a.group.Rank() == server {
		a.store.part.readWeights(b)
	}
	if a.group.Size() > 1 {
		if err := a.group.Broadcast(ctx, b, server); err != nil {
			return err
		}
	}
	a.part(server).writeWeights(b)
	return nil
}

// Close returns when all goroutines have ended. The context of Begin must be canceled.
func (a *Async) Close() {
	if a.running {
		a.links.receivers.Wait()
	}
}
