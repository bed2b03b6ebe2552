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
	// Records contains the images per second compared with the roofline, and the network's
	// memory.
	Records []comparison.Record `json:"records"`
	// StepMilliseconds is the time of a training step that is captured as a CUDA graph.
	// TracedMilliseconds is the sum of the times of the step's kernels, which are run one
	// by one with events between them. BoundMilliseconds is the least time that the
	// kernels need according to the roofline model.
	StepMilliseconds   float64 `json:"step_milliseconds"`
	TracedMilliseconds float64 `json:"traced_milliseconds"`
	BoundMilliseconds  float64 `json:"bound_milliseconds"`
	MemoryBytes        int64   `json:"memory_bytes"`
	LoadSeconds        float64 `json:"load_seconds"` // time for allocating memory, loading kernels and choosing algorithms
	// The following ceilings of the GPU were measured in the same call.
	TensorFLOPS    float64 `json:"tensor_flops"`
	TensorBy       string  `json:"tensor_by"` // the method of measurement
	FLOPS          float64 `json:"flops"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	Layers         []Layer `json:"layers"` // slowest first
	// Kernels contains the kernels of a captured step, including cuDNN's, as measured by
	// CUPTI if requested. KernelMilliseconds is their sum; during the rest of a step the
	// GPU is idle. NoKernels explains why CUPTI measured nothing.
	Kernels            []Kernel `json:"graph_kernels,omitempty"`
	KernelMilliseconds float64  `json:"graph_kernel_milliseconds,omitempty"`
	NoKernels          string   `json:"no_graph_kernels,omitempty"`
}

// Layer is one task of a training step, with its measured time and the least time that it
// needs according to the roofline model.
type Layer struct {
	Part              string   `json:"part"`  // "forward", "backward", "optimizer"
	Layer             string   `json:"layer"` // "down.0.a.conv"
	Task              string   `json:"task"`  // "conv_backward_weights"
	Milliseconds      float64  `json:"milliseconds"`
	FLOPs             float64  `json:"flops"`
	Bytes             float64  `json:"bytes"`
	BytesBehind       float64  `json:"bytes_behind"` // bytes moved by kernels after a matrix product
	BoundMilliseconds float64  `json:"bound_milliseconds"`
	Fraction          float64  `json:"fraction"` // fraction of the roofline: bound / time; 0 if there is no bound
	Kernels           []Kernel `json:"kernels"`
}

// Kernel is one kernel of a layer, or the sum of all calls of one kernel in a step.
type Kernel struct {
	Name         string  `json:"name"`
	Calls        float64 `json:"calls,omitempty"` // per step
	Milliseconds float64 `json:"milliseconds"`    // per step
}

// rooflinePeerName is the field Peer of the records of MeasureLayers, which compare Lockstep
// with the roofline and not with another program.
const rooflinePeerName = "the roofline of its own kernels, with ceilings measured in this run"

// MeasureLayers measures training steps of Lockstep on a GPU: forward, backward and Adam
// on a batch that is already on the GPU. Then it measures each kernel with events,
// without a captured graph. Finally it measures the GPU's memory bandwidth and arithmetic
// throughput for the roofline.
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

// measureLayers loads the network m and measures its steps, its kernels and the ceilings.
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
		err = o.traceKernels(r, e, exe, train)
	}
	if err == nil && o.Kernels {
		// Last, and an error here does not fail the measurement: a machine may forbid
		// profiling.
		if err := o.traceGraphKernels(r, e, train); err != nil {
			r.NoKernels = err.Error()
			comparison.Logf(o.Output, "skipped the kernels of captured steps: %v", err)
		}
	}
	if err = errors.Join(err, exe.Close()); err != nil { // frees memory for measuring the bandwidth
		return nil, err
	}
	ceilings, err := e.Ceilings(ctx)
	if err != nil {
		return nil, err
	}
	r.computeBounds(o, m, ceilings, seconds)
	r.Records[0].Machine, r.Records[0].Commit = comparison.DescribeMachine(), comparison.FindCommit(ctx)
	r.Records[1].Machine, r.Records[1].Commit = r.Records[0].Machine, r.Records[0].Commit
	return r, nil
}

// loadNetwork builds the network, loads it and sets a batch of random inputs.
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

// timeSteps returns the seconds that o.Steps consecutive steps take, measured o.Repeats
// times.
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

// tracedSteps is the number of steps whose kernels are timed.
const tracedSteps = 5

// traceKernels measures the time of each kernel and sets the layers of the report.
func (o Options) traceKernels(r *Report, e *cuda.Engine, exe engine.Executable, train func(int) error) (err error) {
	file := o.Trace
	if file == "" {
		dir, err := os.MkdirTemp("", "lockstep-trace-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		file = filepath.Join(dir, "trace.json")
	}
	if err := e.Profile(cuda.Profile{First: 1, Steps: tracedSteps, Trace: file}); err != nil {
		return err
	}
	if err := train(tracedSteps); err != nil {
		return err
	}
	times, err := e.KernelTimes()
	if err != nil {
		return err
	}
	update := optim.DefaultConfig().Update(1e-3, 1)
	work, err := cuda.StepWork(exe, &update)
	if err != nil {
		return err
	}
	r.Layers = assignKernelTimes(work, times, tracedSteps)
	return nil
}

// traceGraphKernels measures with CUPTI the kernels of steps that run as a captured
// graph.
func (o Options) traceGraphKernels(r *Report, e *cuda.Engine, train func(int) error) error {
	if err := e.Profile(cuda.Profile{First: 1, Steps: tracedSteps, Kernels: true}); err != nil {
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

// assignKernelTimes assigns the time of each kernel to a task. The name of a kernel of cuDNN
// contains its task. Any other kernel is assigned to the remaining task of the same layer
// and part, if there is exactly one, or to the convolution that it completes. A kernel
// without a task becomes a separate layer.
func assignKernelTimes(work []cuda.Work, times []cuda.KernelTime, steps int) []Layer {
	var list []Layer
	for _, w := range work {
		list = append(list, Layer{Part: w.Part, Layer: w.Layer, Task: w.Task, FLOPs: w.FLOPs, Bytes: w.Bytes, BytesBehind: w.BytesAfter})
	}
	tensor := func(i int) bool { return i < len(work) && work[i].Tensor }
	for _, k := range times {
		task, isPlan := strings.CutPrefix(k.Kernel, "cudnn ")
		at := slices.IndexFunc(list, func(l Layer) bool {
			return isPlan && l.Part == k.Part && l.Layer == k.Layer && l.Task == task
		})
		for i := range list {
			l := &list[i]
			if at >= 0 || isPlan || l.Part != k.Part || l.Layer != k.Layer {
				continue
			}
			// A cast after a plan belongs to the gradient of the weights.
			casts := strings.HasPrefix(k.Kernel, "cast") && strings.HasSuffix(l.Task, "_weights")
			if casts || !tensor(i) && !strings.HasPrefix(k.Kernel, "cast") && canBelongToTask(l.Task, k.Kernel) {
				at = i
			}
		}
		if at < 0 && (strings.HasPrefix(k.Kernel, "bias_act") || strings.HasPrefix(k.Kernel, "bn_") || strings.HasPrefix(k.Kernel, "sum_chunks")) {
			// The bias or the statistics of a matrix product, if no graph of cuDNN includes
			// them. In the backward pass they belong to the gradient of the data.
			at = slices.IndexFunc(work, func(w cuda.Work) bool {
				return w.Tensor && w.Part == k.Part && w.Layer == k.Layer && (k.Part == "backward") == strings.HasSuffix(w.Task, "_data")
			})
		}
		if at < 0 {
			list = append(list, Layer{Part: k.Part, Layer: k.Layer, Task: k.Kernel})
			at = len(list) - 1
		}
		ms := k.Milliseconds / float64(steps)
		list[at].Milliseconds += ms
		list[at].Kernels = append(list[at].Kernels, Kernel{Name: k.Kernel, Milliseconds: ms})
	}
	slices.SortStableFunc(list, func(a, b Layer) int { return cmp.Compare(b.Milliseconds, a.Milliseconds) })
	return list
}

// canBelongToTask reports whether a kernel of the given name can be part of a task. It is
// needed for layers that have several tasks in one part of a step.
func canBelongToTask(task, kernel string) bool {
	for prefix, kernels := range map[string][]string{
		"batch_norm": {"bn_", "sum_chunks"}, "bias_backward": {"bias_backward", "sum_chunks"}, "bias": {"bias_act"},
		"head_backward_data": {"head_backward_data"}, "head_backward_weights": {"head_backward_weights", "sum_chunks"}, "head": {"head_forward"},
		"bce_with_logits_backward": {"bce_backward"}, "bce_with_logits": {"bce"},
		"l1_backward": {"l1_backward"}, "l1": {"l1", "bce_finalize"},
		"softmax_cross_entropy_backward": {"softmax_ce_backward"}, "softmax_cross_entropy": {"softmax_ce", "bce_finalize"},
		"global_avg_pool_backward": {"global_avg_pool_backward"}, "global_avg_pool": {"global_avg_pool"},
		"avg_pool_backward": {"avg_pool_backward"}, "avg_pool": {"avg_pool"}, "reshape": {"nchw", "nhwc", "copy"},
		"leaky_relu_backward": {"leaky_relu"}, "leaky_relu": {"leaky_relu"}, "tanh_backward": {"tanh_backward"}, "tanh": {"tanh"},
		"max_pool_backward": {"max_pool_backward"}, "max_pool": {"max_pool"}, "relu_backward": {"relu_backward"}, "relu": {"relu"},
		"copy": {"copy"}, "add": {"add"}, "clear": {"clear", "fill"}, "pack": {"nchw", "copy"}, "adam": {"adam", "step_begin", "grad_", "scale_"}, "sgd": {"sgd", "step_begin", "grad_", "scale_"},
	} {
		if task != prefix && (prefix != "batch_norm" || task != "batch_norm_backward") {
			continue
		}
		for _, k := range kernels {
			if strings.HasPrefix(kernel, k) {
				return true
			}
		}
	}
	return false
}

// computeBounds sets the bounds, the fractions of the roofline and the records.
func (r *Report) computeBounds(o Options, m benchmarkNetwork, c cuda.Ceilings, seconds []float64) {
	r.TensorFLOPS, r.TensorBy, r.FLOPS, r.BytesPerSecond = c.TensorFLOPS, c.TensorBy, c.FLOPS, c.BytesPerSecond
	for i := range r.Layers {
		l := &r.Layers[i]
		l.BoundMilliseconds = 1e3 * c.MinSeconds(cuda.Work{Tensor: strings.Contains(l.Task, "conv") || strings.Contains(l.Task, "linear"), FLOPs: l.FLOPs, Bytes: l.Bytes, BytesAfter: l.BytesBehind})
		if l.Milliseconds > 0 {
			l.Fraction = l.BoundMilliseconds / l.Milliseconds
		}
		r.TracedMilliseconds += l.Milliseconds
		r.BoundMilliseconds += l.BoundMilliseconds
	}
	r.StepMilliseconds = 1e3 * comparison.Median(seconds) / float64(o.Steps)
	bound := make([]float64, len(seconds))
	for i := range bound {
		bound[i] = 1e3 * float64(m.shape.Batch) / r.BoundMilliseconds
	}
	throughput := comparison.Compare(comparison.Record{
		Name: fmt.Sprintf("training %s, %s, of the roofline", m.name, r.Precision), Unit: "images/s", Peer: rooflinePeerName, Target: m.roofline,
	}, comparison.PerSecond(float64(o.Steps*m.shape.Batch), seconds), bound)
	mib := float64(r.MemoryBytes) / (1 << 20)
	memory := comparison.Record{Name: fmt.Sprintf("memory of %s, %s", m.name, r.Precision), Value: mib, Unit: "MiB", Peer: "nothing", PeerValue: mib, Ratio: 1, Repeats: 1, Spread: [2]float64{1, 1}}
	r.Records = []comparison.Record{throughput, memory}
}

// maxLayersShown is the maximum number of layers and of kernels in the tables.
const maxLayersShown = 25

// Write writes the report as a table, or as JSON.
func (r *Report) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	if err := comparison.Write(w, r.Records, false); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s, %s, %s\n", r.Network, r.Precision, r.Device)
	fmt.Fprintf(w, "training step: %.3f ms; sum of its kernels, timed one by one: %.3f ms; roofline: %.3f ms; network loaded in %.1f s\n", r.StepMilliseconds, r.TracedMilliseconds, r.BoundMilliseconds, r.LoadSeconds)
	fmt.Fprintf(w, "measured ceilings: matrix products %.0f TFLOP/s (%s), fp32 %.1f TFLOP/s, memory %.2f TB/s\n\n", r.TensorFLOPS/1e12, r.TensorBy, r.FLOPS/1e12, r.BytesPerSecond/1e12)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "part\tlayer\ttask\tms\tat least\tof the roofline")
	for i, l := range r.Layers {
		if i == maxLayersShown {
			fmt.Fprintf(t, "and %d more layers (--json lists all)\n", len(r.Layers)-i)
			break
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.4f\t%.4f\t%.0f %%\n", l.Part, l.Layer, l.Task, l.Milliseconds, l.BoundMilliseconds, 100*l.Fraction)
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
