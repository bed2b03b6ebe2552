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

// Async is one rank's part of a parameter server whose workers do not wait for each other in
// each step. The servers, and a coordinator in rank 0's process, run beside the workers from
// Begin until Finish.
//
// Every gradient is an update of its own, as in Downpour SGD (Dean et al. 2012, "Large Scale
// Distributed Deep Networks", NIPS), with a bound on its staleness.
type Async struct {
	Heartbeat time.Duration // longest time until a server replies

	group   collective.Group
	servers int
	limit   int // the largest staleness

	buckets     []engine.BucketMemory // of the executable
	store       store                 // this rank's server; without values on a rank that has none
	coordinator *coordinator          // rank 0
	links       *links                // nil before the first Begin
	running     bool                  // between Begin and Finish
}

// NewAsync returns one rank's part of the exchange with servers in the processes of the first ranks.
// maxStaleness is at least 1.
func NewAsync(group collective.Group, servers, maxStaleness int) *Async {
	return &Async{Heartbeat: Heartbeat, group: group, servers: servers, limit: maxStaleness}
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
	version := (u.Step - 1) * n // each gradient was an update
	s := &a.store
	s.update, s.version = u, version
	for _, name := range u.Slots() {
		s.shard.Slot(name) // on all ranks, so that slots are collected in the same order
	}
	if rank == 0 {
		a.coordinator = newCoordinator(n, a.limit, version)
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
		version, ok := a.coordinator.checkout(ctx, a.Heartbeat, worker)
		return message{ok: ok, a: float64(version)}, nil
	case messageAdmit:
		update, staleness, ok := a.coordinator.admit(ctx, a.Heartbeat, worker)
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

// Read sets the executable's parameters to those of the servers, for an optimizer step.
func (a *Async) Read() error {
	replies, err := a.links.ask([]int{0}, func(int) message { return message{kind: messageCheckout} })
	if err != nil {
		return fmt.Errorf("ask the parameter server for a version: %w", err)
	}
	version := replies[0].a
	replies, err = a.links.ask(a.links.allServers(), func(int) message { return message{kind: messagePull, a: version} })
	if err != nil {
		return fmt.Errorf("read parameters from the parameter server: %w", err)
	}
	for server, m := range replies {
		a.part(server).writeWeights(m.payload)
	}
	return nil
}

// Push sends the executable's gradients to the servers, and returns their staleness.
func (a *Async) Push(u optim.Update) (staleness int, err error) {
	replies, err := a.links.ask([]int{0}, func(int) message { return message{kind: messageAdmit} })
	if err != nil {
		return 0, fmt.Errorf("ask the parameter server for an update: %w", err)
	}
	update, staleness := int(replies[0].a), int(replies[0].b)
	if _, err := a.links.ask(a.links.allServers(), func(server int) message {
		b := a.links.outgoing(server)
		a.part(server).readGradients(b)
		return message{kind: messagePush, a: float64(update), b: u.LearningRate, payload: b}
	}); err != nil {
		return staleness, fmt.Errorf("send gradients to the parameter server: %w", err)
	}
	return staleness, nil
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
