package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// Synchronized batch norms (plan.Attr.Sync) use the statistics of all workers' batches.
// Each pass over such a batch norm has a synchronization point: this worker's number of
// rows and two sums per channel, in one float64 vector on the GPU, are added up over the
// workers before any kernel reads them. In the forward pass the sums are Σ x and Σ x², made
// by our kernel or by cuDNN within the convolution before. In the backward pass they are Σ
// dy and Σ dy·x̂, from which dx is computed; dgamma and dbeta stay this worker's own, like
// the gradient of any parameter. Workers may have batches of different sizes, which is why
// the rows are added up too.
//
// With NCCL, a synchronization is an all-reduce within the captured step, in the exchange
// stream, for which the compute stream waits. All ranks must call NCCL in the same order,
// or they wait for each other forever. They do: one thread issues all all-reduces of a
// rank, of buckets and vectors, through one communicator, in one stream and in the order of
// the program, which is the same on all ranks but for the batch size. Capture keeps this
// order. By induction every all-reduce completes: the computation for which it waits
// depends only on earlier ones. A second communicator would let a vector overtake a bucket
// that is being reduced, but two all-reduces at once may each hold the multiprocessors that
// the other one lacks on another GPU. Ranks capture a step at the same time, as NCCL
// demands: when it runs for the second time.
//
// On the host, where ranks share a GPU or NCCL is missing, a step is split at each
// synchronization: the vector is copied to page-locked memory, GradSync exchanges
// it, and the sum is copied back. The commands between two synchronizations are a graph.
// Per batch norm and step this costs two more launches, two copies and a wait of the host,
// during which the GPU is idle; see runSplitStep.
//
// A worker that is alone synchronizes nothing, and computes the bits of a batch norm that
// is not synchronized.

// normSyncState contains the state for an executable's synchronized batch norms.
type normSyncState struct {
	commands map[int][]command // by task: commands that contain a normSyncCall and replace schedule.commands
	vector   memoryBlock       // the sums that workers exchange, in float64
	partial  memoryBlock       // scratch memory for the sums with which dx is computed
	host     pinnedMemory      // copy of vector, for an exchange on the host

	statistics engine.NormExchange // of the current step
}

// normSyncCall is the synchronization point of a batch norm. If exchanger is nil, it only
// marks where the step is split; otherwise it exchanges the vector of sums between GPUs.
type normSyncCall struct {
	layer     string
	vector    driver.Ptr
	doubles   int
	exchanger engine.GradSync
	fork      driver.Event
	join      driver.Event
}

func (c *normSyncCall) run(g *gpu, s driver.Stream) error {
	if err := c.beginExchange(g, s); err != nil {
		return err
	}
	if err := c.enqueue(g); err != nil {
		return err
	}
	return c.awaitExchange(g, s)
}

func (c *normSyncCall) runTraced(g *gpu, s driver.Stream) error {
	if err := c.beginExchange(g, s); err != nil {
		return err
	}
	if err := g.runTracedSpan(c.label(), c.layer, "exchange", g.exchange, func() error { return c.enqueue(g) }); err != nil {
		return err
	}
	return c.awaitExchange(g, s)
}

func (c *normSyncCall) beginExchange(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.fork, s); err != nil {
		return g.explainLostGPU(err)
	}
	return g.explainLostGPU(g.driver.StreamWaitEvent(g.exchange, c.fork))
}

func (c *normSyncCall) enqueue(g *gpu) error {
	if err := c.exchanger.Capabilities().SumStatistics(device.Buffer{Pointer: uintptr(c.vector), Type: device.F64, Elements: c.doubles}, device.Stream{Handle: uintptr(g.exchange)}); err != nil {
		return fmt.Errorf("batch norm %s: exchange statistics: %w", c.layer, err)
	}
	return nil
}

func (c *normSyncCall) awaitExchange(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.join, g.exchange); err != nil {
		return g.explainLostGPU(err)
	}
	return g.explainLostGPU(g.driver.StreamWaitEvent(s, c.join))
}

func (c *normSyncCall) label() string { return "exchange statistics" }

// asNormSync returns c as a normSyncCall, or nil if c is another command.
func asNormSync(c command) *normSyncCall {
	if n, ok := c.(*taskCommand); ok {
		c = n.command
	}
	m, _ := c.(*normSyncCall)
	return m
}

