package collective

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"lockstep/pkg/internal/device"
)

// nodeGroup is a Group of ranks on several nodes, each of which has the same number of
// consecutive ranks. It consists of two groups: inner connects the ranks of one node, and
// rail connects the ranks of all nodes that have the same local rank. An all-reduce has
// three steps, of which only the second leaves the node:
//
//  1. A reduce-scatter through inner. Each rank then has its share of the node's sum.
//  2. An all-reduce of this share through rail.
//  3. An all-gather of the shares through inner.
//
// Each share is summed once on each node and once across nodes, in an order that does not
// depend on timing. So all ranks get the same bits in every run.
type nodeGroup struct {
	inner, rail Group

	mu     sync.Mutex
	broken error // the first error, or nil
}

// JoinNodes returns the groups of the ranks of this process, by local rank. The process is one of
// several nodes that all have the same number of ranks. inner contains, by local rank, groups that
// connect the ranks of this process. rails contains, also by local rank, groups that connect each
// of these ranks with the ranks on other nodes that have the same local rank. The rank in a group
// of rails is the number of the node.
//
// The new groups own inner and rails. Their Send and Recv support ranks of the same node, and ranks
// with the same local rank.
func JoinNodes(inner, rails []Group) []Group {
	groups := make([]Group, len(inner))
	for local := range inner {
		groups[local] = &nodeGroup{inner: inner[local], rail: rails[local]}
	}
	return groups
}

// InProcessNodes returns one group per rank for n ranks that are goroutines of this process,
// as if they were on nodes with perNode ranks each. n must be a multiple of perNode.
func InProcessNodes(n, perNode int) []Group {
	if perNode <= 1 || perNode >= n {
		return InProcess(n)
	}
	nodes := n / perNode
	rails := make([][]Group, perNode) // by local rank, then by node
	for local := range rails {
		rails[local] = InProcess(nodes)
	}
	var groups []Group
	for node := range nodes {
		ofNode := make([]Group, perNode)
		for local := range ofNode {
			ofNode[local] = rails[local][node]
		}
		groups = append(groups, JoinNodes(InProcess(perNode), ofNode)...)
	}
	return groups
}

func (g *nodeGroup) Rank() int { return g.rail.Rank()*g.inner.Size() + g.inner.Rank() }
func (g *nodeGroup) Size() int { return g.rail.Size() * g.inner.Size() }

func (g *nodeGroup) Name() string {
	return fmt.Sprintf("%s inside each of %d nodes, %s between them", g.inner.Name(), g.rail.Size(), g.rail.Name())
}

func (g *nodeGroup) locate(rank int) (node, local int) {
	return rank / g.inner.Size(), rank % g.inner.Size()
}

func (g *nodeGroup) AllReduce(ctx context.Context, b device.Buffer) error {
	if err := g.runWithinNode(func() error { return g.inner.ReduceScatter(ctx, b) }); err != nil {
		return err
	}
	if lo, hi := Shard(b.Len(), g.inner.Size(), g.inner.Rank()); lo < hi {
		if err := g.runAcrossNodes(func() error { return g.rail.AllReduce(ctx, b.Slice(lo, hi)) }); err != nil {
			return err
		}
	}
	return g.runWithinNode(func() error { return g.inner.AllGather(ctx, b) })
}

// ReduceScatter does an all-reduce. This moves more data than necessary within a node, but no more
// than necessary between nodes for this rank's shard.
func (g *nodeGroup) ReduceScatter(ctx context.Context, b device.Buffer) error {
	return g.AllReduce(ctx, b)
}

// AllGather exchanges the shards in blocks of equal length, as their lengths may differ.
func (g *nodeGroup) AllGather(ctx context.Context, b device.Buffer) error {
	nodes, size := g.rail.Size(), g.Size()
	block := (b.Len() + size - 1) / size
	shard := func(rank int) device.Buffer {
		lo, hi := Shard(b.Len(), size, rank)
		return b.Slice(lo, hi)
	}
	all := newBufferLike(b, block*size) // by local rank, then by node
	slot := func(node, local int) device.Buffer {
		lo := (local*nodes + node) * block
		return all.Slice(lo, lo+block)
	}
	copyBuffer(slot(g.rail.Rank(), g.inner.Rank()), shard(g.Rank()))
	own := g.inner.Rank() * nodes * block
	if err := g.runAcrossNodes(func() error { return g.rail.AllGather(ctx, all.Slice(own, own+nodes*block)) }); err != nil {
		return err
	}
	if err := g.runWithinNode(func() error { return g.inner.AllGather(ctx, all) }); err != nil {
		return err
	}
	for rank := range size {
		node, local := g.locate(rank)
		to := shard(rank)
		copyBuffer(to, slot(node, local).Slice(0, to.Len()))
	}
	return nil
}

