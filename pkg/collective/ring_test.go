package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/device"
)

// ringConnections connects n ranks: what rank i sends on To, rank i+1 receives on From, and two
// ranks have two more connections between them.
func ringConnections(network string, n int) ([]Connections, error) {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = "" // Linux gives the socket a name that needs no file
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	connect := func() (a, b net.Conn) {
		if err == nil {
			a, err = net.Dial(network, l.Addr().String())
		}
		if err == nil {
			b, err = l.Accept()
		}
		return a, b
	}
	all := make([]Connections, n)
	for i := range all {
		all[i].Messages, all[i].Scheduled = make([]net.Conn, n), make([]net.Conn, n)
	}
	for i := range all {
		all[i].To, all[(i+1)%n].From = connect()
		for k := range i {
			all[i].Messages[k], all[k].Messages[i] = connect()
			all[i].Scheduled[k], all[k].Scheduled[i] = connect()
		}
	}
	return all, err
}

// ring returns a function that creates a ring of n ranks in this process. If n is 1, it creates
// a group without a ring.
func ring(network string) func(n int, o Options) ([]Group, error) {
	return func(n int, o Options) ([]Group, error) {
		if n == 1 {
			return []Group{Single()}, nil
		}
		all, err := ringConnections(network, n)
		if err != nil {
			return nil, err
		}
		groups := make([]Group, n)
		for rank := range groups {
			if groups[rank], err = NewRing(network+" ring", rank, n, all[rank], o); err != nil {
				return nil, err
			}
		}
		return groups, nil
	}
}

var ringGroups = map[string]func(n int, o Options) ([]Group, error){
	"unix": ring("unix"),
	"tcp":  ring("tcp"),
}

