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

// ErrSharedGPU is wrapped by the error of NewNCCL if two ranks have the same GPU, which NCCL does
// not support. DDP then exchanges gradients through the host.
var ErrSharedGPU = errors.New("ranks share a GPU")

// ErrNoNCCL is wrapped by the error of NewNCCL if the library is missing on any rank.
var ErrNoNCCL = errors.New("the NCCL library is not available")

// NCCLOptions contains the time limits of NCCL exchanges. The zero value selects the defaults.
type NCCLOptions struct {
	// Timeout limits each step, and the creation of the communicator. When it expires, the ranks
	// determine which rank is missing. 0 means collective.DefaultTimeout.
	Timeout time.Duration
	Poll    time.Duration // interval between two checks of the communicator; 0: 100 ms
	// SearchTimeout limits the search for the missing rank, and the time that Close waits for NCCL.
	// 0 means 10 s.
	SearchTimeout time.Duration
}

func (o NCCLOptions) withDefaults() NCCLOptions {
	if o.Timeout == 0 {
		o.Timeout = collective.DefaultTimeout
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Millisecond
	}
	if o.SearchTimeout == 0 {
		o.SearchTimeout = 10 * time.Second
	}
	return o
}

// NCCL is data parallelism in which the GPUs of the workers exchange gradient buckets directly.
// NVIDIA's library replaces each bucket by its mean over all ranks, in a CUDA stream parallel to
// the backward pass. According to NCCL's documentation, its calls may be captured in a CUDA graph,
// so that a step remains a single launch. This was tested with simulated libraries, not with a GPU.
//
// NCCL itself waits forever for a missing rank. While a step runs, a watchdog checks the
// communicator for errors. After a time-out or an error, it synchronizes with the other ranks in
// the group on the host. The error of this synchronization names the missing rank. The watchdog
// then aborts the communicator. According to NCCL's documentation, this ends the kernels that wait
// for the missing rank, and with them the step. This was tested with simulated libraries only.
//
// NCCL destroys or aborts a communicator only after every graph that captured its
// collectives is destroyed: close the executables before the strategy.
type NCCL struct {
	accumulation
	equalReplicas
	gpu     *engine.Accelerator
	lib     *nccl.Library
	group   collective.Group // connects the ranks on the host
	options NCCLOptions

	// mu is never held during an NCCL call, which may block until other ranks call NCCL.
	mu    sync.Mutex
	comm  nccl.Comm  // 0 after an abort or Close
	ended chan error // receives the result of an abort in progress; nil: no abort
	err   error      // the watchdog's first error
	stats Stats
}

// NewNCCL creates an NCCL communicator for the ranks of group. Rank 0 sends the communicator's ID
// to the other ranks through group. All ranks must call NewNCCL at the same time. The engine must
// not capture its first step in a graph: the first exchange makes NCCL load modules, which is not
// allowed during a capture.
func NewNCCL(ctx context.Context, gpu *engine.Accelerator, group collective.Group, o NCCLOptions) (*NCCL, error) {
	n := &NCCL{equalReplicas: equalReplicas{group}, gpu: gpu, group: group, options: o.withDefaults()}
	if err := n.startCommunicator(ctx); err != nil {
		return nil, fmt.Errorf("exchange gradients by NCCL: %w", err)
	}
	return n, nil
}

func (n *NCCL) startCommunicator(ctx context.Context) error {
	lib, err := n.gpu.NCCL()
	// If one rank has no library, no rank may continue.
	if err := n.agreeOnError(ctx, err); err != nil {
		return fmt.Errorf("%w: %w", ErrNoNCCL, err)
	}
	n.lib = lib
	if err := n.checkDistinctGPUs(ctx); err != nil {
		return err
	}
	id, err := n.broadcastUniqueID(ctx)
	if err != nil {
		return err
	}
	return n.createCommunicator(ctx, id)
}

// createCommunicator creates the communicator with the given ID. NCCL's function returns only after
// all ranks have called it. Therefore createCommunicator calls it on a separate thread, and
// abandons the thread after the time-out.
func (n *NCCL) createCommunicator(ctx context.Context, id nccl.UniqueID) error {
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
		r.err = n.gpu.RunOnNewThread(func() (err error) {
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
			return fmt.Errorf("create communicator: %w", err)
		}
		return n.addMissingRankError(parent, fmt.Errorf("create communicator: not all ranks joined within %v", n.options.Timeout))
	}
}

// addMissingRankError synchronizes with the other ranks on the host. If a rank is missing, it
// adds the error that names the rank to cause.
func (n *NCCL) addMissingRankError(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.options.SearchTimeout, errors.New("the rank did not join the search for the missing rank"))
	defer cancel()
	if missing := n.group.Barrier(ctx); missing != nil {
		return fmt.Errorf("%w: %w", cause, missing)
	}
	return cause
}

// agreeOnError returns err. If err is nil but another rank's error is not, it returns an error that
// states how many ranks failed.
func (n *NCCL) agreeOnError(ctx context.Context, err error) error {
	failed := []float64{0}
	if err != nil {
		failed[0] = 1
	}
	if sumErr := AllReduceFloat64s(ctx, n.group, failed); sumErr != nil {
		return errors.Join(err, sumErr)
	}
	if err == nil && failed[0] > 0 {
		return fmt.Errorf("failed on %.0f of the other ranks: see their error messages", failed[0])
	}
	return err
}

