package gpu

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"lockstep/pkg/bench"
	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// Report is the result of MeasureLayers.
type Report struct {
	Model     string `json:"model"`
	Network   string `json:"network"`
	Precision string `json:"precision"`
	Device    string `json:"device"`
	Machine   string `json:"machine"`
	Commit    string `json:"commit"`
	// ImagesPerSecond is the throughput of training, the median of the repeats. Spread contains the
	// lowest and the highest throughput.
	ImagesPerSecond float64    `json:"images_per_second"`
	Spread          [2]float64 `json:"spread"`
	Repeats         int        `json:"repeats"`
	// StepMilliseconds is the time of a step that is captured as a CUDA graph, the median of the repeats.
	// TracedMilliseconds is the sum of the step's kernels, run one by one with events between them.
	StepMilliseconds   float64 `json:"step_milliseconds"`
	TracedMilliseconds float64 `json:"traced_milliseconds"`
	MemoryBytes        int64   `json:"memory_bytes"`
	LoadSeconds        float64 `json:"load_seconds"` // time for allocating memory, loading kernels and choosing algorithms
	Layers             []Layer `json:"layers"`       // slowest first
	// Kernels contains all kernels of a captured step, including those of cuDNN, if Options.Kernels
	// is set. KernelMilliseconds is the sum of their times; in the rest of a step the GPU is idle.
	// NoKernels is the reason why CUPTI measured nothing.
	Kernels            []Kernel `json:"graph_kernels,omitempty"`
	KernelMilliseconds float64  `json:"graph_kernel_milliseconds,omitempty"`
	NoKernels          string   `json:"no_graph_kernels,omitempty"`
}

// Layer is the part of a training step that one layer takes in one pass.
type Layer struct {
	Part         string   `json:"part"`  // "forward", "backward", "optimizer", "input"
	Layer        string   `json:"layer"` // "down.0.a.conv"; empty for the optimizer
	Milliseconds float64  `json:"milliseconds"`
	Kernels      []Kernel `json:"kernels"`
}

// Kernel is one kernel of a layer, or the sum of all calls of one kernel in a step.
type Kernel struct {
	Name         string  `json:"name"`
	Calls        float64 `json:"calls,omitempty"` // per step
	Milliseconds float64 `json:"milliseconds"`    // per step
}

// MeasureLayers measures training steps of Lockstep (forward, backward, Adam) on a batch that is already
// on the GPU. Then it measures each kernel with events, without a captured graph.
func MeasureLayers(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.open == nil {
		if err := checkGPU(); err != nil {
			return nil, fmt.Errorf("bench on a GPU: %w", err)
		}
		o.open = func(o engine.Options) (engine.Engine, error) { return cuda.New(o, 0) }
	}
	m, err := o.findNetwork()
	if err != nil {
		return nil, err
	}
	r, err := o.measureLayers(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("bench on a GPU, %s: %w", m.name, comparison.ContextCause(ctx, err))
	}
	return r, nil
}

func (o Options) measureLayers(ctx context.Context, m benchmarkNetwork) (r *Report, err error) {
	opened, err := o.open(o.engineOptions())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	e, ok := opened.(*cuda.Engine)
	if !ok {
		return nil, fmt.Errorf("%s is not a GPU engine", opened.Name())
	}
	begin := time.Now()
	exe, err := loadNetwork(e, m.shape)
	if err != nil {
		return nil, err
	}
	r = &Report{
		Model: m.name, Network: m.shape.String(), Precision: o.precisionName(), Device: e.Name(),
		MemoryBytes: exe.MemoryBytes(), LoadSeconds: time.Since(begin).Seconds(),
	}
	comparison.Logf(o.Output, "%s on %s: loaded in %.1f s", m.name, e.Name(), r.LoadSeconds)
	update := optim.DefaultConfig()
	steps := 0
	train := func(count int) error {
		for range count {
			steps++
			u := update.Update(update.LearningRate, steps)
			if _, err := exe.Step(ctx, nil, &u); err != nil {
				return err
			}
		}
		return nil
	}
	seconds, err := o.timeSteps(train)
	if err == nil {
		err = o.traceKernels(r, e, train)
	}
	if err == nil && o.Kernels {
		// An error here does not fail the measurement, because a machine may forbid profiling.
		if err := o.traceGraphKernels(r, e, train); err != nil {
			r.NoKernels = err.Error()
			comparison.Logf(o.Output, "skipped the kernels of captured steps: %v", err)
		}
	}
	if err = errors.Join(err, exe.Close()); err != nil {
		return nil, err
	}
	rates := comparison.PerSecond(float64(o.Steps*m.shape.Batch), seconds)
	r.ImagesPerSecond, r.Spread, r.Repeats = comparison.Median(rates), [2]float64{slices.Min(rates), slices.Max(rates)}, len(rates)
	r.StepMilliseconds = 1e3 * comparison.Median(seconds) / float64(o.Steps)
	r.Machine, r.Commit = comparison.DescribeMachine(), comparison.FindCommit(ctx)
	return r, nil
}

