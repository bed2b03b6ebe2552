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
// by our kernel or by cuDNN within the convolution before. In the backward pass they are
// Σ dy and Σ dy·x̂, from which dx is computed; dgamma and dbeta stay this worker's own, like
// the gradient of any parameter. Workers may have batches of different sizes, which is why
// the rows are added up too.
//
// With NCCL, a synchronization is an all-reduce within the captured step, in the exchange
// stream, for which the compute stream waits. All ranks must call NCCL in the same order,
// or they wait for each other forever. They do: all that a rank exchanges, buckets and
// vectors, goes through one communicator, in one stream, issued by one thread in the order
// of the program, which is the same on all ranks but for the batch size. The all-reduces
// are a chain, which capture keeps. The first of them waits only for a rank's own
// computation. If all before the n-th complete on all ranks, the n-th is next on all of
// them, and what it waits for in the compute stream waits only for those before it, so it
// completes too. A second communicator would let a vector overtake a bucket that is being
// reduced, but two all-reduces at once may each hold the multiprocessors that the other one
// lacks on another GPU. Therefore a vector waits for the buckets before it. Ranks capture a
// step at the same time, as NCCL demands: when it runs for the second time.
//
// On the host, where ranks share a GPU or NCCL is missing, a step is split at each
// synchronization: the vector is copied to page-locked memory, engine.NormSync exchanges
// it, and the sum is copied back. The commands between two synchronizations are a graph.
// Per batch norm and step this costs two more launches, two copies and a wait of the host,
// during which the GPU is idle; see splitStep.
//
// A worker that is alone synchronizes nothing, and computes the bits of a batch norm that
// is not synchronized.

// normSyncs holds what an executable needs for its synchronized batch norms.
type normSyncs struct {
	commands map[int][]command // by task: the commands with a normSyncCall among them, which replace schedule.commands
	vector   block             // float64
	partial  block             // sums for the computation of dx, while a task runs
	host     pinned            // copy of vector for an exchange on the host

	statistics engine.NormExchange // of the current step
}

// normSyncCall is a synchronization point. If by is nil it only marks where the step is
// split; otherwise it exchanges the vector between GPUs.
type normSyncCall struct {
	layer   string
	vector  driver.Ptr
	doubles int
	by      engine.DeviceNormSync
	fork    driver.Event
	join    driver.Event
}

func (c *normSyncCall) run(g *gpu, s driver.Stream) error {
	if err := c.begin(g, s); err != nil {
		return err
	}
	if err := c.enqueue(g); err != nil {
		return err
	}
	return c.end(g, s)
}

// traced enqueues the exchange like run, between two events of a trace.
func (c *normSyncCall) traced(g *gpu, s driver.Stream) error {
	if err := c.begin(g, s); err != nil {
		return err
	}
	if err := g.traced(c.label(), c.layer, "exchange", g.exchange, func() error { return c.enqueue(g) }); err != nil {
		return err
	}
	return c.end(g, s)
}

// begin makes the exchange wait for the vector.
func (c *normSyncCall) begin(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.fork, s); err != nil {
		return g.failed(err)
	}
	return g.failed(g.driver.StreamWaitEvent(g.exchange, c.fork))
}

func (c *normSyncCall) enqueue(g *gpu) error {
	if err := c.by.SumStatistics(device.Buffer{Pointer: uintptr(c.vector), Type: device.F64, Elements: c.doubles}, device.Stream{Handle: uintptr(g.exchange)}); err != nil {
		return fmt.Errorf("batch norm %s: exchange statistics: %w", c.layer, err)
	}
	return nil
}

// end makes the compute stream wait for the exchange.
func (c *normSyncCall) end(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.join, g.exchange); err != nil {
		return g.failed(err)
	}
	return g.failed(g.driver.StreamWaitEvent(s, c.join))
}

func (c *normSyncCall) label() string { return "exchange statistics" }

