package collective

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/device"
)

// allGroups contains functions that create a group of each kind for n ranks in this process.
func allGroups() map[string]func(n int, o Options) ([]Group, error) {
	all := maps.Clone(memoryGroups)
	maps.Copy(all, ringGroups)
	return all
}

// TestTimeoutOfGroups: Timeout returns the option of every kind of group, also through a
// Recorder, or the default.
func TestTimeoutOfGroups(t *testing.T) {
	for name, create := range allGroups() {
		for option, want := range map[time.Duration]time.Duration{0: DefaultTimeout, 7 * time.Second: 7 * time.Second} {
			groups, err := create(2, Options{Timeout: option})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				if got, recorded := Timeout(g), Timeout(NewRecorder(g, t.TempDir())); got != want || recorded != want {
					t.Errorf("%s: time-out %v, %v through a Recorder, want %v", name, got, recorded, want)
				}
			}
			if err := closeAll(groups); err != nil {
				t.Error(err)
			}
		}
	}
}

// numbered returns a buffer of n numbers that differ from those of another sender, receiver or
// message.
func numbered(f64 bool, n, from, to, message int) device.Buffer {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i%9973 + 10_000*(from+10*to+100*(message%10)))
	}
	return buffers(f64, [][]float64{v})[0]
}

// sendTo sends messages of the given lengths to rank to, alternately in fp32 and fp64.
func sendTo(ctx context.Context, g Group, to int, lengths []int) error {
	for i, n := range lengths {
		if err := g.Send(ctx, numbered(i%2 == 1, n, g.Rank(), to, i), to); err != nil {
			return err
		}
	}
	return nil
}

// receiveFrom receives what sendTo sends, and compares it.
func receiveFrom(ctx context.Context, g Group, from int, lengths []int) error {
	for i, n := range lengths {
		want := numbered(i%2 == 1, n, from, g.Rank(), i)
		got := buffers(i%2 == 1, [][]float64{make([]float64, n)})[0]
		if err := g.Recv(ctx, got, from); err != nil {
			return err
		}
		for k := range n {
			if !same(at(got, k), at(want, k)) {
				return fmt.Errorf("message %d from rank %d to %d, element %d of %d: got %v, want %v", i, from, g.Rank(), k, n, at(got, k), at(want, k))
			}
		}
	}
	return nil
}

