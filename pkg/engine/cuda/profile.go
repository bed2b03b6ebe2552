package cuda

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cupti"
	"lockstep/pkg/internal/wholefile"
)

// KernelTime is the total time of one kernel, or of one cuDNN plan, in a profile.
type KernelTime struct {
	Kernel       string  // "bn_apply_bf16", "cudnn conv"; with ProfileKernels the name of the kernel function
	Layer        string  // "down.0.a.norm"; empty with ProfileKernels
	Part         string  // "forward", "backward", "optimizer", "input", "exchange"; with ProfileKernels "graph", or "launched" outside of graphs
	Calls        int     // number of calls
	Milliseconds float64 // total time of all calls
}

// Profile selects the training steps to profile. It must be called before the first step; steps
// 1 and 2 load kernels and capture the graph. NVTX marks for NVIDIA's profilers, such as "step
// 12", "data copy in 12", "forward", "backward" and "optimizer", are always set. A trace
// contains the times of all commands, with one row per stream. To measure them, the steps run
// with events between commands. Nobody has verified on a GPU that each time covers only its own
// kernel.
func (e *Engine) Profile(p engine.Profile) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return e.thread.do(func() error {
		e.gpu.profile = profiler{window: p, recordings: e.gpu.profile.recordings}
		return nil
	})
}

// ProfileKernels is like Profile, but measures the time of each kernel with CUPTI; KernelTimes
// returns the times. Steps run as usual, and kernels inside CUDA graphs are included, for which
// the graphs are captured again. NVIDIA's profilers cannot run at the same time, because they
// also use CUPTI. If CUPTI is not available, the error wraps a *clib.NotFoundError.
func (e *Engine) ProfileKernels(first, steps int) error {
	p := engine.Profile{First: first, Steps: steps}
	if err := p.Validate(); err != nil {
		return err
	}
	return e.thread.do(func() error {
		library, err := e.gpu.stack.CUPTI()
		if err != nil {
			return fmt.Errorf("profile kernels: %w", err)
		}
		e.gpu.profile = profiler{window: p, recordings: e.gpu.profile.recordings, cupti: library}
		return nil
	})
}

// KernelTimes returns the times that the last trace or the last ProfileKernels has measured, in
// descending order.
func (e *Engine) KernelTimes() (list []KernelTime, err error) {
	err = e.thread.do(func() error {
		list = e.gpu.profile.sumKernelTimes()
		return nil
	})
	return list, err
}

type profiler struct {
	window engine.Profile
	step   int  // current step, from 1
	on     bool // the window is open
	tracer *tracer
	cupti  *cupti.Library // nil without ProfileKernels
	done   []timedCommand
	// recordings counts the windows of ProfileKernels so far. CUPTI only observes graphs that
	// are created during a window, so graphs that were captured earlier are captured again.
	recordings int
}

func (g *gpu) streamNames() []struct {
	stream driver.Stream
	name   string
} {
	return []struct {
		stream driver.Stream
		name   string
	}{{g.compute, "compute"}, {g.copies, "copies"}, {g.exchange, "exchange"}}
}

// tracer records events before and after commands for a trace.
type tracer struct {
	base  driver.Event   // recorded in the compute stream when the window opened
	began time.Time      // the same moment on the host's clock
	free  []driver.Event // events that can be used again
	spans []span
	host  []timedCommand // exchanges on the host
}

// span is a command, or a group of commands, with an event before and an event after it.
type span struct {
	name, layer, part string
	stream            driver.Stream
	begin, end        driver.Event
}

// timedCommand is a span with its start, counted from the opening of the window, and its
// duration, both in µs.
type timedCommand struct {
	span
	start, took float64
}

// beginStep counts a training step. If the profile's window begins with this step, beginStep
// opens the window.
func (g *gpu) beginStep() error {
	p := &g.profile
	p.step++
	g.stack.NVTX.Push(fmt.Sprint("step ", p.step))
	if p.window.Steps == 0 || p.step != p.window.First {
		return nil
	}
	err := g.openProfileWindow()
	if err != nil {
		g.stack.NVTX.Pop() // ends the step's range
	}
	return err
}

