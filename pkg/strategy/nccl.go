package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/device"
)

// GPU is what NCCL needs of an engine: engine/cuda's is one.
type GPU interface {
	// NCCL is the library, or an error that says why it cannot be used.
	NCCL() (*nccl.Library, error)
	// UUID tells GPUs apart, on whatever machine.
	UUID() [16]byte
	// Do runs f on the thread that holds the GPU's context.
	Do(f func() error) error
	// Apart runs f on a new thread with the GPU's context current, so that a call which
	// may block for ever does not block Do.
	Apart(f func() error) error
}

// ErrSharedGPU is wrapped by NewNCCL where two ranks have the same GPU, which
// NCCL refuses: DDP exchanges through the host then.
var ErrSharedGPU = errors.New("ranks share a GPU")

// ErrNoNCCL is wrapped by NewNCCL where a rank lacks the library.
var ErrNoNCCL = errors.New("NCCL is not there")

// NCCLOptions are the constants of an exchange by NCCL. The zero value is what
// most need.
type NCCLOptions struct {
	// Timeout is how long a step, or making the communicator, may take before the missing
	// rank is looked for; 0: collective.DefaultTimeout.
	Timeout time.Duration
	Poll    time.Duration // between two looks at the communicator; 0: a tenth of a second
	// Search is how long the missing rank is looked for, and how long Close waits for
	// NCCL; 0: ten seconds.
	Search time.Duration
}

func (o NCCLOptions) withDefaults() NCCLOptions {
	if o.Timeout == 0 {
		o.Timeout = collective.DefaultTimeout
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Millisecond
	}
	if o.Search == 0 {
		o.Search = 10 * time.Second
	}
	return o
}

// NCCL is data parallelism whose buckets go from GPU to GPU: the mean over all
// ranks, by NVIDIA's library, in a stream beside backward. By NCCL's documentation its
// calls may be recorded in a CUDA graph, so that a step stays one launch; this was tested
// with simulated libraries, not with a GPU.
//
// NCCL itself waits for ever for a rank that is gone. While a step runs, a
// watchdog asks the communicator for errors; after a time-out, or an error, it
// meets the other ranks in the group on the host, which names the one that does
// not come, and aborts the communicator. By NCCL's documentation the kernels that wait
// end then, and with them the step; this was tested with simulated libraries only.
//
// NCCL destroys or aborts a communicator only after every graph that captured its
// collectives: close the executables before the strategy.
type NCCL struct {
	gpu     GPU
	lib     *nccl.Library
	group   collective.Group
	options NCCLOptions

	// mu is never held during a call of NCCL's, which may block until another rank comes.
	mu    sync.Mutex
	comm  nccl.Comm
	ended chan error // gets the result of an abort that is under way; nil: there is none
	err   error      // of the watchdog; it stays
	stats Stats
}

var _ engine.DeviceNormSync = (*NCCL)(nil)

// NewNCCL makes a communicator of the ranks of group: rank 0's id goes to the
// others through it. Every rank calls it at the same time. The engine's first
// step is not recorded, and with it NCCL's first exchange, since what it loads
// then may not be loaded in a recording.
func NewNCCL(ctx context.Context, gpu GPU, group collective.Group, o NCCLOptions) (*NCCL, error) {
	n := &NCCL{gpu: gpu, group: group, options: o.withDefaults()}
	if err := n.start(ctx); err != nil {
		return nil, fmt.Errorf("exchange gradients by NCCL: %w", err)
	}
	return n, nil
}

func (n *NCCL) start(ctx context.Context) error {
	lib, err := n.gpu.NCCL()
	// All ranks must agree on whether to go on.
	if err := n.agree(ctx, err); err != nil {
		return fmt.Errorf("%w: %w", ErrNoNCCL, err)
	}
	n.lib = lib
	if err := n.distinct(ctx); err != nil {
		return err
	}
	id, err := n.identify(ctx)
	if err != nil {
		return err
	}
	return n.join(ctx, id)
}

