package collective

import (
	"sync/atomic"
	"testing"

	"lockstep/pkg/internal/device"
)

// TestSent checks, for each kind of group, how many bytes all ranks together have sent. A
// buffer of P bytes moves 2(n-1) times in an all-reduce, by whatever algorithm, n-1 times in a
// reduce-scatter, an all-gather and a broadcast, and once in a message.
func TestSent(t *testing.T) {
	const elements = 30_000 // P = 120,000 bytes
	for name, create := range allGroups() {
		for _, algorithm := range []string{"", "ring", "tree"} {
			for _, n := range []int{2, 3} {
				groups, err := create(n, Options{Algorithm: algorithm})
				if err != nil {
					t.Fatal(err)
				}
				var sent atomic.Int64
				err = together(groups, func(g Group) error {
					ctx := t.Context()
					b := device.Buffer{F32: make([]float32, elements)}
					for _, operation := range []func() error{
						func() error { return g.AllReduce(ctx, b) },
						func() error { return g.ReduceScatter(ctx, b) },
						func() error { return g.AllGather(ctx, b) },
						func() error { return g.Broadcast(ctx, b, n-1) },
						func() error {
							switch g.Rank() {
							case 0:
								return g.Send(ctx, b, 1)
							case 1:
								return g.Recv(ctx, b, 0)
							}
							return nil
						},
						func() error { return g.Barrier(ctx) }, // all that was queued before is written
					} {
						if err := operation(); err != nil {
							return err
						}
					}
					bytes, ok := Sent(NewRecorder(g, t.TempDir()))
					if !ok {
						t.Errorf("%s does not count", name)
					}
					sent.Add(int64(bytes))
					return nil
				})
				if err != nil {
					t.Fatalf("%s, algorithm %q, %d ranks: %v", name, algorithm, n, err)
				}
				want := float64(4*elements) * float64(5*(n-1)+1)
				// Headers of frames: 40 bytes for each piece, of which there are a few.
				if got := float64(sent.Load()); got < want || got > want+2000*float64(n) {
					t.Errorf("%s, algorithm %q, %d ranks: %g bytes were sent, want %g", name, algorithm, n, got, want)
				}
				if err := closeAll(groups); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if _, ok := Sent(nil); ok {
		t.Error("no group counts")
	}
}

// TestSentBetweenNodes: in an all-reduce of P bytes, ranks on several nodes send 2(N-1)·P together,
// as in a ring: 2(R-1)·P inside each of the N/R nodes and 2(N/R-1)·P between the nodes.
func TestSentBetweenNodes(t *testing.T) {
	const elements = 30_000
	for _, n := range []int{4, 6} {
		for _, perNode := range []int{2, n / 2} {
			var sent atomic.Int64
			err := together(InProcessNodes(n, perNode), func(g Group) error {
				if err := g.AllReduce(t.Context(), device.Buffer{F32: make([]float32, elements)}); err != nil {
					return err
				}
				bytes, ok := Sent(g)
				if !ok {
					t.Error("the group does not count")
				}
				sent.Add(int64(bytes))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := int64(2 * (n - 1) * 4 * elements); sent.Load() != want {
				t.Errorf("%d ranks, %d on each node: %d bytes were sent, want %d", n, perNode, sent.Load(), want)
			}
		}
	}
}
