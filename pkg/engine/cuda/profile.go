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

// Profile describes a window of training steps to examine. NVIDIA's profilers record the
// window if they were started to wait for it (nsys profile -c cudaProfilerApi). The ranges
// "step 12", "data copy in 12", "forward", "backward" and "optimizer" are always marked for
// them (NVTX).
type Profile struct {
	First int // step, from 1; the first two steps load kernels and capture the graph
	Steps int
	// Trace is the path of a file for the times of all kernels, with one row per stream, in
	// the format of Chrome's trace viewer and Perfetto. The steps of the window then run
	// without graphs and with an event between any two kernels, so they take longer than
	// usual. Nobody has checked on a GPU whether each time is that of its kernel alone.
	Trace string
	// Kernels requests the time of each kernel from CUPTI while steps run as usual. Kernels
	// inside CUDA graphs are included; the graphs are captured again for this. KernelTimes
	// then returns the times. It cannot be combined with Trace or with NVIDIA's profilers,
	// which use CUPTI themselves.
	Kernels bool
}

// Validate returns an error for the first invalid field.
func (p Profile) Validate() error {
	switch {
	case p.First < 1:
		return fmt.Errorf("validate profile: the first step is %d: count from 1", p.First)
	case p.Steps < 1:
		return fmt.Errorf("validate profile: %d steps: use at least 1", p.Steps)
	case p.Kernels && p.Trace != "":
		return errors.New("validate profile: a trace, whose steps are not recorded, and the kernels of recorded steps: ask for one of them")
	}
	return nil
}

// KernelTime is the total time of one kernel, or of one convolution, in a profile.
type KernelTime struct {
	Kernel       string // "bn_apply_bf16", "cudnn conv"; of a profile of Kernels as the library calls it
	Layer        string // "down.0.a.norm"; empty in a profile of Kernels
	Part         string // "forward", "backward", "optimizer", "input", "exchange"; of Kernels "graph", or "launched" outside of graphs
	Calls        int
	Milliseconds float64 // total of all calls
}

// Profile sets the window of training steps to examine. Call it before the first step. The
// error wraps a *clib.NotFoundError if p.Kernels is set and CUPTI is not available.
func (e *Engine) Profile(p Profile) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return e.thread.do(func() error {
		next := profiler{window: p, recordings: e.gpu.profile.recordings}
		if p.Kernels {
			var err error
			if next.cupti, err = e.gpu.stack.CUPTI(); err != nil {
				return fmt.Errorf("profile kernels: %w", err)
			}
		}
		e.gpu.profile = next
		return nil
	})
}

// KernelTimes returns the kernels of the last profile that had Trace or Kernels set, in
// descending order of time.
func (e *Engine) KernelTimes() (list []KernelTime, err error) {
	err = e.thread.do(func() error {
		list = e.gpu.profile.times()
		return nil
	})
	return list, err
}

// profiler counts steps and records those of the window.
type profiler struct {
	window Profile
	step   int  // current step, from 1
	on     bool // the window is open
	tracer *tracer
	cupti  *cupti.Library // nil if Kernels is not set
	done   []event
	// recordings counts the windows with Kernels set. CUPTI must see how a graph is made,
	// so graphs from before such a window are captured again.
	recordings int
}

// streamNames returns the rows of a trace.
func (g *gpu) streamNames() []struct {
	stream driver.Stream
	name   string
} {
	return []struct {
		stream driver.Stream
		name   string
	}{{g.compute, "compute"}, {g.copies, "copies"}, {g.exchange, "exchange"}}
}

// tracer records an event before and after everything that is enqueued in a stream.
type tracer struct {
	base  driver.Event // recorded in the compute stream when the window opened
	began time.Time    // the same moment on the host's clock
	free  []driver.Event
	spans []span
	host  []event // events on the host
}

// span is a command between two events.
type span struct {
	name, layer, part string
	stream            driver.Stream
	begin, end        driver.Event
}

// event is a command with its times, in microseconds since the window opened.
type event struct {
	span
	start, took float64
}

// beginStep counts a step, and opens the window at its first step. Every training step
// calls it.
func (g *gpu) beginStep() error {
	p := &g.profile
	p.step++
	g.stack.NVTX.Push(fmt.Sprint("step ", p.step))
	if p.window.Steps == 0 || p.step != p.window.First {
		return nil
	}
	err := g.openWindow()
	if err != nil {
		g.stack.NVTX.Pop() // ends the step's range
	}
	return err
}

// openWindow starts the recordings that the profile needs.
func (g *gpu) openWindow() error {
	p := &g.profile
	p.on = true
	if p.window.Trace != "" {
		p.tracer = &tracer{}
		// The GPU is idle now, so that the host's clock and the GPU's clock start together.
		err := g.synchronize()
		if err != nil {
			return err
		}
		if p.tracer.base, err = g.mark(g.compute); err != nil {
			return err
		}
		p.tracer.began = time.Now()
	}
	if p.cupti != nil {
		if err := p.cupti.Start(); err != nil {
			p.on = false
			return fmt.Errorf("profile kernels: %w", g.failed(err))
		}
		p.recordings++
	}
	return g.failed(g.driver.ProfilerStart())
}

