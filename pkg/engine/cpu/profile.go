package cpu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/internal/wholefile"
)

// KernelTime is the total time of one kernel in a profile.
type KernelTime struct {
	Kernel       string // "conv", "adam"
	Layer        string // "down.0.a.norm"
	Part         string // "forward", "backward", "optimizer", "input", "exchange"
	Calls        int
	Milliseconds float64 // of all calls and threads
}

// Profile sets which training steps to record. Steps are counted from this call on; only
// steps with a backward pass count. The trace has one row per thread with the time of every
// kernel, and rows for steps, data (see RecordWait), the exchange of gradients, and
// reductions. Each step has the argument "synchronizations": how often its threads waited for
// each other. Recording reads the clock twice per thread and kernel.
func (e *Engine) Profile(p engine.Profile) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if p.Trace == "" {
		return errors.New("profile steps: no file was given for the trace")
	}
	e.profile.mu.Lock()
	defer e.profile.mu.Unlock()
	e.profile.window, e.profile.step, e.profile.done = p, 0, nil
	return nil
}

// KernelTimes returns the times of the kernels in the last profile, longest first.
func (e *Engine) KernelTimes() []KernelTime {
	e.profile.mu.Lock()
	defer e.profile.mu.Unlock()
	type key struct{ kernel, layer, part string }
	sums := map[key]*KernelTime{}
	var order []*KernelTime
	for _, s := range e.profile.done {
		k := key{s.name, s.layer, s.part}
		if sums[k] == nil {
			sums[k] = &KernelTime{Kernel: s.name, Layer: s.layer, Part: s.part}
			order = append(order, sums[k])
		}
		sums[k].Calls++
		sums[k].Milliseconds += s.took.Seconds() * 1e3
	}
	slices.SortStableFunc(order, func(a, b *KernelTime) int { return cmp.Compare(b.Milliseconds, a.Milliseconds) })
	list := make([]KernelTime, len(order))
	for i, k := range order {
		list[i] = *k
	}
	return list
}

type profiler struct {
	mu     sync.Mutex
	window engine.Profile
	step   int         // the current training step, from 1
	ahead  []traceSpan // of the rows for data and passes, for the next step
	pass   *traceSpan  // nil if none runs
	done   []traceSpan
}

// Names of the parts of a step in the trace.
const (
	partForward   = "forward"
	partBackward  = "backward"
	partOptimizer = "optimizer"
	partInput     = "input"
	partExchange  = "exchange"
	partStep      = "step"
)

// stepTrace contains what an executable has recorded of the current step.
type stepTrace struct {
	on      bool          // the step is in the profile's window
	before  int64         // synchronizations of the engine's threads before the step
	spans   []traceSpan   // of rows that are not threads
	threads [][]traceSpan // by worker
}

// traceSpan is an interval in which a row of the trace was busy.
type traceSpan struct {
	name, layer, part string
	row               int // thread; rowInput or rowExchange
	start             time.Time
	took              time.Duration
	synchronizations  int64 // of a step
}

// Rows of the trace that do not belong to a compute thread.
const (
	rowInput    = -1
	rowExchange = -2
	rowReduce   = -3
	rowStep     = -4
	rowPass     = -5
)

// beginTrace counts a training step, even if it fails later, and records it if the profile
// selects it.
func (x *executable) beginTrace() {
	p := &x.engine.profile
	x.trace.on = false
	if x.program.Forward == len(x.program.Kernels) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.window.Steps == 0 {
		return
	}
	p.step++
	x.trace.on = p.step >= p.window.First && p.step < p.window.First+p.window.Steps
	if !x.trace.on {
		x.trace.spans, p.ahead = nil, nil
	}
	x.trace.before = x.engine.threads.SynchronizationCount()
}

// endTrace ends the recording of a step. After the last selected step it writes the trace.
func (x *executable) endTrace() error {
	if !x.trace.on {
		return nil
	}
	p := &x.engine.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	first := len(p.done)
	p.done = append(append(p.done, p.ahead...), x.trace.spans...)
	p.ahead, x.trace.spans = nil, nil
	p.finishTracedPass(&p.done) // the trace may be written below
	for i, list := range x.trace.threads {
		p.done = append(p.done, list...)
		x.trace.threads[i] = nil
	}
	x.trace.on = false
	// A step begins with waiting for its data. Tools look for this name of PyTorch's
	// profiler.
	step := traceSpan{name: fmt.Sprint("ProfilerStep#", p.step), part: partStep, row: rowStep, start: time.Now(), synchronizations: x.engine.threads.SynchronizationCount() - x.trace.before}
	end := step.start
	for _, s := range p.done[first:] {
		if s.start.Before(step.start) {
			step.start = s.start
		}
	}
	step.took = end.Sub(step.start)
	p.done = append(p.done, step)
	if p.step < p.window.First+p.window.Steps-1 {
		return nil
	}
	slices.SortStableFunc(p.done, func(a, b traceSpan) int { return a.start.Compare(b.start) })
	p.window.Steps = 0
	return p.writeTrace(len(x.workers), x.engine.Name())
}

func (x *executable) recordSpan(name, part string, row int, start time.Time) {
	if x.trace.on || row == rowInput && x.engine.recordsNextStep() {
		x.trace.spans = append(x.trace.spans, traceSpan{name: name, part: part, row: row, start: start, took: time.Since(start)})
	}
}

