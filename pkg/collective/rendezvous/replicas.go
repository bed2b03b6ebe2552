package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"lockstep/pkg/collective"
)

// JoinReplicas joins a run whose processes have several ranks each, and returns the groups of this
// process's ranks, by local rank. e describes processes instead of ranks, so that e.World is the
// number of processes. All processes must call JoinReplicas with the same number of replicas, which
// is the number of ranks per process.
//
// The replicas of a process are connected through its memory. Each of them is also connected, by
// the transport in e, with the replicas of other processes that have the same local rank.
func JoinReplicas(ctx context.Context, e Env, o Options, replicas int) (groups []collective.Group, err error) {
	if replicas < 1 {
		return nil, fmt.Errorf("join run: got %d replicas per process: use at least 1", replicas)
	}
	o.replicas = replicas
	o.Group.Algorithm = cmp.Or(o.Group.Algorithm, e.Algorithm)
	inner := o.Group
	inner.RanksPerNode = 0 // they are on one node
	switch {
	case replicas == 1:
		g, err := Join(ctx, e, o)
		return []collective.Group{g}, err
	case e.World == 1:
		return collective.InProcessWith(replicas, inner), nil
	}
	if e.Collective == transportMPI {
		return nil, fmt.Errorf("join run: %s is %s, by which a process is one rank, but each process has %d replicas: use another transport, or one replica in each process", collectiveVariable, transportMPI, replicas)
	}
	inner.Algorithm = "" // the algorithm is that of the transport between processes
	var rails []collective.Group
	defer func() {
		if err != nil {
			for _, g := range rails {
				err = errors.Join(err, g.Close())
			}
		}
	}()
	for range replicas {
		g, err := Join(ctx, e, o)
		if err != nil {
			return nil, err
		}
		rails = append(rails, g)
		// After the barrier, rank 0 no longer listens for this group, but for the next one.
		if err := g.Barrier(ctx); err != nil {
			return nil, fmt.Errorf("join run as process %d of %d: %w", e.Rank, e.World, err)
		}
	}
	return collective.JoinNodes(collective.InProcessWith(replicas, inner), rails), nil
}