// normSyncOf returns the synchronization point that c is, or nil.
func normSyncOf(c command) *normSyncCall {
	if n, ok := c.(*named); ok {
		c = n.command
	}
	m, _ := c.(*normSyncCall)
	return m
}

// prepareNormSync allocates the vector, and makes the commands of the tasks that synchronize
// workers.
func (x *executable) prepareNormSync() error {
	channels := 0
	for _, k := range x.program.Kernels {
		if k.Attr.Sync {
			channels = max(channels, x.memory.locations[k.In[0]].padded())
		}
	}
	if channels == 0 {
		return nil
	}
	x.exchange.norms.vector.bytes = int64(8 * kernels.VectorDoubles(channels))
	x.exchange.norms.partial.bytes = int64(4 * 2 * channels)
	for _, b := range []*block{&x.exchange.norms.vector, &x.exchange.norms.partial} {
		if err := x.gpu.allocate(b); err != nil {
			return x.explainOutOfMemory(err)
		}
	}
	x.exchange.norms.commands = map[int][]command{}
	for i, t := range x.tasks {
		list, err := x.syncedCommands(i, t)
		if err != nil {
			return fmt.Errorf("kernel %s %q: %w", t.op, t.name, err)
		}
		if list != nil {
			x.exchange.norms.commands[i] = x.named(i, list)
		}
	}
	return nil
}

// normSyncCommand returns the command that synchronizes the vector of a layer.
func (x *executable) normSyncCommand(layer string, channels int) command {
	return &normSyncCall{layer: layer, vector: x.exchange.norms.vector.ptr, doubles: kernels.VectorDoubles(channels), fork: x.exchange.fork, join: x.exchange.join}
}

// vector returns the address of the vector for our kernels.
func (x *executable) vector() kernels.Pointer { return kernels.Pointer(x.exchange.norms.vector.ptr) }

// syncedCommands returns the commands of task t if it synchronizes workers, and nil otherwise.
func (x *executable) syncedCommands(i int, t task) ([]command, error) {
	switch {
	case t.stats != nil && t.stats.sync:
		return x.syncedStatistics(i)
	case t.op == plan.OpBatchNorm && t.attr.Sync && !t.given:
		b := x.normOf(t)
		moments, err1 := x.gpu.calls(b.Moments(x.typ(t.in[0]), x.vector()))
		join, err2 := x.gpu.calls(b.Join(x.vector()))
		apply, err3 := x.gpu.calls(b.Apply(x.typ(t.in[0])))
		return around(x.normSyncCommand(t.name, b.Channels), moments, append(join, apply...), err1, err2, err3)
	case t.op == plan.OpBatchNormBackward && t.attr.Sync && t.out[0] >= 0:
		b := x.normGradOf(t)
		sums, err1 := x.gpu.calls(b.Sums(x.typ(t.in[0]), x.vector()))
		joined, err2 := x.gpu.calls(b.Joined(x.typ(t.in[0]), x.vector(), kernels.Pointer(x.exchange.norms.partial.ptr)))
		return around(x.normSyncCommand(t.name, b.Channels), sums, joined, err1, err2)
	}
	return nil, nil
}

// syncedStatistics returns the commands of a convolution that also sums for the batch norm
// after it, with the synchronization after the kernel that sums.
func (x *executable) syncedStatistics(i int) ([]command, error) {
	t, list := x.tasks[i], slices.Clone(x.schedule.commands[i])
	for k, c := range list {
		if n, ok := c.(*named); ok {
			list[k] = n.command // prepareNormSync names them
		}
	}
	at := slices.IndexFunc(list, func(c command) bool { return c.label() == "bn_sums" || strings.HasPrefix(c.label(), "bn_stats_") })
	if at < 0 {
		return nil, errors.New("no kernel after it makes statistics")
	}
	b := x.statisticsOf(t)
	var moments []command
	var err error
	if list[at].label() == "bn_sums" {
		moments, err = x.gpu.calls(b.MomentsOfSums(x.pointer(t.stats.sum), x.pointer(t.stats.square), x.vector()))
	} else {
		moments, err = x.gpu.calls(b.Moments(x.typ(t.out[0]), x.vector()))
	}
	join, joinErr := x.gpu.calls(b.Join(x.vector()))
	return around(x.normSyncCommand(t.stats.layer, b.Channels), slices.Concat(list[:at], moments), join, err, joinErr)
}

