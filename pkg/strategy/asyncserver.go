package strategy

import (
	"context"
	"fmt"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// asyncServer is a parameter server whose workers do not wait for each other in each step. The
// servers, and a coordinator in rank 0's process, run beside the workers from the first step
// of an epoch until Equalize.
//
// With max_staleness, every gradient is an update of its own, as in Downpour SGD (Dean et al.
// 2012, "Large Scale Distributed Deep Networks", NIPS), with a bound on its staleness. With
// backup_workers, an update uses the first gradients of each step (Chen et al. 2016,
// arXiv:1604.00981, section 3).
type asyncServer struct {
	*queue
	servers   int
	limit     int           // max_staleness; 0 with backup workers
	quorum    int           // gradients per update
	heartbeat time.Duration // longest time until a server replies

	buckets     []engine.BucketMemory // of the executable
	server      serverShard           // this rank's server; without values on a rank that has none
	coordinator *coordinator          // rank 0
	links       *serverLinks          // nil between two epochs
	late        bool                  // the current step's update was made without this worker
}

// newAsyncServer creates the strategy of one worker.
func newAsyncServer(ctx context.Context, c Config, group collective.Group) *asyncServer {
	a := &asyncServer{queue: newQueue(ctx, group, nil), servers: c.serverCount(), limit: c.MaxStaleness, quorum: 1, heartbeat: defaultHeartbeat}
	a.silent = true // workers are in different steps, so each normalizes its own batch
	if c.BackupWorkers > 0 {
		a.quorum = group.Size() - c.BackupWorkers
	}
	return a
}

// Start copies rank 0's parameters and running statistics to all ranks, and restores the
// servers' optimizer slots.
func (a *asyncServer) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	if err := startSharded(ctx, exe, a.group, &a.server.shards, ownedByServer(a.servers, a.group.Rank()), saved); err != nil {
		return err
	}
	a.buckets = a.server.shards.buckets
	a.server.shards.separate() // the executable keeps the parameters that the worker has read
	a.server.part = serverPart{a.server.shards.buckets, a.servers, a.group.Rank()}
	return nil
}

// part returns the part of the executable's parameters and gradients that a server has.
func (a *asyncServer) part(server int) serverPart { return serverPart{a.buckets, a.servers, server} }

// begin starts the servers before the first step of an epoch. All workers have then done the
// same number of steps, u.Step - 1.
func (a *asyncServer) begin(u optim.Update) error {
	if a.servers > 1 && (u.ClipNorm != 0 || u.Rule == optim.RuleLARS || u.Rule == optim.RuleLAMB) {
		return fmt.Errorf("update parameters: optimizer %s with clip_norm %g needs norms over all servers, which do not update at the same time: use strategy.servers=1", u.Rule, u.ClipNorm)
	}
	n, rank := a.group.Size(), a.group.Rank()
	version := u.Step - 1
	if a.limit > 0 {
		version *= n // each gradient was an update
	}
	s := &a.server
	s.update, s.version, s.quorum, s.gathered = u, version, a.quorum, 0
	for _, name := range u.Slots() {
		s.shards.slot(name) // all ranks have the same slots, so that State collects them in the same order
	}
	if rank == 0 {
		a.coordinator = newCoordinator(n, a.limit, a.quorum, version)
	}
	a.links = newServerLinks(a.ctx, a.group, a.servers, a.part)
	a.links.handle = a.handle
	a.links.start()
	return nil
}

// handle answers a worker's request to this rank's server.
func (a *asyncServer) handle(ctx context.Context, worker int, m serverMessage) (reply serverMessage, err error) {
	switch m.kind {
	case messageCheckout:
		version, ok := a.coordinator.checkout(ctx, a.heartbeat, worker, int(m.a))
		return serverMessage{ok: ok, a: float64(version)}, nil
	case messageAdmit:
		update, staleness, ok := a.coordinator.admit(ctx, a.heartbeat, worker, int(m.a))
		return serverMessage{ok: ok, a: float64(update), b: float64(staleness)}, nil
	case messageFinish:
		return serverMessage{ok: a.coordinator.finish(ctx, a.heartbeat, worker)}, nil
	case messagePush:
		return serverMessage{ok: true}, a.server.push(ctx, int(m.a), m.b, m.payload)
	case messagePull:
		b := a.links.answers(worker)
		if !a.server.read(ctx, a.heartbeat, int(m.a), b) {
			return serverMessage{}, nil
		}
		return serverMessage{ok: true, payload: b}, nil
	}
	return reply, fmt.Errorf("answer worker %d: unknown request %d", worker, m.kind)
}

