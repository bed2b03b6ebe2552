package collective

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/device"
)

// nodeSum returns a function that adds as nodes of perNode ranks do: first the ranks of each
// node, then the nodes.
func nodeSum(perNode int) func(bs []device.Buffer, i int) float64 {
	return func(bs []device.Buffer, i int) float64 {
		sums := buffers(bs[0].F64 != nil, make([][]float64, len(bs)/perNode))
		for node := range sums {
			sums[node] = buffers(bs[0].F64 != nil, [][]float64{{naive(bs[node*perNode:][:perNode], i)}})[0]
		}
		return naive(sums, 0)
	}
}

// TestNodesEqualNaiveOperations compares random operations of ranks on nodes with naive ones.
func TestNodesEqualNaiveOperations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, perNode := rapid.IntRange(1, 3).Draw(t, "nodes"), rapid.IntRange(1, 3).Draw(t, "ranks per node")
		groups := InProcessNodes(nodes*perNode, perNode)
		for rank, g := range groups {
			if g.Rank() != rank || g.Size() != nodes*perNode {
				t.Fatalf("rank %d of %d, want %d of %d", g.Rank(), g.Size(), rank, nodes*perNode)
			}
		}
		for range rapid.IntRange(1, 4).Draw(t, "operations") {
			checkOperation(t, groups, nodeSum(perNode))
		}
		if err := closeAll(groups); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNodeBarrier: no rank leaves the barrier before all have entered it.
func TestNodeBarrier(t *testing.T) {
	groups := InProcessNodes(4, 2)
	entered := make(chan int, 4)
	left := make(chan int, 4)
	enter := func(rank int) error {
		entered <- rank
		err := groups[rank].Barrier(t.Context())
		left <- rank
		return err
	}
	errs := make(chan error, 4)
	for rank := range 3 {
		go func() { errs <- enter(rank) }()
	}
	for range 3 {
		<-entered
	}
	select {
	case rank := <-left:
		t.Errorf("rank %d left the barrier, which rank 3 has not entered", rank)
	case <-time.After(20 * time.Millisecond):
	}
	go func() { errs <- enter(3) }()
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if err := closeAll(groups); err != nil {
		t.Error(err)
	}
}

// TestNodeMessages: a message reaches ranks of the same node and ranks with the same local
// rank; there is no connection to others.
func TestNodeMessages(t *testing.T) {
	ctx := t.Context()
	groups := InProcessNodes(4, 2)
	for _, pair := range [][2]int{{0, 1}, {1, 0}, {0, 2}, {3, 1}, {3, 2}} {
		from, to := pair[0], pair[1]
		got := device.Buffer{F64: make([]float64, 3)}
		err := concurrently(
			func() error { return groups[from].Send(ctx, device.Buffer{F64: []float64{1, 2, float64(from)}}, to) },
			func() error { return groups[to].Recv(ctx, got, from) })
		if err != nil || got.F64[2] != float64(from) {
			t.Errorf("%d to %d: got %v, %v", from, to, got.F64, err)
		}
	}
	b := device.Buffer{F64: []float64{1}}
	wantError(t, groups[0].Send(ctx, b, 3), "send: ranks 0 and 3 have no connection: a message can reach ranks of the same node")
	wantError(t, groups[1].Recv(ctx, b, 2), "receive: ranks 1 and 2 have no connection")
	wantError(t, groups[0].Send(ctx, b, 0), "invalid rank 0: use the rank of another worker, from 0 to 3")
	wantError(t, groups[0].Recv(ctx, b, 4), "invalid rank 4")
	wantError(t, groups[0].Broadcast(ctx, b, 4), "invalid root 4: use 0 to 3")
	if err := closeAll(groups); err != nil {
		t.Error(err)
	}
}

// TestNodesNoticeARankThatLeft: all other ranks end with an error. Those that are connected to
// the rank name it by its rank in the run, and the group then refuses operations.
func TestNodesNoticeARankThatLeft(t *testing.T) {
	groups := InProcessNodes(4, 2)
	ctx := context.Background()
	b := func() device.Buffer { return device.Buffer{F64: make([]float64, 8)} }
	if err := together(groups, func(g Group) error { return g.AllReduce(ctx, b()) }); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 4)
	_ = together(groups, func(g Group) error {
		if g.Rank() == 3 {
			errs[3] = g.Close()
		} else {
			errs[g.Rank()] = g.AllReduce(ctx, b())
		}
		return nil
	})
	// Rank 2 is on the node of rank 3, and rank 1 has its local rank. An all-reduce exchanges
	// 2 operations inside a node and 1 between nodes.
	wantError(t, errs[2], "reduce-scatter 3: rank 3 has left the group (last seen in all-gather 2 inside the node)")
	wantError(t, errs[1], "all-reduce 2: rank 3 has left the group (last seen in all-reduce 1 between nodes)")
	wantError(t, errs[0], "has left the group") // rank 1 or rank 2, which left because of their errors
	if errs[3] != nil {
		t.Error(errs[3])
	}
	for _, g := range groups[:3] {
		if err := g.Barrier(ctx); err == nil || !strings.Contains(err.Error(), "the group stopped after an earlier error") {
			t.Errorf("rank %d goes on: %v", g.Rank(), err)
		}
	}
	if err := closeAll(groups); err != nil {
		t.Error(err)
	}
}

// TestNodesEndWithTheirContext checks that a canceled operation returns the error of its context.
func TestNodesEndWithTheirContext(t *testing.T) {
	groups := InProcessNodes(4, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := groups[1].Barrier(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was canceled", err)
	}
	if err := closeAll(groups); err != nil {
		t.Error(err)
	}
}

// TestNodeNames: the name has the transports inside and between nodes.
func TestNodeNames(t *testing.T) {
	if got, want := InProcessNodes(6, 2)[0].Name(), "in-process inside each of 3 nodes, in-process between them"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, perNode := range []int{0, 1, 6} { // one node, or one rank per node
		if got := InProcessNodes(6, perNode)[0].Name(); got != "in-process" {
			t.Errorf("%d ranks per node: %q", perNode, got)
		}
	}
}