// around returns before, synchronization and after as one list, unless one of errs is set.
func around(synchronization command, before, after []command, errs ...error) ([]command, error) {
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.Concat(before, []command{synchronization}, after), nil
}

// statisticsExchange reports whether sync exchanges the statistics of a step: through device,
// or through the host if device is nil. synced is false if the program has no synchronized
// batch norm or the worker is alone.
func (x *executable) statisticsExchange(sync engine.GradSync) (synced bool, device engine.DeviceNormSync, err error) {
	if sync == nil || !x.program.Synchronised() {
		return false, nil, nil
	}
	if d, ok := sync.(engine.DeviceNormSync); ok && sync.Capturable() {
		return true, d, nil
	}
	if err := x.exchange.norms.statistics.Begin(sync); err != nil {
		return false, nil, err
	}
	// An exchange on the host cannot be captured in a graph, unless nothing is exchanged.
	return !sync.Capturable(), nil, nil
}

// commandsOf returns the commands of a task in the step that key describes.
func (x *executable) commandsOf(task int, key replayKey) []command {
	list := x.exchange.norms.commands[task]
	switch {
	case list == nil || !key.syncNorms:
		return x.schedule.commands[task]
	case key.deviceSync == nil:
		return list
	}
	list = slices.Clone(list)
	for i, c := range list {
		if m := normSyncOf(c); m != nil {
			call := *m
			call.by = key.deviceSync
			list[i] = &named{&call, call.layer, task}
		}
	}
	return list
}

// splitAtNorms splits a list of commands into sections at its synchronization points. Each
// section but the last ends with the copy of the vector to the host, and each but the first
// begins with the copy back.
func (x *executable) splitAtNorms(name, part string, list []command) ([]*section, error) {
	var all []*section
	var now []command
	for _, c := range list {
		m := normSyncOf(c)
		if m == nil {
			now = append(now, c)
			continue
		}
		if err := x.pinVector(); err != nil {
			return nil, err
		}
		bytes := int64(8 * m.doubles)
		now = append(now, &named{&copyToHost{x.exchange.norms.host, m.vector, bytes}, m.layer, 0})
		all = append(all, &section{name: fmt.Sprintf("%s, to batch norm %s", name, m.layer), phases: []phase{{part, now, 0}}, normSync: m})
		now = []command{&named{&upCall{m.vector, x.exchange.norms.host, bytes}, m.layer, 0}}
	}
	return append(all, &section{name: name, phases: []phase{{part, now, 0}}}), nil
}

// pinVector allocates the page-locked copy of the vector.
func (x *executable) pinVector() (err error) {
	if x.exchange.norms.host.ptr == nil {
		x.exchange.norms.host, err = x.gpu.pin(x.exchange.norms.vector.bytes)
	}
	return err
}

// syncNormOnHost waits for the copy of this worker's vector to the host, and adds up the
// vectors of all workers there.
func (x *executable) syncNormOnHost(m *normSyncCall) error {
	if err := x.gpu.driver.StreamSynchronize(x.gpu.compute); err != nil {
		return x.gpu.failed(err)
	}
	v := unsafe.Slice((*float64)(x.exchange.norms.host.ptr), m.doubles)
	n := (m.doubles - 1) / 2
	rows, err := x.exchange.norms.statistics.Sums(v[0], v[1:1+n], v[1+n:])
	if err != nil {
		return fmt.Errorf("batch norm %s: %w", m.layer, err)
	}
	v[0] = rows
	return nil
}
