package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
)

// joinMPI joins the group of an mpirun. It needs no token, because mpirun decides which processes
// join.
func joinMPI(ctx context.Context, e Env, o Options) (collective.Group, error) {
	if e.TLS {
		return nil, fmt.Errorf("TLS was asked for, but Lockstep does not control the connections of MPI: use another %s, or no TLS", collectiveVariable)
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	joining, cancel := process.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not all ranks joined within %v%s", o.Timeout, o.joinTimeoutAdvice()))
	defer cancel()
	o.Group.Algorithm = cmp.Or(o.Group.Algorithm, e.Algorithm)
	g, err := collective.JoinMPI(joining, o.Group)
	if err != nil {
		return nil, err
	}
	differing, err := countMismatchedRanks(joining, e, o, g)
	if err == nil && differing > 0 {
		err = fmt.Errorf("%d ranks have another build, rank or number of ranks than MPI's rank 0 and MPI state: start all workers from the same lockstep binary by one mpirun, and do not set %s and %s", differing, rankVariable, worldVariable)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// countMismatchedRanks returns the number of ranks that have another build than rank 0, or whose
// rank or world size in e differs from MPI's.
func countMismatchedRanks(ctx context.Context, e Env, o Options, g collective.Group) (int, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(o.BuildID)) // never fails
	own := float64(h.Sum32())
	build := device.Buffer{F64: []float64{own}}
	if err := g.Broadcast(ctx, build, 0); err != nil {
		return 0, err
	}
	differing := device.Buffer{F64: []float64{0}}
	if build.F64[0] != own || g.Rank() != e.Rank || g.Size() != e.World {
		differing.F64[0] = 1
	}
	err := g.AllReduce(ctx, differing)
	return int(differing.F64[0]), err
}