func (n *NCCL) checkDistinctGPUs(ctx context.Context) error {
	uuid := n.gpu.UUID
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
			return fmt.Errorf("%w: ranks %d and %d have the same one", ErrSharedGPU, other, rank)
		}
		seen[key] = rank
	}
	return nil
}

// broadcastUniqueID returns the communicator's ID, which rank 0 creates and sends to all ranks. Each byte is
// sent as a float64, which represents it exactly.
func (n *NCCL) broadcastUniqueID(ctx context.Context) (nccl.UniqueID, error) {
	var id nccl.UniqueID
	var err error
	if n.group.Rank() == 0 {
		err = n.gpu.Do(func() (err error) {
			id, err = n.lib.GetUniqueID()
			return err
		})
	}
	if err := n.agreeOnError(ctx, err); err != nil {
		return id, fmt.Errorf("create communicator id: %w", err)
	}
	numbers := make([]float64, len(id))
	for i, b := range id {
		numbers[i] = float64(b)
	}
	if err := n.group.Broadcast(ctx, device.Buffer{F64: numbers}, 0); err != nil {
		return id, fmt.Errorf("broadcast communicator id: %w", err)
	}
	for i, v := range numbers {
		id[i] = byte(v)
	}
	return id, nil
}

// Step computes the gradients of one batch, and lets the executable update its parameters by
// the mean gradient over all workers. With a single batch, a GPU engine may capture the
// complete step in a CUDA graph.
func (n *NCCL) Step(ctx context.Context, exe engine.Executable, s Step) (engine.Timing, error) {
	return n.runBatch(ctx, exe, n, s, &s.Update)
}

// ReduceBucket enqueues an operation in stream s that replaces b, the gradients of bucket
// i, by the mean over all ranks.
func (n *NCCL) ReduceBucket(i int, b device.Buffer, s device.Stream) error {
	if b.OnHost() {
		return fmt.Errorf("reduce bucket %d by NCCL: got host memory, want GPU memory", i)
	}
	typ := map[device.ElementType]nccl.DataType{device.F32: nccl.Float32, device.F16: nccl.Float16, device.BF16: nccl.BFloat16}[b.Type]
	if err := n.allReduce(b, typ, nccl.Avg, s); err != nil {
		return fmt.Errorf("reduce bucket %d by NCCL: %w", i, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Buckets++
	return nil
}

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

// SumStatistics enqueues an operation in stream s that replaces v by its sum over all
// ranks. All ranks must enqueue a communicator's operations in the same order. The engine
// ensures this: it enqueues statistics and buckets in one stream, in the program's order.
func (n *NCCL) SumStatistics(v device.Buffer, s device.Stream) error {
	if v.Type != device.F64 {
		return fmt.Errorf("sum statistics by NCCL: got values of type %s, want fp64", v.Type)
	}
	if err := n.allReduce(v, nccl.Float64, nccl.Sum, s); err != nil {
		return fmt.Errorf("sum statistics by NCCL: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Shared++
	return nil
}

// Wait returns at once, with the watchdog's error or nil, because the GPU itself waits for
// the exchange in its streams.
func (n *NCCL) Wait() error { return n.watchdogError() }

// Capabilities reports that exchanges run in streams, so that a CUDA graph may contain NCCL's
// operations.
func (n *NCCL) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{Enqueues: true, SumStatistics: n.SumStatistics, Watch: n.Watch}
}

// Stats returns statistics of the operations that were enqueued since the previous call of
// Stats. The operations of a step that is captured in a graph are enqueued only once,
// during the capture.
func (n *NCCL) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stats
	n.stats = Stats{}
	return s
}

// Name returns "nccl", the transport of the gradients that run.json records.
func (n *NCCL) Name() string { return "nccl" }

// Watch monitors the current step until stop is called. stop returns the error that ended the step,
// or nil.
func (n *NCCL) Watch(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { n.watchCommunicator(ctx) })
	return func() error {
		cancel()
		watch.Wait()
		return n.watchdogError()
	}
}

// watchCommunicator checks the communicator until ctx ends, and aborts it after an error or a time-out.
func (n *NCCL) watchCommunicator(ctx context.Context) {
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
			err = fmt.Errorf("a step took longer than the time-out of %v", n.options.Timeout)
		}
		if err != nil {
			n.abortCommunicator(ctx, err)
			return
		}
	}
}

// abortCommunicator records an error with cause and the missing rank, and starts to abort the communicator,
// which ends the waiting operations in the GPU's streams. All waiting ranks call abort at about the
// same time. It does not wait until the communicator is aborted: NCCL's function returns only after
// all graphs that captured a collective are destroyed, and the current step still uses them. Close
// waits for it.
func (n *NCCL) abortCommunicator(ctx context.Context, cause error) {
	err := fmt.Errorf("exchange gradients by NCCL: %w", n.addMissingRankError(ctx, cause))
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

func (n *NCCL) watchdogError() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Close destroys the communicator, or waits until it is aborted. Executables that used it must be
// closed first. Close does not close the group.
func (n *NCCL) Close() error {
	n.mu.Lock()
	comm, ended := n.comm, n.ended
	n.comm, n.ended = 0, nil
	n.mu.Unlock()
	switch {
	case comm != 0:
		ended = make(chan error, 1)
		go func() { ended <- n.gpu.RunOnNewThread(func() error { return n.lib.CommDestroy(comm) }) }()
	case ended == nil:
		return nil
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(n.options.SearchTimeout):
		return fmt.Errorf("close NCCL exchange: the communicator was not destroyed within %v", n.options.SearchTimeout)
	}
}