// join makes the communicator. NCCL's call returns when all ranks have made it, so that
// it runs on a thread of its own, which is left behind after the time-out.
func (n *NCCL) join(ctx context.Context, id nccl.UniqueID) error {
	type result struct {
		comm nccl.Comm
		err  error
	}
	joined := make(chan result)
	parent := ctx
	ctx, cancel := context.WithTimeout(parent, n.options.Timeout)
	defer cancel()
	go func() {
		var r result
		r.err = n.gpu.Apart(func() (err error) {
			r.comm, err = n.lib.CommInit(n.group.Size(), n.group.Rank(), id)
			return err
		})
		select {
		case joined <- r:
		case <-ctx.Done():
			if r.err == nil { // too late: nobody will use it
				_ = n.lib.CommAbort(r.comm)
			}
		}
	}()
	select {
	case r := <-joined:
		n.comm = r.comm
		return r.err
	case <-ctx.Done():
		if err := parent.Err(); err != nil {
			return fmt.Errorf("make the communicator: %w", err)
		}
		return n.search(parent, fmt.Errorf("make the communicator: not all ranks joined within %v", n.options.Timeout))
	}
}

// search meets the other ranks in the group on the host and adds to cause which rank does
// not come.
func (n *NCCL) search(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.options.Search, errors.New("it did not come to look for the missing rank"))
	defer cancel()
	if missing := n.group.Barrier(ctx); missing != nil {
		return fmt.Errorf("%w: %w", cause, missing)
	}
	return cause
}

// agree fails on every rank where one has an error.
func (n *NCCL) agree(ctx context.Context, err error) error {
	failed := []float64{0}
	if err != nil {
		failed[0] = 1
	}
	if sumErr := AllReduceFloat64s(ctx, n.group, failed); sumErr != nil {
		return errors.Join(err, sumErr)
	}
	if err == nil && failed[0] > 0 {
		return fmt.Errorf("%g of the other ranks cannot", failed[0])
	}
	return err
}

// distinct reports ranks that have one GPU between them.
func (n *NCCL) distinct(ctx context.Context) error {
	uuid := n.gpu.UUID()
	all := make([]float64, n.group.Size()*len(uuid))
	for i, b := range uuid {
		all[n.group.Rank()*len(uuid)+i] = float64(b)
	}
	if err := AllReduceFloat64s(ctx, n.group, all); err != nil {
		return fmt.Errorf("compare GPUs: %w", err)
	}
	seen := map[[16]float64]int{}
	for rank := range n.group.Size() {
		key := [16]float64(all[rank*len(uuid):])
		if other, ok := seen[key]; ok {
			return fmt.Errorf("ranks %d and %d: %w", other, rank, ErrSharedGPU)
		}
		seen[key] = rank
	}
	return nil
}

// identify carries rank 0's id to all ranks: a byte a number, which float64
// holds exactly.
func (n *NCCL) identify(ctx context.Context) (nccl.UniqueID, error) {
	var id nccl.UniqueID
	var err error
	if n.group.Rank() == 0 {
		err = n.gpu.Do(func() (err error) {
			id, err = n.lib.GetUniqueID()
			return err
		})
	}
	if err := n.agree(ctx, err); err != nil {
		return id, fmt.Errorf("make an id: %w", err)
	}
	numbers := make([]float64, len(id))
	for i, b := range id {
		numbers[i] = float64(b)
	}
	if err := n.group.Broadcast(ctx, device.Buffer{F64: numbers}, 0); err != nil {
		return id, fmt.Errorf("broadcast the id: %w", err)
	}
	for i, v := range numbers {
		id[i] = byte(v)
	}
	return id, nil
}

