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

// GPU is the part of an engine that NCCL needs. The engine of engine/cuda implements it.
type GPU interface {
	// NCCL returns the library, or an error that explains why it cannot be used.
	NCCL() (*nccl.Library, error)
	// UUID returns an identifier that is unique among all GPUs of all machines.
	UUID() [16]byte
	// Do runs f on the thread that holds the GPU's context.
	Do(f func() error) error
	// Apart runs f on a new thread with the GPU's context current, so that a call which
	// may block for ever does not block Do.
	Apart(f func() error) error
}

// ErrSharedGPU is wrapped by NewNCCL's error if two ranks have the same GPU, which NCCL
// does not support. DDP exchanges through the host in that case.
var ErrSharedGPU = errors.New("ranks share a GPU")

// ErrNoNCCL is wrapped by NewNCCL's error if a rank lacks the library.
var ErrNoNCCL = errors.New("NCCL is not there")

// NCCLOptions contains the times of an exchange by NCCL. The zero value suits most uses.
type NCCLOptions struct {
	// Timeout limits a step, and the creation of the communicator. After it, the missing
	// rank is searched for. 0: collective.DefaultTimeout.
	Timeout time.Duration
	Poll    time.Duration // interval between two checks of the communicator; 0: a tenth of a second
	// Search limits the search for the missing rank, and the time that Close waits for
	// NCCL. 0: ten seconds.
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

// NCCL is data parallelism that exchanges buckets between GPUs: the mean over all
// ranks is computed by NVIDIA's library, in a stream parallel to backward. By NCCL's documentation its
// calls may be captured in a CUDA graph, so that a step remains one launch. This was tested
// with simulated libraries, not with a GPU.
//
// NCCL itself waits forever for a rank that is gone. While a step runs, a
// watchdog checks the communicator for errors. After a time-out or an error, it
// synchronizes with the other ranks in the group on the host, whose error names the
// missing rank, and aborts the communicator. By NCCL's documentation the waiting kernels
// then end, and so does the step. This was tested with simulated libraries only.
//
// NCCL destroys or aborts a communicator only after every graph that captured its
// collectives: close the executables before the strategy.
type NCCL struct {
	gpu     GPU
	lib     *nccl.Library
	group   collective.Group
	options NCCLOptions

	// mu is never held during an NCCL call, which may block until another rank calls NCCL too.
	mu    sync.Mutex
	comm  nccl.Comm
	ended chan error // receives the result of an abort in progress; nil: no abort
	err   error      // the watchdog's first error
	stats Stats
}

var _ engine.DeviceNormSync = (*NCCL)(nil)

// NewNCCL creates a communicator of the ranks of group, through which rank 0 sends its
// id to the others. All ranks must call it at the same time. The engine must not capture
// its first step, which includes the first exchange, because NCCL then loads modules
// that may not be loaded during a capture.
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
	id, err := n.shareID(ctx)
	if err != nil {
		return err
	}
	return n.join(ctx, id)
}

// join creates the communicator. NCCL's call returns when all ranks have made it. So it
// runs on a separate thread, which is abandoned after the time-out.
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
			if r.err == nil { // too late: the caller has given up
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

// search synchronizes with the other ranks in the group on the host, and adds the name
// of a missing rank to cause.
func (n *NCCL) search(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.options.Search, errors.New("it did not come to look for the missing rank"))
	defer cancel()
	if missing := n.group.Barrier(ctx); missing != nil {
		return fmt.Errorf("%w: %w", cause, missing)
	}
	return cause
}

// agree returns an error on every rank if any rank has one.
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

// distinct returns an error if two ranks use the same GPU.
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

// shareID sends rank 0's id to all ranks: one byte per number, which float64 represents
// exactly.
func (n *NCCL) shareID(ctx context.Context) (nccl.UniqueID, error) {
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

// ReduceBucket enqueues in stream s the operation that replaces bucket i by its mean over all
// ranks.
func (n *NCCL) ReduceBucket(i int, b device.Buffer, s device.Stream) error {
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

// allReduce enqueues an in-place all-reduce of b in stream s, and counts its bytes.
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

// SumStatistics enqueues in stream s the operation that replaces v by its sum over all
// ranks. All ranks must enqueue a communicator's operations in the same order. The
// engine ensures this: it enqueues statistics and buckets in one stream, in the
// program's order.
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

// Wait returns at once, because the GPU waits in its streams. It returns the watchdog's
// error, if any.
func (n *NCCL) Wait() error { return n.failure() }

// Capturable reports true.
func (n *NCCL) Capturable() bool { return true }

// Stats summarizes what was enqueued since the last call. A step that is captured in a
// graph is enqueued only once, so only its capture counts.
func (n *NCCL) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stats
	n.stats = Stats{}
	return s
}

// Name returns the transport of the gradients, for run.json.
func (n *NCCL) Name() string { return "nccl" }

// Watch monitors a step in progress until stop is called. stop returns the error that
// ended the step, or nil.
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

// abort finds the missing rank and starts to abort the communicator, which ends the
// waiting operations in the GPU's streams. All waiting ranks call it at about the same
// time. Only Close waits for NCCL's call: it returns after all graphs that captured a
// collective are destroyed, and the step that waits here still uses them.
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

// Close destroys the communicator, or waits for the end of its abort. Executables that
// exchanged with it must be closed first. The group remains open.
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