// Step reads the servers' parameters, computes the gradients of one batch and, after the last
// batch of an optimizer step, sends them to the servers. It does nothing in a step whose update
// the other workers have made already.
func (a *asyncServer) Step(ctx context.Context, exe engine.Executable, s Step) (t engine.Timing, err error) {
	if a.links == nil {
		if err := a.begin(s.Update); err != nil {
			return t, err
		}
	}
	read := time.Duration(0)
	if s.Batch <= 1 {
		if read, err = a.measure(func() error { return a.read(s.Update.Step) }); err != nil {
			return t, err
		}
	}
	if !a.late {
		if t, err = a.run(ctx, exe, a.queue, s, nil); err != nil {
			return t, err
		}
	}
	t.Wait += read
	if !s.isLast() {
		return t, nil
	}
	sent, err := a.measure(func() error { return a.push(s.Update) })
	t.Wait += sent
	return t, err
}

// read sets the executable's parameters to those of the servers, for an optimizer step.
func (a *asyncServer) read(step int) error {
	replies, err := a.links.ask([]int{0}, func(int) serverMessage { return serverMessage{kind: messageCheckout, a: float64(step)} })
	if err != nil {
		return fmt.Errorf("ask the parameter server for a version: %w", err)
	}
	version := replies[0].a
	if a.late = a.limit == 0 && int(version) >= step; a.late {
		return nil
	}
	replies, err = a.links.ask(a.links.allServers(), func(int) serverMessage { return serverMessage{kind: messagePull, a: version} })
	if err != nil {
		return fmt.Errorf("read parameters from the parameter server: %w", err)
	}
	for server, m := range replies {
		a.part(server).writeWeights(m.payload)
	}
	return nil
}

// push sends the executable's gradients to the servers, unless the gradients of this step are
// dropped.
func (a *asyncServer) push(u optim.Update) error {
	update, staleness := 0, 0
	if !a.late {
		replies, err := a.links.ask([]int{0}, func(int) serverMessage { return serverMessage{kind: messageAdmit, a: float64(u.Step)} })
		if err != nil {
			return fmt.Errorf("ask the parameter server for an update: %w", err)
		}
		update, staleness = int(replies[0].a), int(replies[0].b)
	}
	if update > 0 {
		if _, err := a.links.ask(a.links.allServers(), func(server int) serverMessage {
			b := a.links.outgoing(server)
			a.part(server).readGradients(b)
			return serverMessage{kind: messagePush, a: float64(update), b: u.LearningRate, payload: b}
		}); err != nil {
			return fmt.Errorf("send gradients to the parameter server: %w", err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Staleness, a.stats.LeftOut = staleness, a.late
	if update == 0 {
		a.stats.Dropped++
		return nil
	}
	for _, b := range a.buckets {
		a.stats.Buckets++
		a.stats.Bytes += b.Gradients.Bytes()
	}
	return nil
}

// Equalize waits until all workers have finished the epoch, ends the servers, and copies their
// parameters to all workers.
func (a *asyncServer) Equalize(context.Context, engine.Executable) error {
	if a.links == nil {
		return nil
	}
	if err := a.links.finish(); err != nil {
		return fmt.Errorf("end the parameter servers: %w", err)
	}
	links := a.links
	a.links = nil
	return a.operate(0, func(ctx context.Context) error {
		for server := range a.servers {
			if err := a.copyFrom(ctx, server, links); err != nil {
				return fmt.Errorf("copy parameters of parameter server %d: %w", server, err)
			}
		}
		return nil
	})
}

// copyFrom copies a server's parameters to all executables.
func (a *asyncServer) copyFrom(ctx context.Context, server int, links *serverLinks) error {
	b := links.buffer(&links.peers[server].reply, server)
	if b.Len() == 0 {
		return nil
	}
	if a.group.Rank() == server {
		a.server.part.readWeights(b)
	}
	if a.group.Size() > 1 {
		if err := a.group.Broadcast(ctx, b, server); err != nil {
			return err
		}
	}
	a.part(server).writeWeights(b)
	return nil
}

// State returns the servers' optimizer slots on rank 0.
func (a *asyncServer) State(context.Context, engine.Executable) (map[string][]float64, error) {
	return a.collectState(&a.server.shards, func(ctx context.Context, b device.Buffer) error {
		return collectFromServers(ctx, a.group, b, a.servers)
	})
}

// OptimizerBytes returns the size of the optimizer's state on this rank, and of the state
// that a rank has with NameDDP.
func (a *asyncServer) OptimizerBytes(u optim.Update) (own, replicated int64) {
	return a.server.shards.optimizerBytes(u)
}

// Close ends the exchange and all goroutines. It does not close the group.
func (a *asyncServer) Close() error {
	err := a.queue.Close() // ends the context of the links
	if a.links != nil {
		a.links.receivers.Wait()
	}
	return err
}