func (g *gpu) openProfileWindow() error {
	p := &g.profile
	p.on = true
	if p.window.Trace != "" {
		p.tracer = &tracer{}
		// The GPU must be idle, so that the event and the host's time mark the same moment.
		err := g.synchronize()
		if err != nil {
			return err
		}
		if p.tracer.base, err = g.recordEvent(g.compute); err != nil {
			return err
		}
		p.tracer.began = time.Now()
	}
	if p.cupti != nil {
		if err := p.cupti.Start(); err != nil {
			p.on = false
			return fmt.Errorf("start kernel profile: %w", g.explainLostGPU(err))
		}
		p.recordings++
	}
	return g.explainLostGPU(g.driver.ProfilerStart())
}

// endStep ends a training step. If it is the last step of the window, endStep closes the window
// and writes the trace.
func (g *gpu) endStep() error {
	p := &g.profile
	g.stack.NVTX.Pop()
	if !p.on || p.step < p.window.First+p.window.Steps-1 {
		return nil
	}
	p.on = false
	err := g.explainLostGPU(g.driver.ProfilerStop())
	switch {
	case p.tracer != nil:
		return errors.Join(err, g.writeTrace())
	case p.cupti != nil:
		return errors.Join(err, g.storeKernelTimes())
	}
	return err
}

func (g *gpu) storeKernelTimes() error {
	p := &g.profile
	err := g.synchronize()
	list, stopErr := p.cupti.Stop()
	if err = errors.Join(err, stopErr); err != nil {
		return fmt.Errorf("read kernel profile: %w", err)
	}
	p.done = nil
	for _, k := range list {
		part := "launched"
		if k.GraphNode != 0 {
			part = "graph"
		}
		p.done = append(p.done, timedCommand{span{name: k.Name, part: part}, float64(k.Start) / 1e3, float64(k.End-k.Start) / 1e3})
	}
	return nil
}

// Limits of the work that keepGPUBusy enqueues: the number of bytes to clear, which takes about
// 10 ms at 4.3 TB/s, and the number of calls.
const (
	holdBytes = 40 << 30
	holdCalls = 64
)

// keepGPUBusy keeps the GPU busy while the host enqueues the beginning of a traced step.
// Otherwise the GPU would wait for the host between commands, and the events would measure
// the host's time. It clears the arena, whose contents are not needed between steps.
func (x *executable) keepGPUBusy() error {
	g := x.gpu
	if g.profile.tracer == nil || x.memory.arena.bytes == 0 {
		return nil
	}
	for range min(holdCalls, 1+holdBytes/x.memory.arena.bytes) {
		if err := g.driver.MemsetD8Async(x.memory.arena.ptr, 0, x.memory.arena.bytes, g.compute); err != nil {
			return g.explainLostGPU(err)
		}
	}
	return nil
}

func (g *gpu) recordEvent(s driver.Stream) (driver.Event, error) {
	t := g.profile.tracer
	var e driver.Event
	if n := len(t.free); n > 0 {
		e, t.free = t.free[n-1], t.free[:n-1]
	} else {
		var err error
		if e, err = g.driver.EventCreate(driver.EventDefault); err != nil {
			return 0, g.explainLostGPU(err)
		}
	}
	return e, g.explainLostGPU(g.driver.EventRecord(e, s))
}

// runTracedSpan runs f, which enqueues commands in s. If a trace is requested, it records an
// event before and after them.
func (g *gpu) runTracedSpan(name, layer, part string, s driver.Stream, f func() error) error {
	t := g.profile.tracer
	if t == nil {
		return f()
	}
	begin, err := g.recordEvent(s)
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	end, err := g.recordEvent(s)
	t.spans = append(t.spans, span{name, layer, part, s, begin, end})
	return err
}

// traceReductions adds the exchanges on the host that sync reports to the trace, except for
// those that began before begin.
func (g *gpu) traceReductions(sync engine.GradSync, begin time.Time) {
	t := g.profile.tracer
	if t == nil || sync == nil {
		return
	}
	reduced := sync.Capabilities().Reduced
	if reduced == nil {
		return
	}
	for _, r := range reduced() {
		if r.Begin.Before(begin) {
			continue
		}
		name := fmt.Sprint("all-reduce of bucket ", r.Bucket)
		if r.Bucket < 0 {
			name = "all-gather of statistics"
		}
		t.host = append(t.host, timedCommand{
			span{name: name, part: "exchange"},
			float64(r.Begin.Sub(t.began).Nanoseconds()) / 1e3, float64(r.Took.Nanoseconds()) / 1e3,
		})
	}
}