// prepareNormSync allocates the vector of sums that workers exchange, and creates the commands
// of the tasks that use it.
func (x *executable) prepareNormSync() error {
	channels := 0
	for _, k := range x.program.Kernels {
		if k.Attr.Sync {
			channels = max(channels, x.memory.locations[k.In[0]].paddedChannels())
		}
	}
	if channels == 0 {
		return nil
	}
	x.exchange.norms.vector.bytes = int64(8 * kernels.NormVectorLength(channels))
	x.exchange.norms.partial.bytes = int64(4 * 2 * channels)
	for _, b := range []*memoryBlock{&x.exchange.norms.vector, &x.exchange.norms.partial} {
		if err := x.gpu.allocate(b); err != nil {
			return x.explainOutOfMemory(err)
		}
	}
	x.exchange.norms.commands = map[int][]command{}
	for i, t := range x.tasks {
		list, err := x.newSyncedCommands(i, t)
		if err != nil {
			return fmt.Errorf("prepare synchronized kernel %s %q: %w", t.op, t.name, err)
		}
		if list != nil {
			x.exchange.norms.commands[i] = x.tagCommands(i, list)
		}
	}
	return nil
}

func (x *executable) newNormSyncCall(layer string, channels int) command {
	return &normSyncCall{layer: layer, vector: x.exchange.norms.vector.ptr, doubles: kernels.NormVectorLength(channels), fork: x.exchange.fork, join: x.exchange.join}
}

func (x *executable) normSyncVectorPointer() kernels.Pointer {
	return kernels.Pointer(x.exchange.norms.vector.ptr)
}

// newSyncedCommands returns the commands of task t, including its synchronization point. It
// returns nil if t does not synchronize. i is the index of t.
func (x *executable) newSyncedCommands(i int, t loweredTask) ([]command, error) {
	switch {
	case t.stats != nil && t.stats.sync:
		return x.newSyncedStatisticsCommands(i)
	case t.op == plan.OpBatchNorm && t.attr.Sync && !t.precomputed:
		b := x.batchNormParams(t)
		moments, err1 := x.gpu.newKernelCalls(b.Moments(x.kernelElementType(t.in[0]), x.normSyncVectorPointer()))
		join, err2 := x.gpu.newKernelCalls(b.StatisticsFromVector(x.normSyncVectorPointer()))
		apply, err3 := x.gpu.newKernelCalls(b.Apply(x.kernelElementType(t.in[0])))
		return joinAroundSynchronization(x.newNormSyncCall(t.name, b.Channels), moments, append(join, apply...), err1, err2, err3)
	case t.op == plan.OpBatchNormBackward && t.attr.Sync && t.out[0] >= 0:
		b := x.normGradParams(t)
		sums, err1 := x.gpu.newKernelCalls(b.ReduceToVector(x.kernelElementType(t.in[0]), x.normSyncVectorPointer()))
		joined, err2 := x.gpu.newKernelCalls(b.ApplyFromVector(x.kernelElementType(t.in[0]), x.normSyncVectorPointer(), kernels.Pointer(x.exchange.norms.partial.ptr)))
		return joinAroundSynchronization(x.newNormSyncCall(t.name, b.Channels), sums, joined, err1, err2)
	}
	return nil, nil
}

// newSyncedStatisticsCommands returns the commands of task i, a convolution that computes
// statistics, with a synchronization point after the kernel that computes the sums.
func (x *executable) newSyncedStatisticsCommands(i int) ([]command, error) {
	t, list := x.tasks[i], slices.Clone(x.schedule.commands[i])
	for k, c := range list {
		if n, ok := c.(*taskCommand); ok {
			list[k] = n.command // prepareNormSync names them
		}
	}
	at := slices.IndexFunc(list, func(c command) bool { return c.label() == "bn_sums" || strings.HasPrefix(c.label(), "bn_stats_") })
	if at < 0 {
		return nil, errors.New("no kernel after the convolution computes statistics")
	}
	b := x.fusedStatisticsParams(t)
	var moments []command
	var err error
	if list[at].label() == "bn_sums" {
		moments, err = x.gpu.newKernelCalls(b.MomentsFromSums(x.tensorPointer(t.stats.sum), x.tensorPointer(t.stats.square), x.normSyncVectorPointer()))
	} else {
		moments, err = x.gpu.newKernelCalls(b.Moments(x.kernelElementType(t.out[0]), x.normSyncVectorPointer()))
	}
	join, joinErr := x.gpu.newKernelCalls(b.StatisticsFromVector(x.normSyncVectorPointer()))
	return joinAroundSynchronization(x.newNormSyncCall(t.stats.layer, b.Channels), slices.Concat(list[:at], moments), join, err, joinErr)
}

