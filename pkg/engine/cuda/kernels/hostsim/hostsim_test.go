package hostsim

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
)

// faulty are kernels with the mistakes that the simulator is there to find.
const faulty = `
extern "C" __global__ void rotate(int *out, int good) {
  SHARED(int, shared);
  shared[threadIdx.x] = threadIdx.x;
  if (good) __syncthreads();
  out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}
extern "C" __global__ void write_one(int *out, int at) {
  if (threadIdx.x == 2 && blockIdx.x == 1) out[at] = 7;
}
extern "C" __global__ void read_vector(float *out, int at) { out[0] = reinterpret_cast<float4 *>(out + at)->x; }
extern "C" __global__ void share(float *out, int at) {
  SHARED(float, shared);
  out[0] = shared[at];
}
extern "C" __global__ void diverge(int *out, int rest) {
  if ((int)threadIdx.x < rest) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
extern "C" __global__ void shuffle(float *out, int distance) {
  float v = threadIdx.x;
  v += __shfl_xor_sync(0xffffffffu, v, distance); // two in a row: slots must not be reused too early
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  out[threadIdx.x] = v;
}
extern "C" __global__ void overflow(int *out, int by) { out[0] = 0x7fffffff + by; }
`

func faultyKernels() []kernels.Kernel {
	var list []kernels.Kernel
	for _, name := range []string{"rotate", "write_one", "read_vector", "share", "diverge", "shuffle", "overflow"} {
		list = append(list, kernels.Kernel{Name: name, Params: []kernels.Param{{Name: "out", Kind: kernels.KindPointer}, {Name: "n", Kind: kernels.KindInt32}}})
	}
	return list
}

func openFaulty(t *testing.T, flags ...string) *Simulator {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	lib, err := buildLibrary(context.Background(), faulty, faultyKernels(), flags...)
	if errors.Is(err, ErrNoCompiler) {
		t.Skip("no g++ on this machine: the kernels cannot be simulated")
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &Simulator{library: lib, kernels: map[string]kernels.Kernel{}}
	for _, k := range faultyKernels() {
		s.kernels[k.Name] = k
	}
	return s
}

func alloc(t *testing.T, n, align int) *Memory {
	t.Helper()
	m, err := Alloc(n, align)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestFaults: each mistake is an error that says where, and the next launch runs.
// Once with the switch between fibers in assembly, once with the C library's, which
// other processors use.
func TestFaults(t *testing.T) {
	t.Run("assembly", func(t *testing.T) { faults(t, openFaulty(t)) })
	t.Run("ucontext", func(t *testing.T) { faults(t, openFaulty(t, "-DSIM_UCONTEXT")) })
}

func faults(t *testing.T, s *Simulator) {
	t.Helper()
	m := alloc(t, 64*4, 4)
	run := func(name string, n int32, threads, shared uint32) error {
		var a kernels.Args
		a.AppendPointer(m.Pointer())
		a.AppendInt32(n)
		return s.Run(name, [3]uint32{2, 1, 1}, [3]uint32{threads, 1, 1}, shared, a.Bytes())
	}
	for _, c := range []struct {
		name            string
		n               int32
		threads, shared uint32
		want            string // "" where it is right
	}{
		{"write_one", 63, 32, 0, ""},
		{"write_one", 64, 32, 0, "block (1,0,0) of (2,1,1), thread (2,0,0) of (32,1,1): accesses address"},
		{"write_one", -5000, 32, 0, "accesses address"},
		{"read_vector", 0, 1, 0, ""},
		{"read_vector", 1, 1, 0, "misaligned"},
		{"share", 3, 1, 16, ""},
		{"share", 4, 1, 16, "accesses address"},
		{"diverge", 0, 64, 0, ""},
		{"diverge", 3, 64, 0, "waits at a barrier that other threads of the block never reach"},
		{"shuffle", 4, 64, 0, ""},
		{"shuffle", 4, 48, 0, "fills only in part"},
		{"overflow", 0, 1, 0, ""},
		{"overflow", 1, 1, 0, "undefined operation"},
	} {
		err := run(c.name, c.n, c.threads, c.shared)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s(%d) by %d threads: %v, want %q", c.name, c.n, c.threads, err, c.want)
		}
	}

	// A nil pointer in Go still is Go's own affair after all that.
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a nil pointer raised no panic")
			}
		}()
		var p *Simulator
		p.Reversed = true
	}()
}

