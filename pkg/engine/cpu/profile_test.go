package cpu

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestProfile: a trace has the window's steps alone, every kernel on a row of its
// thread, the inputs, the exchange and the optimizer.
func TestProfile(t *testing.T) {
	e, ok := open(t, "", 2).(*Engine)
	if !ok {
		t.Fatal("no engine of this package")
	}
	g, p := lowered(t, smallUNet(), 3, nn.Train, plan.Options{Fuse: true})
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	initialise(t, x, g)
	file := filepath.Join(t.TempDir(), "run", "trace-0.json")
	if err := e.Profile(engine.Profile{First: 2, Steps: 2, Trace: file}); err != nil {
		t.Fatal(err)
	}
	u := optim.Update{Rule: "adam", LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1}
	for u.Step = 1; u.Step <= 4; u.Step++ {
		if _, err := os.Stat(file); (err == nil) != (u.Step > 3) {
			t.Errorf("before step %d: the trace: %v", u.Step, err)
		}
		feed(t, x, uint64(u.Step))
		if _, err := x.Step(context.Background(), &deafSync{}, &u); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []traceEvent `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatal(err)
	}
	rows := map[int]string{}
	count := map[string]int{}
	for _, e := range trace.TraceEvents {
		switch e.Phase {
		case "M":
			rows[e.Thread] = e.Arguments["name"]
		case "X":
			if e.Duration < 0 {
				t.Errorf("%+v", e)
			}
			count[rows[e.Thread]+" "+e.Category]++
			count[e.Name]++
		}
	}
	// Two steps. Both threads compute adam's pieces, unless one of them is so late that the other has computed
	// all. Pieces are one event unless the thread is interrupted between two of them.
	if count["adam"] < 2 {
		t.Errorf("adam: %d events, want at least 2", count["adam"])
	}
	for name, want := range map[string]int{
		"data input": 4, "exchange exchange": 2 * (len(p.Buckets) + 1), "wait for gradients": 2, "image": 2,
	} {
		if count[name] != want {
			t.Errorf("%s: %d events, want %d", name, count[name], want)
		}
	}
	for _, name := range []string{"thread 0 forward", "thread 0 backward", "thread 0 optimizer", "clip", "conv", "batch_norm_backward"} {
		if count[name] == 0 {
			t.Errorf("the trace has no %s: %v", name, count)
		}
	}
	times := e.KernelTimes()
	if len(times) == 0 || !slices.IsSortedFunc(times, func(a, b KernelTime) int {
		if a.Milliseconds > b.Milliseconds {
			return -1
		}
		return 1
	}) {
		t.Errorf("kernels' times: %+v", times)
	}
	for _, k := range times {
		if k.Calls < 1 || k.Part == "" {
			t.Errorf("%+v", k)
		}
	}
}

// timedSync is a sync that reports when its buckets were reduced.
type timedSync struct {
	deafSync
	list []engine.Reduction
}

func (s *timedSync) Wait() error {
	for i := range 2 {
		begin := time.Now()
		s.list = append(s.list[:i], engine.Reduction{Bucket: i, Begin: begin, Took: time.Since(begin)})
	}
	return s.deafSync.Wait()
}

func (s *timedSync) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{Reduced: func() []engine.Reduction { return s.list }}
}

// TestTraceAddsUp: every span is of a step and lies in it, the spans of a row do
// not overlap, so that they cannot add up to more than the step; kernels have the
// names that the plan gives them, each as often as its tasks and in the plan's
// order, and the whole is a trace of its rank.
func TestTraceAddsUp(t *testing.T) {
	for _, threads := range []int{1, 2} {
		e, ok := open(t, "", threads).(*Engine)
		if !ok {
			t.Fatal("no engine of this package")
		}
		g, p := lowered(t, smallUNet(), 3, nn.Train, plan.Options{Fuse: true, Recompute: true})
		x := loaded(t, e, p, g)
		file := filepath.Join(t.TempDir(), "trace-3.json")
		if err := e.Profile(engine.Profile{First: 1, Steps: 3, Trace: file, Rank: 3, World: 4}); err != nil {
			t.Fatal(err)
		}
		u := optim.Update{Rule: "sgd", LearningRate: 1e-3}
		for u.Step = 1; u.Step <= 3; u.Step++ {
			e.RecordWait("load batch", time.Now())
			feed(t, x, uint64(u.Step))
			if _, err := x.Step(context.Background(), &timedSync{}, &u); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var trace struct {
			TraceEvents     []traceEvent `json:"traceEvents"`
			DistributedInfo struct {
				Rank  int `json:"rank"`
				World int `json:"world_size"`
			} `json:"distributedInfo"`
		}
		if err := json.Unmarshal(text, &trace); err != nil {
			t.Fatal(err)
		}
		if d := trace.DistributedInfo; d.Rank != 3 || d.World != 4 {
			t.Errorf("the trace is of rank %d of %d", d.Rank, d.World)
		}
		rows := map[int]string{}
		var steps []traceEvent
		for _, e := range trace.TraceEvents {
			if e.Process != 3 {
				t.Fatalf("%+v is of another rank", e)
			}
			switch {
			case e.Phase == "M" && e.Name == "thread_name":
				rows[e.Thread] = e.Arguments["name"]
			case e.Category == partStep:
				steps = append(steps, e)
			}
		}
		if len(steps) != 3 || steps[0].Name != "ProfilerStep#1" || steps[2].Name != "ProfilerStep#3" {
			t.Fatalf("steps %+v", steps)
		}
		count := map[string]int{}
		end := map[int]float64{} // by row
		var calls []string       // of the first step's kernels on thread 0
		const rounding = 1e-3    // of microseconds, as they are written
		for _, e := range trace.TraceEvents {
			if e.Phase != "X" {
				continue
			}
			if e.Start < end[e.Thread]-rounding {
				t.Fatalf("%+v begins before the span in front of it ends, at %v", e, end[e.Thread])
			}
			end[e.Thread] = e.Start + e.Duration
			count[rows[e.Thread]]++
			if !slices.ContainsFunc(steps, func(s traceEvent) bool {
				return e.Start >= s.Start-rounding && e.Start+e.Duration <= s.Start+s.Duration+rounding
			}) {
				t.Errorf("%+v is of no step", e)
			}
			if call := e.Name + " " + e.Arguments["layer"]; rows[e.Thread] == "thread 0" && e.Start < steps[1].Start && e.Category != partOptimizer &&
				(len(calls) == 0 || calls[len(calls)-1] != call) {
				calls = append(calls, call)
			}
		}
		var want []string
		exe, ok := x.(*executable)
		if !ok {
			t.Fatal("no executable of this package")
		}
		for i, k := range p.Kernels {
			if call := string(k.Op) + " " + k.Name; len(exe.steps[i]) > 0 && (len(want) == 0 || want[len(want)-1] != call) {
				want = append(want, call)
			}
		}
		if !slices.Equal(calls, want) {
			t.Errorf("kernels %v, want %v", calls, want)
		}
		// Of each step: the loader and two inputs; a bucket handed over and the wait; two reductions.
		for row, n := range map[string]int{"steps": 3, "data": 9, "exchange": 3 * (len(p.Buckets) + 1), "all-reduce": 6} {
			if count[row] != n {
				t.Errorf("row %q has %d spans, want %d", row, count[row], n)
			}
		}
		if threads == 1 && count["thread 1"] > 0 {
			t.Errorf("1 thread, but %d spans on thread 1", count["thread 1"])
		}
	}
}

// TestTaskSpans checks that a task has one span for each thread that computes items of it.
func TestTaskSpans(t *testing.T) {
	x := &executable{trace: stepTrace{threads: make([][]traceSpan, 2)}}
	for range 2 {
		task := x.withTiming(threads.Task{Items: 9, Run: func(*threads.Worker, int, int) {}}, "conv", "layer", partForward)
		for item, thread := range []int{1, 1, 0, 1} {
			task.Run(&threads.Worker{Number: thread}, item, item+1)
		}
	}
	for thread, list := range x.trace.threads {
		if len(list) != 2 || list[1].start.Before(list[0].start.Add(list[0].took)) {
			t.Fatalf("thread %d has spans %+v, want 2, one after another", thread, list)
		}
		for _, s := range list {
			if s.name != "conv" || s.layer != "layer" || s.part != partForward || s.row != thread || s.took <= 0 {
				t.Errorf("thread %d has span %+v", thread, s)
			}
		}
	}
}

// TestProfileErrors checks invalid windows, and a file that cannot be written.
func TestProfileErrors(t *testing.T) {
	e, ok := open(t, "", 1).(*Engine)
	if !ok {
		t.Fatal("no engine of this package")
	}
	for _, c := range []struct {
		p    engine.Profile
		want string
	}{
		{engine.Profile{First: 0, Steps: 1, Trace: "x"}, "first step is 0"},
		{engine.Profile{First: 1, Steps: 0, Trace: "x"}, "number of steps is 0"},
		{engine.Profile{First: 1, Steps: 1}, "no file"},
	} {
		if err := e.Profile(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, not %q", c.p, err, c.want)
		}
	}
	g, p := lowered(t, smallUNet(), 1, nn.Train, plan.Options{Fuse: true})
	x := loaded(t, e, p, g)
	taken := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Profile(engine.Profile{First: 1, Steps: 1, Trace: filepath.Join(taken, "trace.json")}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Step(context.Background(), nil, nil); err == nil || !strings.Contains(err.Error(), "write trace") {
		t.Errorf("a trace that cannot be written: %v", err)
	}
}