func joinAroundSynchronization(synchronization command, before, after []command, errs ...error) ([]command, error) {
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.Concat(before, []command{synchronization}, after), nil
}

// resolveStatisticsSync determines how a step exchanges the statistics of its batch norms. sync
// exchanges the step's gradients. synced is false if the program has no synchronized batch norm
// or there is only one worker. If onDevice is set, sync exchanges the statistics between GPUs,
// otherwise on the host.
func (x *executable) resolveStatisticsSync(sync engine.GradSync) (synced, onDevice bool, err error) {
	if sync == nil || !x.program.HasSyncBatchNorm() {
		return false, false, nil
	}
	c := sync.Capabilities()
	if c.SumStatistics != nil && c.Enqueues {
		return true, true, nil
	}
	if err := x.exchange.norms.statistics.BeginStep(sync); err != nil {
		return false, false, err
	}
	// An exchange on the host cannot be captured in a graph, unless nothing is exchanged.
	return !c.Enqueues, false, nil
}

func (x *executable) taskCommands(task int, key replayKey) []command {
	list := x.exchange.norms.commands[task]
	switch {
	case list == nil || !key.syncNorms:
		return x.schedule.commands[task]
	case key.deviceSync == nil:
		return list
	}
	list = slices.Clone(list)
	for i, c := range list {
		if m := asNormSync(c); m != nil {
			call := *m
			call.exchanger = key.deviceSync
			list[i] = &taskCommand{&call, call.layer, task}
		}
	}
	return list
}

// splitAtNormSyncs divides the commands in list into sections at the synchronization points.
// Each section except the last ends with a copy of the sums to the host. Each section except
// the first begins with a copy of the totals to the GPU.
func (x *executable) splitAtNormSyncs(name, part string, list []command) ([]*commandSection, error) {
	var all []*commandSection
	var now []command
	for _, c := range list {
		m := asNormSync(c)
		if m == nil {
			now = append(now, c)
			continue
		}
		if err := x.allocateHostVector(); err != nil {
			return nil, err
		}
		bytes := int64(8 * m.doubles)
		now = append(now, &taskCommand{&copyToHostCall{x.exchange.norms.host, m.vector, bytes}, m.layer, 0})
		all = append(all, &commandSection{name: fmt.Sprintf("%s, to batch norm %s", name, m.layer), phases: []sectionPhase{{part, now, 0}}, normSync: m})
		now = []command{&taskCommand{&copyToGPUCall{m.vector, x.exchange.norms.host, bytes}, m.layer, 0}}
	}
	return append(all, &commandSection{name: name, phases: []sectionPhase{{part, now, 0}}}), nil
}

func (x *executable) allocateHostVector() (err error) {
	if x.exchange.norms.host.ptr == nil {
		x.exchange.norms.host, err = x.gpu.allocatePinned(x.exchange.norms.vector.bytes)
	}
	return err
}

// syncNormOnHost waits for this worker's sums and replaces them by all workers' totals.
func (x *executable) syncNormOnHost(m *normSyncCall) error {
	if err := x.gpu.driver.StreamSynchronize(x.gpu.compute); err != nil {
		return x.gpu.explainLostGPU(err)
	}
	v := unsafe.Slice((*float64)(x.exchange.norms.host.ptr), m.doubles)
	n := (m.doubles - 1) / 2
	rows, err := x.exchange.norms.statistics.CombineSums(v[0], v[1:1+n], v[1+n:])
	if err != nil {
		return fmt.Errorf("batch norm %s: %w", m.layer, err)
	}
	v[0] = rows
	return nil
}
