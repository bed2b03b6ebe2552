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

// Profile is a window of training steps to look into. While it lasts,
// NVIDIA's profilers record where they were told to wait for it
// (nsys profile -c cudaProfilerApi); the ranges "step 12", "data copy in 12",
// "forward", "backward" and "optimizer" are marked for them (NVTX) at all times.
type Profile struct {
	First int // step, from 1: the first two are for warming up and recording
	Steps int
	// Trace is a file for the time of every kernel, as Chrome's trace viewer and
	// Perfetto read it, with a row a stream. The steps of the window then run
	// unrecorded, with an event between any two kernels, so that the sum of all times is
	// longer than a step. Whether each time is that of the kernel alone was not checked on
	// a GPU.
	Trace string
	// Kernels asks CUPTI when each kernel runs while the steps run as they always do,
	// inside CUDA graphs too, which are recorded anew for it; KernelTimes has them then.
	// Not together with Trace, or under a profiler of NVIDIA's, which uses CUPTI itself.
	Kernels bool
}

// Validate reports the first field that cannot be.
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

// KernelTime is the time of one kernel, or one convolution, in a profile.
type KernelTime struct {
	Kernel       string // "bn_apply_bf16", "cudnn conv"; of a profile of Kernels as the library calls it
	Layer        string // "down.0.a.norm"; empty in a profile of Kernels
	Part         string // "forward", "backward", "optimizer", "input", "exchange"; of Kernels "graph", or "launched" outside of graphs
	Calls        int
	Milliseconds float64 // of all calls
}

// Profile sets the window of the engine's training steps. Call it before they
// begin. An error wraps a *clib.NotFoundError where Kernels are asked for and CUPTI is
// not there.
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

// KernelTimes are the kernels of the last profile with a trace, or of Kernels, those
// that took longest first.
func (e *Engine) KernelTimes() (list []KernelTime, err error) {
	err = e.thread.do(func() error {
		list = e.gpu.profile.times()
		return nil
	})
	return list, err
}

// profiler counts steps and records the window's.
type profiler struct {
	window Profile
	step   int  // under way, from 1
	on     bool // the window is open
	tracer *tracer
	cupti  *cupti.Library // nil: kernels are not asked for
	done   []event
	// recordings counts the windows in which CUPTI had to see graphs being made:
	// those from before are recorded again.
	recordings int
}

// streamNames are the rows of a trace.
func (g *gpu) streamNames() []struct {
	stream driver.Stream
	name   string
} {
	return []struct {
		stream driver.Stream
		name   string
	}{{g.compute, "compute"}, {g.copies, "copies"}, {g.exchange, "exchange"}}
}

// tracer records an event in front of and behind everything that is put in a
// stream.
type tracer struct {
	base  driver.Event // in the compute stream, when the window opened
	began time.Time    // by the host's clock
	free  []driver.Event
	spans []span
	host  []event // what happened there
}

// span is a command between two events.
type span struct {
	name, layer, part string
	stream            driver.Stream
	begin, end        driver.Event
}

// event is a span with its times, in microseconds since the window opened.
type event struct {
	span
	start, took float64
}

// beginStep opens the window where it begins. Every training step calls it.
func (g *gpu) beginStep() error {
	p := &g.profile
	p.step++
	g.stack.NVTX.Push(fmt.Sprint("step ", p.step))
	if p.window.Steps == 0 || p.step != p.window.First {
		return nil
	}
	err := g.openWindow()
	if err != nil {
		g.stack.NVTX.Pop() // the step ends here
	}
	return err
}

// openWindow begins what the window is for.
func (g *gpu) openWindow() error {
	p := &g.profile
	p.on = true
	if p.window.Trace != "" {
		p.tracer = &tracer{}
		// Nothing is under way, so that the two clocks begin together.
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

// endStep closes the window where it ends, and writes the trace.
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

// takeKernels ends CUPTI's recording.
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

// What is put in front of a traced step: bytes to clear, which take about 10 ms at 4.3 TB/s,
// and calls at most.
const (
	holdBytes = 40 << 30
	holdCalls = 64
)

// holdBack keeps the GPU busy while the host puts the first part of a traced step in
// the stream. A step that is not recorded is put there kernel by kernel, two events
// with each: where the GPU waits for that, the time between the events is the host's.
// The arena holds nothing between two steps.
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

// mark records an event of the tracer's in a stream.
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

// traced runs f, which puts something in a stream, between two events; without a
// trace it only runs f.
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

// reduced records when the buckets of a step that began at begin were exchanged on the
// host, where sync says it; it may know of steps before, too.
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

// resolve reads the times of all spans; everything that was enqueued must be
// done.
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

// chromeEvent is a line of a trace, after the Trace Event Format.
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

// writeTrace ends the trace: its file, and the times for KernelTimes.
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

// times sums the spans of a trace up.
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