// RecordWait records, in the trace's row for data, that the next training step has waited
// since start, for example for the data loader. name names the reason. It does nothing if
// the profile does not select the step.
func (e *Engine) RecordWait(name string, start time.Time) {
	if !e.recordsNextStep() {
		return
	}
	took := time.Since(start)
	e.profile.mu.Lock()
	defer e.profile.mu.Unlock()
	e.profile.ahead = append(e.profile.ahead, traceSpan{name: name, part: partInput, row: rowInput, start: start, took: took})
}

// BeginPass implements engine.Capabilities. A backward pass ends with the step of its executable.
func (e *Engine) BeginPass(name, part string) (end func()) {
	if !e.recordsNextStep() {
		return func() {}
	}
	p := &e.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass = &traceSpan{name: name, part: part, row: rowPass, start: time.Now()}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.finishTracedPass(&p.ahead)
	}
}

// finishTracedPass adds the running pass, if any, to list. The caller must hold p.mu.
func (p *profiler) finishTracedPass(list *[]traceSpan) {
	if p.pass == nil {
		return
	}
	p.pass.took = time.Since(p.pass.start)
	*list = append(*list, *p.pass)
	p.pass = nil
}

// recordReductions records the reductions since stepStart that sync reports, if it does.
// With accumulated gradients, sync also reports reductions of earlier steps.
func (x *executable) recordReductions(sync engine.GradSync, stepStart time.Time) {
	if !x.trace.on {
		return
	}
	reduced := sync.Capabilities().Reduced
	if reduced == nil {
		return
	}
	for _, r := range reduced() {
		if r.Begin.Before(stepStart) {
			continue
		}
		name := "all-gather of statistics"
		if r.Bucket >= 0 {
			name = fmt.Sprint("all-reduce of bucket ", r.Bucket)
		}
		x.trace.spans = append(x.trace.spans, traceSpan{name: name, part: partExchange, row: rowReduce, start: r.Begin, took: r.Took})
	}
}

// recordsNextStep reports whether the profile selects the next step. Inputs need it, because
// they are copied before their step begins.
func (e *Engine) recordsNextStep() bool {
	e.profile.mu.Lock()
	defer e.profile.mu.Unlock()
	p := &e.profile
	return p.window.Steps > 0 && p.step+1 >= p.window.First && p.step+1 < p.window.First+p.window.Steps
}

// withTiming returns t with a Run that records one span for each thread that computes items of t: from the
// beginning of its first items to the end of its last.
func (x *executable) withTiming(t threads.Task, name, layer, part string) threads.Task {
	run, spans := t.Run, make([]int, len(x.trace.threads)) // 1 + index of the thread's span
	t.Run = func(w *threads.Worker, lo, hi int) {
		start := time.Now()
		run(w, lo, hi)
		list := &x.trace.threads[w.Number]
		if i := spans[w.Number]; i > 0 {
			s := &(*list)[i-1]
			s.took = time.Since(s.start)
			return
		}
		*list = append(*list, traceSpan{name: name, layer: layer, part: part, row: w.Number, start: start, took: time.Since(start)})
		spans[w.Number] = len(*list)
	}
	return t
}

// traceEvent is an event in Chrome's Trace Event Format.
type traceEvent struct {
	Name      string            `json:"name"`
	Category  string            `json:"cat,omitempty"`
	Phase     string            `json:"ph"`
	Start     float64           `json:"ts"` // microseconds
	Duration  float64           `json:"dur,omitempty"`
	Process   int               `json:"pid"`
	Thread    int               `json:"tid"`
	Arguments map[string]string `json:"args,omitempty"`
}

func (p *profiler) writeTrace(threads int, name string) error {
	rank := p.window.Rank
	meta := func(what string, row int, name string) traceEvent {
		return traceEvent{Name: what, Phase: "M", Process: rank, Thread: row, Arguments: map[string]string{"name": name}}
	}
	lines := []traceEvent{meta("process_name", 0, fmt.Sprintf("rank %d (%s)", rank, name)), meta("thread_name", 1, "steps")}
	rows := map[int]int{rowStep: 1}
	for i := range threads {
		rows[i] = i + 2
		lines = append(lines, meta("thread_name", i+2, fmt.Sprintf("thread %d", i)))
	}
	for i, r := range []struct {
		row  int
		name string
	}{{rowInput, "data"}, {rowExchange, "exchange"}, {rowReduce, "all-reduce"}, {rowPass, "stage"}} {
		rows[r.row] = threads + 2 + i
		lines = append(lines, meta("thread_name", rows[r.row], r.name))
	}
	var origin time.Time // the start of the first span
	if len(p.done) > 0 {
		origin = p.done[0].start
	}
	microseconds := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	for _, s := range p.done {
		e := traceEvent{
			Name: s.name, Category: s.part, Phase: "X", Start: microseconds(s.start.Sub(origin)), Duration: microseconds(s.took),
			Process: rank, Thread: rows[s.row],
		}
		if s.layer != "" {
			e.Arguments = map[string]string{"layer": s.layer}
		}
		if s.row == rowStep {
			e.Arguments = map[string]string{"synchronizations": strconv.FormatInt(s.synchronizations, 10)}
		}
		lines = append(lines, e)
	}
	text, err := json.Marshal(map[string]any{
		"traceEvents": lines, "displayTimeUnit": "ms",
		"distributedInfo": map[string]int{"rank": rank, "world_size": max(1, p.window.World)},
	})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(p.window.Trace), 0o755)
	}
	if err == nil {
		err = wholefile.WriteBytes(p.window.Trace, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}
