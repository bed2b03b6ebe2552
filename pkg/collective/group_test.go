package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/device"
)

// memoryGroups contains functions that create a group of each kind for n ranks in this process.
var memoryGroups = map[string]func(n int, o Options) ([]Group, error){
	"in-process": func(n int, o Options) ([]Group, error) { return newInProcessGroups(n, o), nil },
	"shared memory": func(n int, o Options) ([]Group, error) {
		first, err := CreateSharedMemory(n, o)
		if err != nil {
			return nil, err
		}
		groups := []Group{first}
		for rank := 1; rank < n; rank++ {
			g, err := OpenSharedMemory(first.Path(), rank, n, o)
			if err != nil {
				return nil, err
			}
			groups = append(groups, g)
		}
		return groups, first.Unlink()
	},
}

// together calls f for all ranks concurrently.
func together(groups []Group, f func(Group) error) error {
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() { errs[i] = f(g) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func closeAll(groups []Group) error {
	var errs []error
	for _, g := range groups {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}

// buffers returns one buffer per rank, in fp64 if f64 is true.
func buffers(f64 bool, values [][]float64) []device.Buffer {
	bs := make([]device.Buffer, len(values))
	for i, v := range values {
		if f64 {
			bs[i].F64 = append([]float64{}, v...)
			continue
		}
		bs[i].F32 = make([]float32, len(v))
		for j, x := range v {
			bs[i].F32[j] = float32(x)
		}
	}
	return bs
}

func at(b device.Buffer, i int) float64 {
	if b.F64 != nil {
		return b.F64[i]
	}
	return float64(b.F32[i])
}

// naive returns the sum over ranks of element i, in rank order and in the precision of the
// buffers.
func naive(bs []device.Buffer, i int) float64 {
	if bs[0].F64 != nil {
		sum := bs[0].F64[i]
		for _, b := range bs[1:] {
			sum += b.F64[i]
		}
		return sum
	}
	sum := bs[0].F32[i]
	for _, b := range bs[1:] {
		sum += b.F32[i]
	}
	return float64(sum)
}

// same reports whether a and b have the same bits, which also distinguishes −0 from 0 and
// compares NaN.
func same(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// TestOperationsEqualNaiveOnes compares random operations with naive ones: it draws the number
// of ranks, lengths around and far beyond a chunk, the precision, the root, and several
// operations on the same group.
func TestOperationsEqualNaiveOnes(t *testing.T) {
	for name, make := range memoryGroups {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.IntRange(1, 5).Draw(t, "ranks")
				chunk := rapid.SampledFrom([]int{1, 640, 4096}).Draw(t, "chunk")
				groups, err := make(n, Options{ChunkBytes: chunk, Timeout: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				for range rapid.IntRange(1, 4).Draw(t, "operations") {
					checkOperation(t, groups, naive)
				}
				if err := closeAll(groups); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func checkOperation(t *rapid.T, groups []Group, sum func(bs []device.Buffer, i int) float64) {
	ctx := context.Background()
	n := len(groups)
	length := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 5000)).Draw(t, "length")
	f64 := rapid.Bool().Draw(t, "float64")
	seed := rapid.Uint64().Draw(t, "seed")
	values := make([][]float64, n)
	for r := range values {
		values[r] = make([]float64, length)
		for i := range values[r] {
			values[r][i] = noise(seed, r, i)
		}
	}
	in, out := buffers(f64, values), buffers(f64, values)
	root := rapid.IntRange(0, n-1).Draw(t, "root")
	op := rapid.SampledFrom([]string{"all-reduce", "broadcast", "reduce-scatter", "all-gather", "barrier"}).Draw(t, "operation")
	err := together(groups, func(g Group) error {
		switch b := out[g.Rank()]; op {
		case "all-reduce":
			return g.AllReduce(ctx, b)
		case "broadcast":
			return g.Broadcast(ctx, b, root)
		case "reduce-scatter":
			return g.ReduceScatter(ctx, b)
		case "all-gather":
			return g.AllGather(ctx, b)
		}
		return g.Barrier(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range groups {
		for i := range length {
			want := at(in[r], i)
			switch lo, hi := Shard(length, n, r); {
			case op == "all-reduce":
				want = sum(in, i)
			case op == "broadcast":
				want = at(in[root], i)
			case op == "reduce-scatter" && (i < lo || i >= hi):
				continue // undefined
			case op == "reduce-scatter":
				want = sum(in, i)
			case op == "all-gather":
				want = at(in[owner(length, n, i)], i)
			}
			if got := at(out[r], i); !same(got, want) {
				t.Fatalf("%s, rank %d, element %d of %d: got %v, want %v", op, r, i, length, got, want)
			}
		}
	}
}

// noise returns a number with a magnitude of 1e-8 to 1e8. Sums of such numbers depend on the
// order of the additions.
func noise(seed uint64, rank, i int) float64 {
	x := seed + uint64(rank)*0x9e3779b97f4a7c15 + uint64(i)*0xbf58476d1ce4e5b9
	x ^= x >> 31
	x *= 0x94d049bb133111eb
	x ^= x >> 29
	return math.Pow(10, float64(x%17)-8) * (float64(x>>11)/(1<<52) - 1)
}

func owner(length, n, i int) int {
	for r := range n {
		if lo, hi := Shard(length, n, r); i >= lo && i < hi {
			return r
		}
	}
	return -1
}

// wantError checks that the message of got contains all parts.
func wantError(t *testing.T, got error, parts ...string) {
	t.Helper()
	if got == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(got.Error(), p) {
			t.Errorf("error %q does not say %q", got, p)
		}
	}
}

func containsAny(err error, parts ...string) bool {
	return err != nil && slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(err.Error(), p) })
}

func TestTimeoutNamesTheMissingRankAndWhatItLastDid(t *testing.T) {
	t.Parallel()
	for name, make := range memoryGroups {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			groups, err := make(3, Options{Timeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			one := func(g Group) error { return g.AllReduce(ctx, device.Buffer{F32: []float32{1, 2, 3}}) }
			if err := together(groups, one); err != nil {
				t.Fatal(err)
			}
			err = together(groups[:2], one)
			wantError(t, err, "all-reduce 2: rank 2 (last seen in all-reduce 1) did not arrive within 1s")
			// Rank 2 comes too late, and is told.
			wantError(t, one(groups[2]), "all-reduce 2: rank 0 failed (last seen in all-reduce 2)")
			wantError(t, one(groups[0]), "the group stopped after an earlier error")
			if err := closeAll(groups); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// endsInside is a context that ends 20 ms after the first call of Err, so that it ends during
// the operation that calls Err.
type endsInside struct {
	context.Context
	cancel func()
	once   sync.Once
}

func (c *endsInside) Err() error {
	err := c.Context.Err()
	c.once.Do(func() { time.AfterFunc(20*time.Millisecond, c.cancel) })
	return err
}

func TestEndedContextEndsTheWait(t *testing.T) {
	for name, make := range memoryGroups {
		t.Run(name, func(t *testing.T) {
			groups, err := make(2, Options{})
			if err != nil {
				t.Fatal(err)
			}
			inner, cancel := context.WithCancel(context.Background())
			defer cancel()
			ctx := &endsInside{Context: inner, cancel: cancel}
			begin := time.Now()
			err = groups[0].Barrier(ctx)
			wantError(t, err, "barrier 1: context canceled while waiting for rank 1 (not seen in any operation)")
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v is not context.Canceled", err)
			}
			// DefaultTimeout is minutes; this only tells a wait that ends from one that does not.
			if d := time.Since(begin); d > 10*time.Second {
				t.Errorf("took %v", d)
			}
			if err := closeAll(groups); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLeavingRankIsNoticed(t *testing.T) {
	groups := InProcess(2)
	if err := groups[1].Close(); err != nil {
		t.Fatal(err)
	}
	err := groups[0].Barrier(context.Background())
	wantError(t, err, "barrier 1: rank 1 has left the group")
	wantError(t, groups[1].Barrier(context.Background()), "the group is closed")
}

func TestDifferentCallsAreRefused(t *testing.T) {
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
		{"precision", func(g Group) error {
			if g.Rank() == 0 {
				return g.AllReduce(ctx, device.Buffer{F64: []float64{1}})
			}
			return g.AllReduce(ctx, device.Buffer{F32: []float32{1}})
		}, "rank 0 calls all-reduce of 1 float64, rank 1 calls all-reduce of 1 float32"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantError(t, together(InProcess(2), tt.call), tt.want)
		})
	}
	wantError(t, InProcess(2)[0].Broadcast(ctx, device.Buffer{}, 2), "invalid root 2: use 0 to 1")
}

func TestSingleNeedsNobody(t *testing.T) {
	ctx := context.Background()
	g := Single()
	b := device.Buffer{F32: []float32{1, 2}}
	for _, err := range []error{
		g.AllReduce(ctx, b), g.Broadcast(ctx, b, 0), g.ReduceScatter(ctx, b), g.AllGather(ctx, b), g.Barrier(ctx), g.Close(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if b.F32[0] != 1 || b.F32[1] != 2 || g.Size() != 1 || g.Name() != "none" {
		t.Errorf("got %v, size %d, name %q", b.F32, g.Size(), g.Name())
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := CreateSharedMemory(0, Options{})
	wantError(t, err, "invalid number of ranks 0")
	_, err = CreateSharedMemory(2, Options{Timeout: -1})
	wantError(t, err, "invalid time-out -1ns")
	_, err = CreateSharedMemory(2, Options{ChunkBytes: -1})
	wantError(t, err, "invalid chunk size -1 bytes")
	_, err = OpenSharedMemory("/proc/4194305/fd/3", 1, 2, Options{})
	wantError(t, err, "rank 1 does not see rank 0's files")
	_, err = OpenSharedMemory("/nowhere/else", 2, 2, Options{})
	wantError(t, err, "invalid rank 2 for 2 ranks")
}

// TestOpenSharedMemoryRefusesOtherFiles: without a secret any program may send a path. A file of
// the user must neither be mapped nor changed, even if it has the size of the memory.
func TestOpenSharedMemoryRefusesOtherFiles(t *testing.T) {
	first, err := CreateSharedMemory(2, Options{})
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("x"), len(first.memory.Memory))
	path := filepath.Join(t.TempDir(), "lockstep-important")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "lockstep-link")
	if err := os.Symlink(first.Path(), link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), "/dev/zero", "/dev/shm/../../" + path} {
		_, err := OpenSharedMemory(p, 1, 2, Options{})
		wantError(t, err, "is not the memory of a run")
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file has changed (%v)", err)
	}
	second, err := OpenSharedMemory(first.Path(), 1, 2, Options{})
	if err := errors.Join(err, first.Unlink(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := closeAll([]Group{first, second}); err != nil {
		t.Error(err)
	}
}

func BenchmarkAllReduce(b *testing.B) {
	ctx := context.Background()
	for _, bytes := range []int{100e3, 8e6, 100e6} {
		b.Run(fmt.Sprintf("shared-2-%dkB", bytes/1000), func(b *testing.B) {
			groups, err := memoryGroups["shared memory"](2, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(bytes))
			err = together(groups, func(g Group) error {
				buf := device.Buffer{F32: make([]float32, bytes/4)}
				for range b.N {
					if err := g.AllReduce(ctx, buf); err != nil {
						return err
					}
				}
				return nil
			})
			if err = errors.Join(err, closeAll(groups)); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// TestBuffersOfAGPU checks that a group of the host refuses buffers in GPU memory, and can still
// be used afterwards.
func TestBuffersOfAGPU(t *testing.T) {
	g := Single()
	b := device.Buffer{Pointer: 4096, Type: device.F32, Elements: 8}
	if err := g.AllReduce(t.Context(), b); err == nil || !strings.Contains(err.Error(), "all-reduce: the buffer is in GPU memory") {
		t.Errorf("all-reduce says %v", err)
	}
	if err := g.AllReduce(t.Context(), device.Buffer{F32: []float32{1}}); err != nil {
		t.Error(err)
	}
}
