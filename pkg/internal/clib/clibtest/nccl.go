package clibtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/nccl"
)

// NCCLNetwork connects simulated machines whose ranks exchange data through NCCL.
type NCCLNetwork struct {
	mu     sync.Mutex
	next   uint64
	groups map[nccl.UniqueID]*rankGroup
}

// NewNCCLNetwork returns a network without communicators.
func NewNCCLNetwork() *NCCLNetwork { return &NCCLNetwork{groups: map[nccl.UniqueID]*rankGroup{}} }

// Close ends all calls that wait for other ranks, as if the processes of those ranks ended.
func (n *NCCLNetwork) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.groups {
		g.abort()
	}
}

// rankGroup is a group of ranks that were created with the same nccl.UniqueID.
type rankGroup struct {
	mu        sync.Mutex
	changed   *sync.Cond
	members   map[int]*Machine
	ranks     int
	connected int                      // ranks that have called their first collective
	rounds    map[int]*collectiveRound // by number of the collective
	broken    bool                     // a rank has left: no call waits any more
}

// collectiveRound is one collective operation of a group, to which every rank contributes.
type collectiveRound struct {
	given  map[int][]float64 // contributions by rank
	call   string            // the first rank's call
	result []float64
	wrong  error // the ranks make different calls
	left   int   // ranks that have the result
}

type communicator struct {
	g         *rankGroup
	rank      int
	calls     int          // collectives so far
	state     atomic.Int32 // nccl.Result
	name      string
	connected bool // by its first collective
	graphs    int  // number of captured and executable graphs that contain its collectives
}

// NCCL returns the machine's simulated NCCL. CommInit, and the first collective of a
// communicator, block the caller until all ranks have called them. Other collectives
// wait for the other ranks when their stream runs them. CommAbort ends all these waits.
// As in NCCL, CommDestroy and CommAbort return only when all graphs that captured a
// collective of the communicator are destroyed (commDestroySync in its src/init.cc).
func (m *Machine) NCCL() *nccl.Library {
	var mu sync.Mutex
	comms := map[nccl.Comm]*communicator{}
	find := func(call string, c nccl.Comm) (*communicator, error) {
		mu.Lock()
		defer mu.Unlock()
		if k := comms[c]; k != nil {
			return k, nil
		}
		return nil, &nccl.Error{Call: call, Result: nccl.InvalidArgument, Message: "unknown communicator"}
	}
	l := &nccl.Library{
		Path:        simulatedLibraryPath,
		Version:     func() (int, error) { return m.opt.NCCLVersion, nil },
		GetUniqueID: m.opt.Network.newUniqueID,
		GroupStart:  func() error { return nil },
		GroupEnd:    func() error { return nil },
		LastError:   func(nccl.Comm) string { return "" },
		ErrorString: func(r nccl.Result) string { return r.Name() },
	}
	l.CommInit = func(ranks, rank int, id nccl.UniqueID) (nccl.Comm, error) {
		const call = "ncclCommInitRankScalable"
		if err := m.simulateCall(call, true, func() error { return nil }); err != nil {
			return 0, &nccl.Error{Call: call, Result: nccl.UnhandledCudaError, Message: err.Error()}
		}
		g, err := m.opt.Network.joinRankGroup(m, ranks, rank, id)
		if err != nil {
			return 0, err
		}
		m.mu.Lock()
		h, name := m.newHandle("comm")
		m.logCall("%s %d, %d = %s", call, ranks, rank, name)
		m.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		comms[nccl.Comm(h)] = &communicator{g: g, rank: rank, name: name}
		return nccl.Comm(h), nil
	}
	remove := func(call string, c nccl.Comm, abort bool) error {
		k, err := find(call, c)
		if err != nil {
			return err
		}
		m.logCall("%s %s", call, k.name)
		if abort {
			k.g.abort()
		}
		k.waitForGraphs()
		mu.Lock()
		defer mu.Unlock()
		delete(comms, c)
		return nil
	}
	l.CommDestroy = func(c nccl.Comm) error { return remove("ncclCommDestroy", c, false) }
	l.CommAbort = func(c nccl.Comm) error { return remove("ncclCommAbort", c, true) }
	l.AsyncError = func(c nccl.Comm) error {
		k, err := find("ncclCommGetAsyncError", c)
		if err != nil {
			return err
		}
		if r := nccl.Result(k.state.Load()); r != nccl.Success {
			return &nccl.Error{Call: "NCCL communicator", Result: r}
		}
		return nil
	}
	l.AllReduce = func(send, recv cuda.Ptr, n int64, t nccl.DataType, op nccl.ReduceOp, c nccl.Comm, s cuda.Stream) error {
		k, err := find("ncclAllReduce", c)
		if err != nil {
			return err
		}
		return m.enqueueCollective("ncclAllReduce", send, recv, n, t, k, s, fmt.Sprintf("op %d", op), func(g *rankGroup, given map[int][]float64) []float64 {
			return reduceContributions(op, g.ranks, given, t)
		})
	}
	l.Broadcast = func(send, recv cuda.Ptr, n int64, t nccl.DataType, root int, c nccl.Comm, s cuda.Stream) error {
		k, err := find("ncclBroadcast", c)
		if err != nil {
			return err
		}
		return m.enqueueCollective("ncclBroadcast", send, recv, n, t, k, s, fmt.Sprintf("root %d", root), func(_ *rankGroup, given map[int][]float64) []float64 {
			return given[root]
		})
	}
	return l
}