// Broadcast lets the ranks with root's local rank receive b from root's node and pass it on
// inside their nodes.
func (g *nodeGroup) Broadcast(ctx context.Context, b device.Buffer, root int) error {
	if root < 0 || root >= g.Size() {
		return fmt.Errorf("broadcast: invalid root %d: use 0 to %d", root, g.Size()-1)
	}
	node, local := g.locate(root)
	if g.inner.Rank() == local {
		if err := g.runAcrossNodes(func() error { return g.rail.Broadcast(ctx, b, node) }); err != nil {
			return err
		}
	}
	return g.runWithinNode(func() error { return g.inner.Broadcast(ctx, b, local) })
}

// Barrier is a barrier within each node and then one across nodes. A rank that leaves the
// second one knows that all ranks of each node have entered the first one.
func (g *nodeGroup) Barrier(ctx context.Context) error {
	if err := g.runWithinNode(func() error { return g.inner.Barrier(ctx) }); err != nil {
		return err
	}
	return g.runAcrossNodes(func() error { return g.rail.Barrier(ctx) })
}

func (g *nodeGroup) Send(ctx context.Context, b device.Buffer, to int) error {
	group, peer, run, err := g.connectionTo(to)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return run(func() error { return group.Send(ctx, b, peer) })
}

func (g *nodeGroup) Recv(ctx context.Context, b device.Buffer, from int) error {
	group, peer, run, err := g.connectionTo(from)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	return run(func() error { return group.Recv(ctx, b, peer) })
}

// connectionTo returns how to send to or receive from another rank: the group that connects the two
// ranks, the other rank's number in that group (peer), and the method that runs operations of the
// group. The two ranks must have the same node or the same local rank.
func (g *nodeGroup) connectionTo(rank int) (group Group, peer int, run func(func() error) error, err error) {
	node, local := g.locate(rank)
	switch {
	case rank < 0 || rank >= g.Size() || rank == g.Rank():
		return nil, 0, nil, fmt.Errorf("invalid rank %d: use the rank of another worker, from 0 to %d, but not this worker's rank %d", rank, g.Size()-1, g.Rank())
	case node == g.rail.Rank():
		return g.inner, local, g.runWithinNode, nil
	case local == g.inner.Rank():
		return g.rail, node, g.runAcrossNodes, nil
	}
	return nil, 0, nil, fmt.Errorf("ranks %d and %d have no connection: a message can reach ranks of the same node, and ranks with the same local rank on other nodes", g.Rank(), rank)
}

func (g *nodeGroup) Close() error { return errors.Join(g.inner.Close(), g.rail.Close()) }

func (g *nodeGroup) runWithinNode(operation func() error) error {
	return g.runInGroup(operation, "inside the node", func(local int) int { return g.rail.Rank()*g.inner.Size() + local })
}

func (g *nodeGroup) runAcrossNodes(operation func() error) error {
	return g.runInGroup(operation, "between nodes", func(node int) int { return node*g.inner.Size() + g.inner.Rank() })
}

// runInGroup runs an operation of one of the two groups. After an error it leaves both, so that no
// rank waits for this one, and refuses further operations. rankOf converts a rank of that
// group to a rank in g; where describes the group in errors.
func (g *nodeGroup) runInGroup(operation func() error, where string, rankOf func(int) int) error {
	g.mu.Lock()
	err := g.broken
	g.mu.Unlock()
	if err != nil {
		return fmt.Errorf("the group stopped after an earlier error: %w", err)
	}
	if err = operation(); err == nil {
		return nil
	}
	err = translateRanks(err, where, rankOf)
	g.mu.Lock()
	if g.broken == nil {
		g.broken = err
	}
	g.mu.Unlock()
	_ = g.Close() // err is the error to report; a running Send or Recv gets its own
	return err
}

// Patterns in this package's errors: a rank, and the last operation of a rank. That operation is
// counted within one of the two groups of a nodeGroup.
var (
	rankInError     = regexp.MustCompile(`\brank (\d+)\b`)
	lastSeenInError = regexp.MustCompile(`\(last seen in ([^()]*)\)`)
)

// translatedError is an error whose text has the ranks of another group.
type translatedError struct {
	text string
	err  error
}

func (e *translatedError) Error() string { return e.text }
func (e *translatedError) Unwrap() error { return e.err }

// translateRanks returns an error in which each rank in the text of err is replaced by rankOf of
// that rank. where describes the group to which the ranks in err belong.
func translateRanks(err error, where string, rankOf func(int) int) error {
	text := rankInError.ReplaceAllStringFunc(err.Error(), func(s string) string {
		n, perr := strconv.Atoi(s[len("rank "):])
		if perr != nil {
			return s
		}
		return fmt.Sprint("rank ", rankOf(n))
	})
	return &translatedError{lastSeenInError.ReplaceAllString(text, "(last seen in $1 "+where+")"), err}
}

func newBufferLike(b device.Buffer, n int) device.Buffer {
	if b.F64 != nil {
		return device.Buffer{F64: make([]float64, n)}
	}
	return device.Buffer{F32: make([]float32, n)}
}

func copyBuffer(to, from device.Buffer) {
	copy(to.F64, from.F64)
	copy(to.F32, from.F32)
}