// Bucket puts the mean of bucket i over all ranks in the stream s, in place.
func (n *NCCL) Bucket(i int, b device.Buffer, s device.Stream) error {
	if b.OnHost() {
		return fmt.Errorf("reduce bucket %d by NCCL: it lies on the host", i)
	}
	typ := map[device.Type]nccl.DataType{device.F32: nccl.Float32, device.F16: nccl.Float16, device.BF16: nccl.BFloat16}[b.Type]
	if err := n.allReduce(b, typ, nccl.Avg, s); err != nil {
		return fmt.Errorf("reduce bucket %d by NCCL: %w", i, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Buckets++
	return nil
}

// allReduce puts an all-reduce of b in the stream s, in place, and counts its bytes.
func (n *NCCL) allReduce(b device.Buffer, typ nccl.DataType, op nccl.ReduceOp, s device.Stream) error {
	n.mu.Lock()
	comm, err := n.comm, n.err
	n.mu.Unlock()
	if comm == 0 {
		return cmp.Or(err, errors.New("the strategy is closed"))
	}
	p := cuda.Ptr(b.Pointer)
	if err := n.lib.AllReduce(p, p, int64(b.Len()), typ, op, comm, cuda.Stream(s.Handle)); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stats.First.IsZero() {
		n.stats.First = time.Now()
	}
	n.stats.Bytes += b.Bytes()
	return nil
}

// SumStatistics puts the sum of v over all ranks in the stream s, in place. All that a
// communicator does must be put in streams in the same order by all ranks: the engine
// keeps that of the program, with the buckets, in one stream.
func (n *NCCL) SumStatistics(v device.Buffer, s device.Stream) error {
	if v.Type != device.F64 {
		return fmt.Errorf("sum statistics by NCCL: they are %s: must be fp64 on the GPU", v.Type)
	}
	if err := n.allReduce(v, nccl.Float64, nccl.Sum, s); err != nil {
		return fmt.Errorf("sum statistics by NCCL: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Shared++
	return nil
}

// Wait returns at once: the GPU waits, in its streams.
func (n *NCCL) Wait() error { return n.failure() }

// Capturable is true.
func (n *NCCL) Capturable() bool { return true }

// Stats says what was put in streams since the last call. A step that is
// recorded in a graph is put there once, so that only its recording counts.
func (n *NCCL) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stats
	n.stats = Stats{}
	return s
}

// Strategy returns NameDDP.
func (n *NCCL) Strategy() string { return NameDDP }

// Name says what carries the gradients, for run.json.
func (n *NCCL) Name() string { return "nccl" }

// Watch looks after a step that is under way, until stop is called; what stop
// returns ended it.
func (n *NCCL) Watch(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { n.watch(ctx) })
	return func() error {
		cancel()
		watch.Wait()
		return n.failure()
	}
}

func (n *NCCL) watch(ctx context.Context) {
	n.mu.Lock()
	comm := n.comm
	n.mu.Unlock()
	if comm == 0 {
		return
	}
	tick := time.NewTicker(n.options.Poll)
	defer tick.Stop()
	begin := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := n.lib.AsyncError(comm)
		if err == nil && time.Since(begin) > n.options.Timeout {
			err = fmt.Errorf("a step takes longer than %v", n.options.Timeout)
		}
		if err != nil {
			n.abort(ctx, err)
			return
		}
	}
}

// abort finds out which rank is missing and begins to end the communicator, and with it
// what waits in the GPU's streams. All ranks that wait come here at about the same time.
// Nobody waits for NCCL's call but Close, since it returns only when the graphs that
// captured a collective are destroyed, which is after the step that waits here.
func (n *NCCL) abort(ctx context.Context, cause error) {
	err := fmt.Errorf("exchange gradients by NCCL: %w", n.search(ctx, cause))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
	if comm := n.comm; comm != 0 {
		n.comm = 0
		ended := make(chan error, 1)
		n.ended = ended
		go func() { ended <- n.lib.CommAbort(comm) }()
	}
}

func (n *NCCL) failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Close destroys the communicator, or waits for the end of its abort. The executables
// that exchanged with it must be closed before. The group stays open.
func (n *NCCL) Close() error {
	n.mu.Lock()
	comm, ended := n.comm, n.ended
	n.comm, n.ended = 0, nil
	n.mu.Unlock()
	switch {
	case comm != 0:
		ended = make(chan error, 1)
		go func() { ended <- n.gpu.Apart(func() error { return n.lib.CommDestroy(comm) }) }()
	case ended == nil:
		return nil
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(n.options.Search):
		return fmt.Errorf("close the exchange by NCCL: the communicator did not end within %v", n.options.Search)
	}
}