func loadNetwork(e engine.Engine, s bench.Shape) (engine.Executable, error) {
	net, err := s.Build()
	if err != nil {
		return nil, err
	}
	g, err := net.Graph(s.Batch, nn.Train)
	if err != nil {
		return nil, err
	}
	p, err := plan.Lower(g, plan.Options{Fuse: true})
	if err != nil {
		return nil, err
	}
	exe, err := e.Load(p, nil)
	if err != nil {
		return nil, err
	}
	for name, v := range g.InitialValues(1) {
		if err := exe.Set(name, v); err != nil {
			return nil, errors.Join(err, exe.Close())
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	image, target, classes := comparison.AllocateBatch(p)
	for i := range image {
		image[i] = random.Float32()
	}
	for i := range target {
		target[i] = float32(random.IntN(classes))
	}
	if err := errors.Join(exe.SetInput(model.ImageInput, image), exe.SetInput(model.TargetInput, target)); err != nil {
		return nil, errors.Join(err, exe.Close())
	}
	return exe, nil
}

// timeSteps returns the seconds of o.Steps consecutive steps for each of o.Repeats measurements.
func (o Options) timeSteps(train func(int) error) ([]float64, error) {
	if err := train(o.Steps); err != nil { // the first steps capture the graph
		return nil, err
	}
	var seconds []float64
	for range o.Repeats {
		begin := time.Now()
		if err := train(o.Steps); err != nil {
			return nil, err
		}
		seconds = append(seconds, time.Since(begin).Seconds())
	}
	return seconds, nil
}

const tracedSteps = 5

// traceKernels times each kernel and sets the report's layers.
func (o Options) traceKernels(r *Report, e *cuda.Engine, train func(int) error) (err error) {
	file := o.Trace
	if file == "" {
		dir, err := os.MkdirTemp("", "lockstep-trace-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		file = filepath.Join(dir, "trace.json")
	}
	if err := e.Profile(engine.Profile{First: 1, Steps: tracedSteps, Trace: file}); err != nil {
		return err
	}
	if err := train(tracedSteps); err != nil {
		return err
	}
	times, err := e.KernelTimes()
	if err != nil {
		return err
	}
	r.Layers = sumTimesByLayer(times, tracedSteps)
	for _, l := range r.Layers {
		r.TracedMilliseconds += l.Milliseconds
	}
	return nil
}

// traceGraphKernels measures the kernels of a captured graph with CUPTI.
func (o Options) traceGraphKernels(r *Report, e *cuda.Engine, train func(int) error) error {
	if err := e.ProfileKernels(1, tracedSteps); err != nil {
		return err
	}
	if err := train(tracedSteps); err != nil {
		return err
	}
	times, err := e.KernelTimes()
	if err != nil {
		return err
	}
	for _, k := range times {
		if k.Part != "graph" {
			continue
		}
		ms := k.Milliseconds / tracedSteps
		r.Kernels = append(r.Kernels, Kernel{k.Kernel, float64(k.Calls) / tracedSteps, ms})
		r.KernelMilliseconds += ms
	}
	if len(r.Kernels) == 0 {
		return errors.New("CUPTI recorded no kernels of CUDA graphs")
	}
	return nil
}

// sumTimesByLayer adds up kernel times by layer and pass. times were measured over the given number of steps.
func sumTimesByLayer(times []cuda.KernelTime, steps int) []Layer {
	var list []Layer
	for _, k := range times {
		at := slices.IndexFunc(list, func(l Layer) bool { return l.Part == k.Part && l.Layer == k.Layer })
		if at < 0 {
			at = len(list)
			list = append(list, Layer{Part: k.Part, Layer: k.Layer})
		}
		ms := k.Milliseconds / float64(steps)
		list[at].Milliseconds += ms
		list[at].Kernels = append(list[at].Kernels, Kernel{Name: k.Kernel, Calls: float64(k.Calls) / float64(steps), Milliseconds: ms})
	}
	slices.SortStableFunc(list, func(a, b Layer) int { return cmp.Compare(b.Milliseconds, a.Milliseconds) })
	return list
}

func (r *Report) memoryMiB() float64 { return float64(r.MemoryBytes) / (1 << 20) }

// maxLayersShown limits the layers and the kernels in the tables.
const maxLayersShown = 25

// Write writes the report as a table, or as JSON.
func (r *Report) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	fmt.Fprintf(w, "%s, %s, %s\n", r.Network, r.Precision, r.Device)
	fmt.Fprintf(w, "training %s: %.4g images/s (%.4g … %.4g in %d repeats), %.0f MiB of GPU memory\n", r.Model, r.ImagesPerSecond, r.Spread[0], r.Spread[1], r.Repeats, r.memoryMiB())
	fmt.Fprintf(w, "training step: %.3f ms; sum of its kernels, timed one by one: %.3f ms; network loaded in %.1f s\n", r.StepMilliseconds, r.TracedMilliseconds, r.LoadSeconds)
	fmt.Fprintf(w, "machine: %s; commit %s\n\n", r.Machine, r.Commit)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "part\tlayer\tms\tkernels")
	for i, l := range r.Layers {
		if i == maxLayersShown {
			fmt.Fprintf(t, "and %d more layers (--json lists all)\n", len(r.Layers)-i)
			break
		}
		names := make([]string, len(l.Kernels))
		for k, kernel := range l.Kernels {
			names[k] = kernel.Name
		}
		fmt.Fprintf(t, "%s\t%s\t%.4f\t%s\n", l.Part, l.Layer, l.Milliseconds, strings.Join(names, ", "))
	}
	if len(r.Kernels) > 0 {
		fmt.Fprintf(t, "\nkernels of a captured step, by CUPTI: %.3f ms of %.3f ms\n", r.KernelMilliseconds, r.StepMilliseconds)
		fmt.Fprintln(t, "ms\tcalls\tkernel")
		for i, k := range r.Kernels {
			if i == maxLayersShown {
				fmt.Fprintf(t, "and %d more kernels (--json lists all)\n", len(r.Kernels)-i)
				break
			}
			fmt.Fprintf(t, "%.4f\t%.4g\t%s\n", k.Milliseconds, k.Calls, k.Name)
		}
	}
	return t.Flush()
}