// measureSpans returns the recorded spans with their times. All enqueued work must be done.
func (g *gpu) measureSpans() ([]timedCommand, error) {
	t := g.profile.tracer
	var list []timedCommand
	for _, s := range t.spans {
		start, err1 := g.driver.EventElapsed(t.base, s.begin)
		took, err2 := g.driver.EventElapsed(s.begin, s.end)
		if err := errors.Join(err1, err2); err != nil {
			return nil, g.explainLostGPU(err)
		}
		list = append(list, timedCommand{s, 1e3 * float64(start), 1e3 * float64(took)})
	}
	return list, nil
}

// chromeEvent is an event in Chrome's Trace Event Format.
type chromeEvent struct {
	Name      string            `json:"name"`
	Category  string            `json:"cat,omitempty"`
	Phase     string            `json:"ph"`
	Start     float64           `json:"ts"`
	Duration  float64           `json:"dur,omitempty"`
	Process   int               `json:"pid"`
	Thread    int               `json:"tid"`
	Arguments map[string]string `json:"args,omitempty"`
}

// writeTrace writes the trace file and stores the times for KernelTimes.
func (g *gpu) writeTrace() error {
	p := &g.profile
	if err := g.synchronize(); err != nil {
		return err
	}
	var err error
	if p.done, err = g.measureSpans(); err != nil {
		return err
	}
	host := p.tracer.host
	events := []driver.Event{p.tracer.base}
	for _, s := range p.tracer.spans {
		events = append(events, s.begin, s.end)
	}
	for _, e := range append(events, p.tracer.free...) {
		if err := g.driver.EventDestroy(e); err != nil {
			return g.explainLostGPU(err)
		}
	}
	p.tracer = nil
	lines := []chromeEvent{{Name: "process_name", Phase: "M", Process: g.number, Arguments: map[string]string{"name": g.name}}}
	rows := map[driver.Stream]int{}
	for i, s := range g.streamNames() {
		rows[s.stream] = i + 1
		lines = append(lines, chromeEvent{Name: "thread_name", Phase: "M", Process: g.number, Thread: i + 1, Arguments: map[string]string{"name": s.name}})
	}
	for _, e := range p.done {
		lines = append(lines, chromeEvent{
			Name: e.name, Category: e.part, Phase: "X", Start: e.start, Duration: e.took,
			Process: g.number, Thread: rows[e.stream], Arguments: map[string]string{"layer": e.layer},
		})
	}
	if len(host) > 0 {
		row := len(rows) + 1
		lines = append(lines, chromeEvent{Name: "thread_name", Phase: "M", Process: g.number, Thread: row, Arguments: map[string]string{"name": "host"}})
		for _, e := range host {
			lines = append(lines, chromeEvent{Name: e.name, Category: e.part, Phase: "X", Start: e.start, Duration: e.took, Process: g.number, Thread: row})
		}
	}
	text, err := json.Marshal(map[string]any{"traceEvents": lines, "displayTimeUnit": "ms"})
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(p.window.Trace), 0o755); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	if err := wholefile.WriteBytes(p.window.Trace, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

func (p *profiler) sumKernelTimes() []KernelTime {
	type key struct{ kernel, layer, part string }
	sums := map[key]*KernelTime{}
	var order []*KernelTime
	for _, e := range p.done {
		k := key{e.name, e.layer, e.part}
		if sums[k] == nil {
			sums[k] = &KernelTime{Kernel: e.name, Layer: e.layer, Part: e.part}
			order = append(order, sums[k])
		}
		sums[k].Calls++
		sums[k].Milliseconds += e.took / 1e3
	}
	slices.SortStableFunc(order, func(a, b *KernelTime) int { return cmp.Compare(b.Milliseconds, a.Milliseconds) })
	list := make([]KernelTime, len(order))
	for i, k := range order {
		list[i] = *k
	}
	return list
}