// TestPoison: memory and shared memory begin as NaN.
func TestPoison(t *testing.T) {
	s := openFaulty(t)
	m := alloc(t, 40, 8)
	for _, v := range m.F32() {
		if v == v {
			t.Errorf("fresh memory holds %g", v)
		}
	}
	m.F32()[0] = 1
	var a kernels.Args
	a.AppendPointer(m.Pointer())
	a.AppendInt32(0)
	if err := s.Run("share", [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 4, a.Bytes()); err != nil || m.F32()[0] == m.F32()[0] {
		t.Errorf("fresh shared memory holds %g (%v)", m.F32()[0], err)
	}
}

// TestOrderShowsMissingBarrier: a kernel that lacks a barrier gives other results in
// the opposite order, one that has it the same.
func TestOrderShowsMissingBarrier(t *testing.T) {
	s := openFaulty(t)
	for _, good := range []int32{0, 1} {
		var results [2][]int32
		for i, reversed := range []bool{false, true} {
			m := alloc(t, 40*4, 4)
			var a kernels.Args
			a.AppendPointer(m.Pointer())
			a.AppendInt32(good)
			s.Reversed = reversed
			if err := s.Run("rotate", [3]uint32{1, 1, 1}, [3]uint32{40, 1, 1}, 160, a.Bytes()); err != nil {
				t.Fatal(err)
			}
			for _, v := range m.F32() {
				results[i] = append(results[i], int32(math.Float32bits(v)))
			}
		}
		same := true
		for i, v := range results[0] {
			same = same && v == results[1][i]
			if good == 1 && v != int32(i+1)%40 {
				t.Errorf("thread %d read %d", i, v)
			}
		}
		if same != (good == 1) {
			t.Errorf("with barrier %d the two orders agree: %v", good, same)
		}
	}
}

// TestShuffle: worked by hand: thread t has t + (t^4), to which that of t^1 is added.
func TestShuffle(t *testing.T) {
	s := openFaulty(t)
	for _, s.Reversed = range []bool{false, true} {
		m := alloc(t, 64*4, 4)
		var a kernels.Args
		a.AppendPointer(m.Pointer())
		a.AppendInt32(4)
		if err := s.Run("shuffle", [3]uint32{1, 1, 1}, [3]uint32{64, 1, 1}, 0, a.Bytes()); err != nil {
			t.Fatal(err)
		}
		for i, v := range m.F32() {
			if want := i + (i ^ 4) + (i ^ 1) + (i ^ 5); float32(want) != v {
				t.Errorf("thread %d has %g, want %d", i, v, want)
			}
		}
	}
}

// TestRunRefuses what a driver refuses.
func TestRunRefuses(t *testing.T) {
	s := openFaulty(t)
	args := make([]byte, 12)
	one := [3]uint32{1, 1, 1}
	for want, err := range map[string]error{
		"unknown kernel":           s.Run("nothing", one, one, 0, args),
		"got 8 bytes of arguments": s.Run("write_one", one, one, 0, args[:8]),
		"invalid grid [1 65536 1]": s.Run("write_one", [3]uint32{1, 65536, 1}, one, 0, args),
		"has 1025 threads":         s.Run("write_one", one, [3]uint32{1025, 1, 1}, 0, args),
		"has 0 threads":            s.Run("write_one", one, [3]uint32{}, 0, args),
		"default limit of 48 kB":   s.Run("write_one", one, one, 48<<10+4, args),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestMemoryCheck: a write beside a piece of memory that its alignment keeps off the
// guard page is seen too.
func TestMemoryCheck(t *testing.T) {
	for _, at := range []int{-1, 13} {
		m := alloc(t, 13, 16)
		if err := m.CheckSurroundings(); err != nil {
			t.Fatal(err)
		}
		start := len(m.mapping) - pageBytes - 16 // 13 bytes and 3 to the guard page
		m.mapping[start+at] = 0
		if err := m.CheckSurroundings(); err == nil {
			t.Errorf("a write to byte %d of 13 is not seen", at)
		}
	}
}