// concurrently calls all functions at the same time.
func concurrently(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestMessagesBetweenAllPairs sends messages from each rank to each other rank at the same time,
// in sizes from nothing to 2.4 MB, while the ranks add up buffers.
func TestMessagesBetweenAllPairs(t *testing.T) {
	lengths := []int{0, 1, 2, 1000, 17, 0, 16384, 65_537, 300_007, 3}
	for name, create := range allGroups() {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s %d", name, n), func(t *testing.T) {
				groups, err := create(n, Options{})
				if err != nil {
					t.Fatal(err)
				}
				ctx := context.Background()
				err = together(groups, func(g Group) error {
					fs := []func() error{func() error {
						for range 3 {
							if err := addUp(g, 100_000, 2); err != nil {
								return err
							}
						}
						return nil
					}}
					for peer := range n {
						if peer != g.Rank() {
							fs = append(fs, func() error { return sendTo(ctx, g, peer, lengths) },
								func() error { return receiveFrom(ctx, g, peer, lengths) })
						}
					}
					return concurrently(fs...)
				})
				if err := errors.Join(err, closeAll(groups)); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestMessagesOfRandomSizes draws the size of the queues between the ranks and the lengths of the
// messages, which go around in a circle; no other rank takes part.
func TestMessagesOfRandomSizes(t *testing.T) {
	for name, create := range allGroups() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				chunk := rapid.SampledFrom([]int{1, 640, 4096}).Draw(t, "chunk")
				lengths := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, 3000)), 1, 12).Draw(t, "lengths")
				groups, err := create(3, Options{ChunkBytes: chunk, Timeout: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				ctx := context.Background()
				err = together(groups[:2], func(g Group) error {
					other := 1 - g.Rank()
					return concurrently(func() error { return sendTo(ctx, g, other, lengths) }, func() error { return receiveFrom(ctx, g, other, lengths) })
				})
				if err := errors.Join(err, closeAll(groups)); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestMessageOfAnotherSize checks that a message which does not fit the buffer is an error of
// the receiver, that the sender gets an error in its next call, and that the error states both
// sizes.
func TestMessageOfAnotherSize(t *testing.T) {
	ctx := context.Background()
	for name, create := range allGroups() {
		for _, tt := range []struct {
			name       string
			send, recv device.Buffer
			want       string
		}{
			{"shorter", device.Buffer{F32: make32(8, 1)}, device.Buffer{F32: make32(9, 1)}, "receive 1 from rank 0: the message has 8 float32, the buffer has 9 float32"},
			{"empty", device.Buffer{F32: make32(0, 1)}, device.Buffer{F32: make32(1, 1)}, "the message has 0 float32, the buffer has 1 float32"},
			{"type", device.Buffer{F32: make32(2, 1)}, device.Buffer{F64: []float64{1}}, "the message has 2 float32, the buffer has 1 float64"},
		} {
			t.Run(name+" "+tt.name, func(t *testing.T) {
				groups, err := create(2, Options{Timeout: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if err := groups[0].Send(ctx, tt.send, 1); err != nil {
					t.Fatal(err)
				}
				wantError(t, groups[1].Recv(ctx, tt.recv, 0), tt.want)
				wantError(t, groups[1].Recv(ctx, tt.recv, 0), "the group stopped after an earlier error")
				wantError(t, groups[0].Recv(ctx, tt.recv, 1), "receive 1 from rank 1: rank 1 failed")
				if err := closeAll(groups); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestMessageThatDoesNotArrive checks the time-out of Recv and of a Send that must wait, and the
// end of their context. Each error names the missing rank.
func TestMessageThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	big := func() device.Buffer { return device.Buffer{F32: make32(8_000_000, 1)} }
	const wait, endDuringCall, endBefore = 0, 1, 2
	for name, create := range allGroups() {
		for _, tt := range []struct {
			name string
			call func(ctx context.Context, g Group) error
			end  int // when the context ends
			want string
		}{
			{"receive", func(ctx context.Context, g Group) error { return g.Recv(ctx, big(), 2) }, wait, "receive 1 from rank 2: rank 2 (not seen in any operation) did not send it within 700ms"},
			{"send", func(ctx context.Context, g Group) error { return g.Send(ctx, big(), 2) }, wait, "send 1 to rank 2: rank 2 (not seen in any operation) did not receive it within 700ms"},
			{"receive, context", func(ctx context.Context, g Group) error { return g.Recv(ctx, big(), 2) }, endDuringCall, "receive 1 from rank 2: context canceled while waiting for rank 2"},
			{"send, context", func(ctx context.Context, g Group) error { return g.Send(ctx, big(), 2) }, endDuringCall, "send 1 to rank 2: context canceled while waiting for rank 2"},
			{"ended context", func(ctx context.Context, g Group) error { return g.Send(ctx, big(), 2) }, endBefore, "send 1 to rank 2: context canceled"},
		} {
			t.Run(name+" "+tt.name, func(t *testing.T) {
				o := Options{}
				if tt.end == wait {
					o.Timeout = 700 * time.Millisecond
				}
				groups, err := create(3, o)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				switch tt.end {
				case endDuringCall:
					ctx = &endsInside{Context: ctx, cancel: cancel}
				case endBefore:
					cancel()
				}
				wantError(t, tt.call(ctx, groups[0]), tt.want)
				// The others are notified.
				wantError(t, groups[1].Recv(context.Background(), big(), 0), "receive 1 from rank 0: rank 0 failed")
				if err := closeAll(groups); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestMessageAfterItsSenderLeft checks that messages of a rank that has left the group can still be
// received, and that the next Recv then returns an error.
func TestMessageAfterItsSenderLeft(t *testing.T) {
	ctx := context.Background()
	for name, create := range allGroups() {
		t.Run(name, func(t *testing.T) {
			groups, err := create(3, Options{Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			lengths := []int{5, 0, 2000}
			if err := errors.Join(sendTo(ctx, groups[0], 2, lengths), groups[0].Close()); err != nil {
				t.Fatal(err)
			}
			if err := receiveFrom(ctx, groups[2], 0, lengths); err != nil {
				t.Fatal(err)
			}
			wantError(t, groups[2].Recv(ctx, device.Buffer{F32: make32(1, 0)}, 0), "receive 4 from rank 0: rank 0 has left the group")
			// A Send to a rank that has left notices it at the latest when nothing more fits.
			err = groups[1].Send(ctx, device.Buffer{F32: make32(8_000_000, 0)}, 0)
			wantError(t, err, "send 1 to rank 0: rank 0 has left the group")
			if err := errors.Join(groups[1].Close(), groups[2].Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestFailureEndsOtherCalls checks that an operation that fails also ends the other operations of
// its rank, and those of other ranks that wait for this rank.
func TestFailureEndsOtherCalls(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := func() device.Buffer { return device.Buffer{F32: make32(4, 0)} }
	for name, create := range allGroups() {
		t.Run(name, func(t *testing.T) {
			groups, err := create(3, Options{})
			if err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			var errs [4]error
			err = concurrently(
				func() error { errs[0] = groups[0].Recv(short, b(), 1); return nil }, // fails
				func() error { errs[1] = groups[0].Recv(ctx, b(), 2); return nil },   // of the same rank
				func() error { errs[2] = groups[0].Barrier(ctx); return nil },        // of the same rank
				func() error { errs[3] = groups[2].Recv(ctx, b(), 0); return nil },   // of another rank
			)
			if err != nil {
				t.Fatal(err)
			}
			const first = "receive 1 from rank 1: context deadline exceeded while waiting for rank 1"
			wantError(t, errs[0], first)
			wantError(t, errs[1], "receive 1 from rank 2: another operation of this rank failed: "+first)
			wantError(t, errs[2], "barrier 1: another operation of this rank failed: "+first)
			wantError(t, errs[3], "receive 1 from rank 0: rank 0 failed")
			if err := groups[1].Barrier(ctx); !containsAny(err, "barrier 1: rank 0 failed", "barrier 1: rank 2 failed") { // rank 2 because of rank 0
				t.Errorf("error %v", err)
			}
			if err := closeAll(groups); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestMessageArguments checks the errors for ranks and buffers that cannot be used, after which
// the group can still be used, and for calls that may not run at the same time.
func TestMessageArguments(t *testing.T) {
	ctx := context.Background()
	b := device.Buffer{F32: []float32{1}}
	for name, create := range allGroups() {
		t.Run(name, func(t *testing.T) {
			groups, err := create(2, Options{Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			g := groups[0]
			wantError(t, g.Send(ctx, b, 0), "send: invalid rank 0: use the rank of another worker, from 0 to 1, but not this worker's rank 0")
			wantError(t, g.Send(ctx, b, 2), "send: invalid rank 2")
			wantError(t, g.Recv(ctx, b, -1), "receive: invalid rank -1")
			wantError(t, g.Send(ctx, device.Buffer{Pointer: 4096, Type: device.F32, Elements: 8}, 1), "send: the buffer is in GPU memory")

			begun := make(chan struct{})
			waiting := &announcing{Context: ctx, begun: begun}
			err = concurrently(
				func() error { return g.Recv(waiting, device.Buffer{F32: []float32{0}}, 1) },
				func() error {
					<-begun
					wantError(t, g.Recv(ctx, b, 1), "receive: another receive from rank 1 is running")
					wantError(t, g.Close(), "an operation is still running")
					return groups[1].Send(ctx, b, 0)
				})
			if err = errors.Join(err, closeAll(groups)); err != nil {
				t.Fatal(err)
			}
			wantError(t, g.Send(ctx, b, 1), "send: the group is closed")
		})
	}
	wantError(t, Single().Send(ctx, b, 0), "send: invalid rank 0")
}

// announcing is a context that closes begun at the first call of Err, so when the call that
// gets it has begun.
type announcing struct {
	context.Context
	begun chan struct{}
	once  sync.Once
}

func (c *announcing) Err() error {
	c.once.Do(func() { close(c.begun) })
	return c.Context.Err()
}