// endStep closes the window after its last step, and writes the trace.
func (g *gpu) endStep() error {
	p := &g.profile
	g.stack.NVTX.Pop()
	if !p.on || p.step < p.window.First+p.window.Steps-1 {
		return nil
	}
	p.on = false
	err := g.failed(g.driver.ProfilerStop())
	switch {
	case p.tracer != nil:
		return errors.Join(err, g.writeTrace())
	case p.cupti != nil:
		return errors.Join(err, g.takeKernels())
	}
	return err
}

// takeKernels stops CUPTI's recording and stores the kernels.
func (g *gpu) takeKernels() error {
	p := &g.profile
	err := g.synchronize()
	list, stopErr := p.cupti.Stop()
	if err = errors.Join(err, stopErr); err != nil {
		return fmt.Errorf("profile kernels: %w", err)
	}
	p.done = nil
	for _, k := range list {
		part := "launched"
		if k.GraphNode != 0 {
			part = "graph"
		}
		p.done = append(p.done, event{span{name: k.Name, part: part}, float64(k.Start) / 1e3, float64(k.End-k.Start) / 1e3})
	}
	return nil
}

// Limits of the work that is enqueued before a traced step: bytes to clear, which take
// about 10 ms at 4.3 TB/s, and number of calls.
const (
	holdBytes = 40 << 30
	holdCalls = 64
)

// holdBack keeps the GPU busy while the host enqueues the first part of a traced step. Such
// a step is enqueued kernel by kernel, with two events each. If the GPU waited for the
// host, the time between two events would be the host's time. The arena may be cleared for
// this, since it contains nothing between two steps.
func (x *executable) holdBack() error {
	g := x.gpu
	if g.profile.tracer == nil || x.memory.arena.bytes == 0 {
		return nil
	}
	for range min(holdCalls, 1+holdBytes/x.memory.arena.bytes) {
		if err := g.driver.MemsetD8Async(x.memory.arena.ptr, 0, x.memory.arena.bytes, g.compute); err != nil {
			return g.failed(err)
		}
	}
	return nil
}

// mark records a new event of the tracer in a stream.
func (g *gpu) mark(s driver.Stream) (driver.Event, error) {
	t := g.profile.tracer
	var e driver.Event
	if n := len(t.free); n > 0 {
		e, t.free = t.free[n-1], t.free[:n-1]
	} else {
		var err error
		if e, err = g.driver.EventCreate(driver.EventDefault); err != nil {
			return 0, g.failed(err)
		}
	}
	return e, g.failed(g.driver.EventRecord(e, s))
}

// traced runs f, which enqueues commands in s, between two events. Without a trace it only
// runs f.
func (g *gpu) traced(name, layer, part string, s driver.Stream, f func() error) error {
	t := g.profile.tracer
	if t == nil {
		return f()
	}
	begin, err := g.mark(s)
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	end, err := g.mark(s)
	t.spans = append(t.spans, span{name, layer, part, s, begin, end})
	return err
}

// reduced adds to the trace when the buckets of the step that began at begin were exchanged
// on the host, if sync reports it. sync may also report earlier steps, which are left out.
func (g *gpu) reduced(sync engine.GradSync, begin time.Time) {
	t := g.profile.tracer
	s, ok := sync.(engine.Reducing)
	if t == nil || !ok {
		return
	}
	for _, r := range s.Reduced() {
		if r.Begin.Before(begin) {
			continue
		}
		name := fmt.Sprint("all-reduce of bucket ", r.Bucket)
		if r.Bucket < 0 {
			name = "all-gather of statistics"
		}
		t.host = append(t.host, event{
			span{name: name, part: "exchange"},
			float64(r.Begin.Sub(t.began).Nanoseconds()) / 1e3, float64(r.Took.Nanoseconds()) / 1e3,
		})
	}
}

// resolve returns the times of all spans. All enqueued work must be done.
func (g *gpu) resolve() ([]event, error) {
	t := g.profile.tracer
	var list []event
	for _, s := range t.spans {
		start, err1 := g.driver.EventElapsed(t.base, s.begin)
		took, err2 := g.driver.EventElapsed(s.begin, s.end)
		if err := errors.Join(err1, err2); err != nil {
			return nil, g.failed(err)
		}
		list = append(list, event{s, 1e3 * float64(start), 1e3 * float64(took)})
	}
	return list, nil
}

// chromeEvent is one event of a trace in the Trace Event Format.
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

// writeTrace ends the trace: it writes the file and stores the times for KernelTimes.
func (g *gpu) writeTrace() error {
	p := &g.profile
	if err := g.synchronize(); err != nil {
		return err
	}
	var err error
	if p.done, err = g.resolve(); err != nil {
		return err
	}
	host := p.tracer.host
	events := []driver.Event{p.tracer.base}
	for _, s := range p.tracer.spans {
		events = append(events, s.begin, s.end)
	}
	for _, e := range append(events, p.tracer.free...) {
		if err := g.driver.EventDestroy(e); err != nil {
			return g.failed(err)
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

// times returns the total time of each kernel in the trace.
func (p *profiler) times() []KernelTime {
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
