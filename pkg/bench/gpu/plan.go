package gpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// PlanOptions configures Plan.
type PlanOptions struct {
	Model     string  // one of Models()
	Precision string  // "bf16", "fp16" or "fp32"; empty: "bf16"
	Batch     int     // images per step; 0: the model's batch
	TFLOPS    float64 // throughput of matrix products in the precision, 10¹² per second; 0: an H200's in bf16
	TBPS      float64 // memory bandwidth, 10¹² bytes per second; 0: an H200's
}

// Default ceilings of one H200: the measured throughput of dense bf16 and fp16 matrix
// products, in TFLOP/s, and of a copy within its memory, in TB/s.
const (
	planTFLOPS = 790
	planTBPS   = 4.3
	// planFLOPS is the throughput of fp32 arithmetic outside of the tensor cores, per
	// second.
	planFLOPS = 60e12
)

// PlanReport describes the work of the kernels of a step, counted without a GPU.
type PlanReport struct {
	Model     string        `json:"model"`
	Network   string        `json:"network"`
	Precision string        `json:"precision"`
	Batch     int           `json:"batch"`
	Ceilings  Ceilings      `json:"ceilings"`
	Ways      []PlanVariant `json:"ways"`
}

// Ceilings are the assumed throughputs of the GPU; they are not measured.
type Ceilings struct {
	TensorFLOPS    float64 `json:"tensor_flops"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// PlanVariant describes the work of a step with a certain set of the engine's fusions.
type PlanVariant struct {
	Name            string             `json:"name"`
	Tasks           int                `json:"tasks"`
	FLOPs           float64            `json:"flops"`
	Bytes           float64            `json:"bytes"`
	PartBytes       map[string]float64 `json:"part_bytes"` // forward, backward, optimizer
	TaskBytes       map[string]float64 `json:"task_bytes"` // by task: conv, batch_norm, …
	AtLeastMS       float64            `json:"at_least_milliseconds"`
	ImagesPerSecond float64            `json:"images_per_second"` // upper limit
	Layers          []PlanLayer        `json:"layers"`
}

// PlanLayer describes the work of one task of a layer.
type PlanLayer struct {
	Part      string  `json:"part"`
	Layer     string  `json:"layer"`
	Task      string  `json:"task"`
	FLOPs     float64 `json:"flops"`
	Bytes     float64 `json:"bytes"`
	AtLeastMS float64 `json:"at_least_milliseconds"`
}

// Validate returns an error for the first invalid option.
func (o PlanOptions) Validate() error {
	if o.Batch < 0 || o.TFLOPS < 0 || o.TBPS < 0 {
		return fmt.Errorf("plan GPU work: got batch %d, %g TFLOP/s and %g TB/s, want positive numbers", o.Batch, o.TFLOPS, o.TBPS)
	}
	return Options{Model: o.Model, Precision: o.Precision}.Validate()
}

// Plan counts the bytes and floating-point operations of the kernels of a training step
// with Adam, and computes the least time that they need: without fusions, with fusions,
// and in fp16 with convolutions that include batch norms. It assumes that cuDNN supports
// every requested graph. If it does not support some of them, the step takes longer.
func Plan(o PlanOptions) (*PlanReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Precision = cmp.Or(o.Precision, "bf16")
	c := cuda.Ceilings{TensorFLOPS: 1e12 * cmp.Or(o.TFLOPS, planTFLOPS), BytesPerSecond: 1e12 * cmp.Or(o.TBPS, planTBPS), FLOPS: planFLOPS}
	m, err := Options{Model: o.Model}.findNetwork()
	if err != nil {
		return nil, err
	}
	m.shape.Batch = cmp.Or(o.Batch, m.shape.Batch)
	if o.Precision == "fp32" && o.TFLOPS == 0 {
		c.TensorFLOPS = planFLOPS
	}
	r := &PlanReport{
		Model: m.name, Network: m.shape.String(), Precision: o.Precision, Batch: m.shape.Batch,
		Ceilings: Ceilings{c.TensorFLOPS, c.BytesPerSecond},
	}
	net, err := m.shape.Build()
	if err != nil {
		return nil, err
	}
	g, err := net.Graph(m.shape.Batch, nn.Train)
	if err != nil {
		return nil, err
	}
	for _, way := range []struct {
		name       string
		fuse, norm bool
	}{{"nothing fused", false, false}, {"fused", true, false}, {"fused, norms in convolutions", true, true}} {
		if way.norm && o.Precision != "fp16" {
			continue
		}
		p, err := plan.Lower(g, plan.Options{Fuse: way.fuse})
		if err != nil {
			return nil, err
		}
		e := Options{Precision: o.Precision}.withDefaults().engineOptions()
		e.Fuse, e.FuseNorm = way.fuse, way.norm
		update := optim.DefaultConfig().Update(1e-3, 1)
		work, err := cuda.PlannedWork(p, e, &update)
		if err != nil {
			return nil, fmt.Errorf("plan GPU work, %s: %w", m.name, err)
		}
		r.Ways = append(r.Ways, newPlanVariant(way.name, work, c, m.shape.Batch))
	}
	return r, nil
}

// newPlanVariant adds up the work of a step and computes the least time that it needs.
func newPlanVariant(name string, work []cuda.Work, c cuda.Ceilings, batch int) PlanVariant {
	w := PlanVariant{Name: name, Tasks: len(work), PartBytes: map[string]float64{}, TaskBytes: map[string]float64{}}
	each, sum := c.MinSecondsOfTasks(work)
	for i, t := range work {
		w.FLOPs += t.FLOPs
		w.Bytes += t.Bytes
		w.PartBytes[t.Part] += t.Bytes
		w.TaskBytes[t.Task] += t.Bytes
		w.Layers = append(w.Layers, PlanLayer{t.Part, t.Layer, t.Task, t.FLOPs, t.Bytes, 1e3 * each[i]})
	}
	w.AtLeastMS, w.ImagesPerSecond = 1e3*sum, float64(batch)/sum
	return w
}

// Write writes the report as tables or as JSON. If layers is true, the tables include
// every task of the last variant.
func (r *PlanReport) Write(w io.Writer, asJSON, layers bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	fmt.Fprintf(w, "%s, %s; counted, not measured; assuming %.0f TFLOP/s, %.2f TB/s, and that cuDNN supports every requested graph\n\n",
		r.Network, r.Precision, r.Ceilings.TensorFLOPS/1e12, r.Ceilings.BytesPerSecond/1e12)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "a step\ttasks\tTFLOP\tGB\tforward\tbackward\toptimizer\tms at least\timages/s at most")
	for _, y := range r.Ways {
		fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\n", y.Name, y.Tasks, y.FLOPs/1e12, y.Bytes/1e9,
			y.PartBytes["forward"]/1e9, y.PartBytes["backward"]/1e9, y.PartBytes["optimizer"]/1e9, y.AtLeastMS, y.ImagesPerSecond)
	}
	names := map[string]float64{}
	for _, y := range r.Ways {
		for task, b := range y.TaskBytes {
			names[task] = max(names[task], b)
		}
	}
	fmt.Fprintln(t, "\nGB of each task\tnothing fused\tfused\tnorms in convolutions")
	for _, task := range slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Or(cmp.Compare(names[b], names[a]), cmp.Compare(a, b)) }) {
		fmt.Fprint(t, task)
		for _, y := range r.Ways {
			fmt.Fprintf(t, "\t%.3f", y.TaskBytes[task]/1e9)
		}
		fmt.Fprintln(t)
	}
	if layers {
		fmt.Fprintln(t, "\npart\tlayer\ttask\tGFLOP\tMB\tms at least")
		for _, l := range r.Ways[len(r.Ways)-1].Layers {
			fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%.1f\t%.4f\n", l.Part, l.Layer, l.Task, l.FLOPs/1e9, l.Bytes/1e6, l.AtLeastMS)
		}
	}
	return t.Flush()
}