func (n *NCCLNetwork) newUniqueID() (nccl.UniqueID, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	var id nccl.UniqueID
	binary.LittleEndian.PutUint64(id[:], n.next)
	id[127] = 1
	return id, nil
}

// joinRankGroup adds rank, on machine m, to the group of id, and waits until all ranks have joined.
func (n *NCCLNetwork) joinRankGroup(m *Machine, ranks, rank int, id nccl.UniqueID) (*rankGroup, error) {
	wrong := func(r nccl.Result, format string, args ...any) error {
		return &nccl.Error{Call: "ncclCommInitRankScalable", Result: r, Message: fmt.Sprintf(format, args...)}
	}
	if ranks < 1 || rank < 0 || rank >= ranks || id.IsZero() {
		return nil, wrong(nccl.InvalidArgument, "invalid rank %d of %d or id %v", rank, ranks, id)
	}
	n.mu.Lock()
	g := n.groups[id]
	if g == nil {
		g = &rankGroup{ranks: ranks, members: map[int]*Machine{}, rounds: map[int]*collectiveRound{}}
		g.changed = sync.NewCond(&g.mu)
		n.groups[id] = g
	}
	n.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ranks != ranks || g.members[rank] != nil {
		return nil, wrong(nccl.InvalidUsage, "rank %d of %d joined twice, or the ranks have different numbers of ranks", rank, ranks)
	}
	for other, o := range g.members {
		if o == m {
			g.broken = true
			g.changed.Broadcast()
			return nil, wrong(nccl.InvalidUsage, "Duplicate GPU detected: rank %d and rank %d", rank, other)
		}
	}
	g.members[rank] = m
	g.changed.Broadcast()
	for len(g.members) < ranks && !g.broken {
		g.changed.Wait()
	}
	if g.broken {
		return nil, wrong(nccl.RemoteError, "a rank left")
	}
	return g, nil
}

func (k *communicator) addGraphCount(n int) {
	k.g.mu.Lock()
	defer k.g.mu.Unlock()
	k.graphs += n
	k.g.changed.Broadcast()
}

func (k *communicator) waitForGraphs() {
	k.g.mu.Lock()
	defer k.g.mu.Unlock()
	for k.graphs > 0 {
		k.g.changed.Wait()
	}
}

// waitUntilConnected waits on the host until every rank has called its communicator's first collective.
// Further calls return at once.
func (k *communicator) waitUntilConnected(call string) error {
	g := k.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if !k.connected {
		k.connected = true
		g.connected++
		g.changed.Broadcast()
	}
	for g.connected < g.ranks && !g.broken {
		g.changed.Wait()
	}
	if g.connected < g.ranks {
		return &nccl.Error{Call: call, Result: nccl.RemoteError, Message: "a rank left before its first collective"}
	}
	return nil
}

func (g *rankGroup) abort() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = true
	g.changed.Broadcast()
}