// TestRingsEqualNaiveOperations is TestOperationsEqualNaiveOnes for rings. A ring adds the
// numbers of shard c in rank order, beginning with rank c+1.
func TestRingsEqualNaiveOperations(t *testing.T) {
	for name, make := range ringGroups {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.IntRange(1, 6).Draw(t, "ranks")
				chunk := rapid.SampledFrom([]int{1, 640, 4096, 1 << 20}).Draw(t, "chunk")
				groups, err := make(n, Options{ChunkBytes: chunk, Timeout: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				for range rapid.IntRange(1, 4).Draw(t, "operations") {
					checkOperation(t, groups, ringSum)
				}
				if err := closeAll(groups); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// ringSum returns the sum over ranks of element i, beginning with the rank after its owner.
func ringSum(bs []device.Buffer, i int) float64 {
	n := len(bs)
	first := owner(bs[0].Len(), n, i) + 1
	turned := make([]device.Buffer, n)
	for k := range bs {
		turned[k] = bs[(first+k)%n]
	}
	return naive(turned, i)
}

// TestRingOfManyPiecesInFlight sends far more than fits into socket buffers. All ranks would
// block if they did not receive while they send.
func TestRingOfManyPiecesInFlight(t *testing.T) {
	const n, length = 3, 4_000_000
	for name, make := range ringGroups {
		t.Run(name, func(t *testing.T) {
			groups, err := make(n, Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = together(groups, func(g Group) error {
				b := device.Buffer{F32: make32(length, float32(g.Rank()+1))}
				for range 2 {
					if err := g.AllReduce(context.Background(), b); err != nil {
						return err
					}
				}
				for i, v := range b.F32 { // 1 + 2 + 3, then three times that
					if v != 18 {
						return fmt.Errorf("rank %d, element %d is %v, want 18", g.Rank(), i, v)
					}
				}
				return nil
			})
			if err := errors.Join(err, closeAll(groups)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func make32(n int, v float32) []float32 {
	b := make([]float32, n)
	for i := range b {
		b[i] = v
	}
	return b
}

// TestRingNamesTheMissingRank checks that every rank's error names the missing rank, also the
// errors of ranks that are not its neighbors.
func TestRingNamesTheMissingRank(t *testing.T) {
	t.Parallel()
	for name, make := range ringGroups {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			groups, err := make(4, Options{Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			one := func(ctx context.Context) func(g Group) error {
				return func(g Group) error { return g.AllReduce(ctx, device.Buffer{F32: []float32{1, 2, 3}}) }
			}
			if err := together(groups, one(ctx)); err != nil {
				t.Fatal(err)
			}
			// Rank 2 does not come. All others give up at the same time.
			here := []Group{groups[0], groups[1], groups[3]}
			short, cancel := context.WithTimeout(ctx, 2*time.Second) // ten times reportMissingAfter
			defer cancel()
			for i, g := range here {
				here[i] = named{g}
			}
			err = together(here, one(short))
			wantError(t, err,
				"[3] all-reduce 2: context deadline exceeded while waiting for rank 2 (last seen in all-reduce 1)")
			for _, rank := range []string{"[0]", "[1]"} { // they may first hear that the one before has given up
				if !containsAny(err, rank+" all-reduce 2: context deadline exceeded while waiting for rank 2 (last seen in all-reduce 1)",
					rank+" all-reduce 2: rank 3 failed (last seen in all-reduce 2)",
					rank+" all-reduce 2: rank 0 failed (last seen in all-reduce 2)") {
					t.Errorf("error of rank %s in\n%v", rank, err)
				}
			}
			// Rank 2 comes too late, and is told.
			wantError(t, one(ctx)(groups[2]), "all-reduce 2: rank ", " failed (last seen in all-reduce 2); see the error message of that rank")
			wantError(t, one(ctx)(groups[0]), "the group stopped after an earlier error")
			if err := closeAll(groups); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// named is a group whose errors begin with its rank.
type named struct{ Group }

func (n named) AllReduce(ctx context.Context, b device.Buffer) error {
	if err := n.Group.AllReduce(ctx, b); err != nil {
		return fmt.Errorf("[%d] %w", n.Rank(), err)
	}
	return nil
}

func TestRingTimesOut(t *testing.T) {
	t.Parallel()
	for name, make := range ringGroups {
		t.Run(name, func(t *testing.T) {
			groups, err := make(3, Options{Timeout: 600 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			barrier := func(g Group) error { return g.Barrier(context.Background()) }
			if err := together(groups, barrier); err != nil {
				t.Fatal(err)
			}
			err = together(groups[:2], barrier)
			wantError(t, err, "barrier 2: rank 2 (last seen in barrier 1) did not arrive within 600ms")
			if err := closeAll(groups); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRingWhoseNextRankDoesNotReceive checks the error of a rank that is blocked in sending
// rather than in receiving.
func TestRingWhoseNextRankDoesNotReceive(t *testing.T) {
	t.Parallel()
	groups, err := ring("unix")(3, Options{Timeout: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	big := func() device.Buffer { return device.Buffer{F32: make32(4_000_000, 1)} }
	// Rank 1, which should forward rank 0's numbers, does not call the operation.
	err = together([]Group{groups[0], groups[2]}, func(g Group) error { return g.Broadcast(ctx, big(), 0) })
	if !containsAny(err, "broadcast 1: rank 1, which does not receive", "broadcast 1: rank 1 (not seen in any operation) did not arrive") {
		t.Error(err)
	}
	if err := closeAll(groups); err != nil {
		t.Fatal(err)
	}
}

func TestRingEndsWithItsContext(t *testing.T) {
	groups, err := ring("tcp")(2, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	begin := time.Now()
	err = groups[0].Barrier(ctx)
	wantError(t, err, "barrier 1: context canceled while waiting for rank 1 (not seen in any operation)")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v is not context.Canceled", err)
	}
	// DefaultTimeout is minutes, so a shorter wait was not ended by it.
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	if err := closeAll(groups); err != nil {
		t.Fatal(err)
	}
}

// TestRingNamesTheRankThatLeft checks that the errors of all ranks name a rank that has left,
// whether it closed its group or its connections just ended.
func TestRingNamesTheRankThatLeft(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(g *Ring) error
		want  string
	}{
		{"in order", func(g *Ring) error { return g.Close() }, "barrier 2: rank 2 has left the group (last seen in barrier 1)"},
		{
			"killed", func(g *Ring) error { return errors.Join(g.in.Close(), g.out.Conn.Close(), g.closeConnections()) },
			"barrier 2: rank 2 is gone: its connection has ended (last seen in barrier 1)",
		},
	} {
		for network, make := range ringGroups {
			t.Run(tt.name+" "+network, func(t *testing.T) {
				groups, err := make(4, Options{})
				if err != nil {
					t.Fatal(err)
				}
				barrier := func(g Group) error { return g.Barrier(context.Background()) }
				if err := together(groups, barrier); err != nil {
					t.Fatal(err)
				}
				if err := tt.leave(groups[2].(*Ring)); err != nil {
					t.Fatal(err)
				}
				// Every rank on its own is told.
				errs := [4]error{}
				err = together([]Group{groups[0], groups[1], groups[3]}, func(g Group) error {
					errs[g.Rank()] = barrier(g)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, rank := range []int{0, 1, 3} {
					wantError(t, errs[rank], tt.want)
				}
				for _, g := range groups {
					_ = g.Close() // rank 2's connections may be closed already
				}
			})
		}
	}
}

func TestRingRefusesDifferentCalls(t *testing.T) {
	ctx := context.Background()
	for _, tt := range []struct {
		name string
		call func(Group) error
		want string
	}{
		{"operation", func(g Group) error {
			if g.Rank() == 0 {
				return g.Barrier(ctx)
			}
			return g.Broadcast(ctx, device.Buffer{F64: []float64{1}}, 1)
		}, "barrier 1: rank 0 calls barrier, rank 1 calls broadcast of 1 float64 from rank 1"},
		{"length", func(g Group) error {
			return g.AllReduce(ctx, device.Buffer{F32: make([]float32, 5+g.Rank())})
		}, "rank 0 calls all-reduce of 5 float32, rank 1 calls all-reduce of 6 float32"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			groups, err := ring("unix")(2, Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = together(groups, tt.call)
			// One of the two is the first to see it, and the other may only hear that.
			if !containsAny(err, tt.want, "rank 1 calls") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err := closeAll(groups); err != nil {
				t.Fatal(err)
			}
		})
	}
	groups, err := ring("unix")(2, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, groups[0].Broadcast(ctx, device.Buffer{}, 2), "invalid root 2: use 0 to 1")
	if err := closeAll(groups); err != nil {
		t.Fatal(err)
	}
	wantError(t, groups[0].Barrier(ctx), "the group is closed")
}

// TestRingRefusesNoise checks that bytes which are not a frame end the group with an error.
func TestRingRefusesNoise(t *testing.T) {
	all, err := ringConnections("tcp", 2)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewRing("tcp ring", 0, 2, all[0], Options{})
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(i * 7)
	}
	if _, err := all[1].To.Write(noise); err != nil {
		t.Fatal(err)
	}
	wantError(t, g.Barrier(context.Background()), "the connection is damaged or used by another program")
	if err := errors.Join(g.Close(), all[1].Close()); err != nil {
		t.Fatal(err)
	}
}

func TestRingChecksItsArguments(t *testing.T) {
	_, err := NewRing("tcp ring", 0, 1, Connections{}, Options{})
	wantError(t, err, "rank 0 of 1: use at least 2 ranks")
	_, err = NewRing("tcp ring", 0, 2, Connections{}, Options{Timeout: -1})
	wantError(t, err, "invalid time-out -1ns")
	_, err = NewRing("tcp ring", 0, 2, Connections{}, Options{})
	wantError(t, err, "got connections for messages to 0 ranks and connections for schedules to 0 ranks, want both to each of 2 ranks")
}

// TestRingKeepsBits checks that the payload of a NaN and the sign of −0 arrive unchanged.
func TestRingKeepsBits(t *testing.T) {
	groups, err := ring("unix")(2, Options{})
	if err != nil {
		t.Fatal(err)
	}
	odd := math.Float64frombits(0x7ff8_0000_dead_beef)
	err = together(groups, func(g Group) error {
		b := device.Buffer{F64: []float64{0, 0}}
		if g.Rank() == 1 {
			b.F64[0], b.F64[1] = odd, math.Copysign(0, -1)
		}
		if err := g.Broadcast(context.Background(), b, 1); err != nil {
			return err
		}
		if !same(b.F64[0], odd) || !same(b.F64[1], math.Copysign(0, -1)) {
			return fmt.Errorf("rank %d got %x %x", g.Rank(), math.Float64bits(b.F64[0]), math.Float64bits(b.F64[1]))
		}
		return nil
	})
	if err := errors.Join(err, closeAll(groups)); err != nil {
		t.Fatal(err)
	}
}

// closeConnections closes the links' connections without a note, as the end of a process does.
func (r *Ring) closeConnections() error {
	var errs []error
	for _, l := range slices.Concat(r.links, r.scheduled) {
		if l != nil {
			errs = append(errs, l.conn.Close())
		}
	}
	return errors.Join(errs...)
}