// enqueueCollective enqueues a collective operation. When the operation runs, it waits for the
// other ranks, and merge combines the contributions of all ranks.
func (m *Machine) enqueueCollective(call string, send, recv cuda.Ptr, n int64, t nccl.DataType, k *communicator, s cuda.Stream, detail string, merge func(*rankGroup, map[int][]float64) []float64) error {
	bytes := n * t.Size()
	check := func() error {
		for _, p := range []cuda.Ptr{send, recv} {
			if _, err := m.memory.bytesAt(uint64(p), bytes, false); err != nil {
				return &nccl.Error{Call: call, Result: nccl.InvalidArgument, Message: err.Error()}
			}
		}
		return nil
	}
	m.mu.Lock()
	err := check()
	m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := k.waitUntilConnected(call); err != nil {
		return err
	}
	return m.simulateCall(call, true, func() error {
		if err := check(); err != nil {
			return err
		}
		m.logCall("%s %s -> %s, %d of type %d, %s, %s, %s", call, m.memory.describeAddress(uint64(send)), m.memory.describeAddress(uint64(recv)), n, t, detail, k.name, m.streamName(s))
		return m.enqueueStreamOp(call, s, &streamOp{label: call, cost: 20, comm: k, run: func() error {
			from, err1 := m.memory.bytesAt(uint64(send), bytes, false)
			to, err2 := m.memory.bytesAt(uint64(recv), bytes, false)
			if err1 != nil || err2 != nil {
				return newDriverError(call, cuda.ErrorIllegalAddress, "%v", errors.Join(err1, err2))
			}
			what := fmt.Sprintf("%s of %d elements of type %d, %s", call, n, t, detail)
			result, err := k.runCollective(what, decodeElements(from, t), merge)
			if err != nil {
				// An aborted collective ends without a result; the device can still be
				// used.
				return nil
			}
			encodeElements(to, result, t)
			return nil
		}})
	})
}

// runCollective contributes values to the next collective, waits for all ranks and returns the
// merged values. All ranks must pass the same call.
func (k *communicator) runCollective(call string, values []float64, merge func(*rankGroup, map[int][]float64) []float64) ([]float64, error) {
	g := k.g
	g.mu.Lock()
	defer g.mu.Unlock()
	number := k.calls
	k.calls++
	r := g.rounds[number]
	if r == nil {
		r = &collectiveRound{given: map[int][]float64{}, call: call}
		g.rounds[number] = r
	}
	if r.call != call {
		r.wrong = &nccl.Error{Call: call, Result: nccl.InvalidUsage, Message: "another rank calls " + r.call}
	}
	r.given[k.rank] = values
	if len(r.given) == g.ranks && r.wrong == nil {
		r.result = merge(g, r.given)
	}
	g.changed.Broadcast()
	for len(r.given) < g.ranks && !g.broken && r.wrong == nil {
		g.changed.Wait()
	}
	r.left++
	if r.left == g.ranks {
		delete(g.rounds, number)
	}
	switch {
	case r.wrong != nil:
		k.state.Store(int32(nccl.InvalidUsage))
		return nil, r.wrong
	case r.result == nil:
		k.state.Store(int32(nccl.RemoteError))
		return nil, &nccl.Error{Call: call, Result: nccl.RemoteError}
	}
	return r.result, nil
}

// reduceContributions combines the contributions in the order of the ranks. For types other than fp64 it
// rounds each partial result to fp32.
func reduceContributions(op nccl.ReduceOp, ranks int, contributions map[int][]float64, t nccl.DataType) []float64 {
	out := append([]float64(nil), contributions[0]...)
	for rank := 1; rank < ranks; rank++ {
		for i, v := range contributions[rank] {
			switch op {
			case nccl.Prod:
				out[i] *= v
			case nccl.Max:
				out[i] = max(out[i], v)
			case nccl.Min:
				out[i] = min(out[i], v)
			default:
				out[i] += v
			}
			if t != nccl.Float64 {
				out[i] = float64(float32(out[i]))
			}
		}
	}
	if op == nccl.Avg {
		for i := range out {
			out[i] /= float64(ranks)
		}
	}
	return out
}

func decodeElements(b []byte, t nccl.DataType) []float64 {
	out := make([]float64, int64(len(b))/t.Size())
	for i := range out {
		switch t {
		case nccl.Float32:
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		case nccl.Float64:
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		case nccl.Float16:
			out[i] = float64(fromF16(binary.LittleEndian.Uint16(b[2*i:])))
		case nccl.BFloat16:
			out[i] = float64(fromBF16(binary.LittleEndian.Uint16(b[2*i:])))
		case nccl.Int32:
			out[i] = float64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		case nccl.Int64:
			out[i] = float64(int64(binary.LittleEndian.Uint64(b[8*i:])))
		default:
			out[i] = float64(b[i])
		}
	}
	return out
}

func encodeElements(b []byte, v []float64, t nccl.DataType) {
	for i, x := range v {
		switch t {
		case nccl.Float32:
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(x)))
		case nccl.Float64:
			binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(x))
		case nccl.Float16:
			binary.LittleEndian.PutUint16(b[2*i:], toF16(float32(x)))
		case nccl.BFloat16:
			binary.LittleEndian.PutUint16(b[2*i:], toBF16(float32(x)))
		case nccl.Int32:
			binary.LittleEndian.PutUint32(b[4*i:], uint32(int32(x)))
		case nccl.Int64:
			binary.LittleEndian.PutUint64(b[8*i:], uint64(int64(x)))
		default:
			b[i] = byte(x)
		}
	}
}
