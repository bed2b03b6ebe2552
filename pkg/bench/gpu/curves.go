package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// Curves compares training on a GPU with the same training on the CPU.
type Curves struct {
	Folder string      `json:"folder"`
	Pairs  []CurvePair `json:"pairs"`
	Failed int         `json:"failed"`
}

// CurvePair compares a run on a GPU with the run on the CPU of the same seed and worker
// count.
type CurvePair struct {
	Series    string `json:"series"`
	Workers   int    `json:"workers"`
	Seed      int64  `json:"seed"`
	Device    string `json:"device"` // device of the GPU run
	Precision string `json:"precision"`

	Loss    []float64 `json:"loss"` // training loss of each epoch
	CPULoss []float64 `json:"cpu_loss"`
	// Worst is the largest |Loss/CPULoss − 1|, at epoch WorstEpoch. Band is its limit.
	Worst      float64 `json:"worst"`
	WorstEpoch int     `json:"worst_epoch"`
	Band       float64 `json:"band"`

	// IoU is the value over the test images after training. It may be at most IoUBand
	// below the CPU's.
	IoU     float64 `json:"iou"`
	CPUIoU  float64 `json:"cpu_iou"`
	IoUBand float64 `json:"iou_band"`

	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"` // reason of a failure
}

// lossBand returns the largest relative difference from the CPU's loss that an epoch may
// have.
//
// Training amplifies small differences: two algorithms of the CPU engine itself
// (Winograd and direct convolution; unet2d-cells, 12 epochs, seeds 1 and 2) differ by up
// to 1.1 % in an epoch's loss, and two seeds by up to 60 %. For fp32 the limit is five
// times 1.1 %. TF32, bf16 and fp16 round to 8 to 11 bits in place of 24; their limit is
// 15 %.
func lossBand(precision string, tf32 bool) float64 {
	if precision == "fp32" && !tf32 {
		return 0.05
	}
	return 0.15
}

// iouBand is the largest difference by which the IoU may be below the CPU's.
const iouBand = 0.02

// CompareCurves pairs each GPU run below dir with the CPU run of the same seed and
// worker count, and checks its training loss epoch by epoch and its final IoU. It is an
// error if there is no pair.
func CompareCurves(dir string) (*Curves, error) {
	folders, err := runs.Find(dir)
	if err != nil {
		return nil, fmt.Errorf("compare curves: %w", err)
	}
	type key struct {
		workers int
		seed    int64
	}
	onCPU := map[key]runs.Run{}
	var onGPU []runs.Run
	for _, folder := range folders {
		r, err := runs.Read(folder)
		if err != nil {
			return nil, fmt.Errorf("compare curves: %w", err)
		}
		if _, ok := engineOf(r.Info).CUDA(); ok {
			onGPU = append(onGPU, r)
		} else {
			onCPU[key{r.Info.Workers, r.Info.Seed}] = r
		}
	}
	c := &Curves{Folder: dir}
	for _, r := range onGPU {
		cpu, ok := onCPU[key{r.Info.Workers, r.Info.Seed}]
		if !ok {
			return nil, fmt.Errorf("compare curves: %s has no run on the CPU with %d workers and seed %d beside it: train one", r.Dir, r.Info.Workers, r.Info.Seed)
		}
		p := pair(r, cpu)
		if !p.OK {
			c.Failed++
		}
		c.Pairs = append(c.Pairs, p)
	}
	if len(c.Pairs) == 0 {
		return nil, fmt.Errorf("compare curves: %s holds no run on a GPU (of %s): give a folder that environment/gpu-check train has filled", dir, english.Count(len(folders), "run"))
	}
	return c, nil
}

// engineOf returns the engine options in a run's config.
func engineOf(i runs.Info) engine.Options {
	var o engine.Options
	if doc, ok := i.Config["engine"]; ok {
		// A config that cannot be read is not of a GPU run.
		if text, err := json.Marshal(doc); err == nil {
			_ = json.Unmarshal(text, &o)
		}
	}
	return o
}

// pair compares one run with its CPU run.
func pair(r, cpu runs.Run) CurvePair {
	o := engineOf(r.Info)
	p := CurvePair{
		Series: r.Info.Series, Workers: r.Info.Workers, Seed: r.Info.Seed, Device: r.Info.Engine,
		Precision: o.Precision, Band: lossBand(o.Precision, o.TF32), IoUBand: iouBand,
	}
	for _, e := range r.Epochs {
		p.Loss = append(p.Loss, e.TrainLoss)
	}
	for _, e := range cpu.Epochs {
		p.CPULoss = append(p.CPULoss, e.TrainLoss)
	}
	if err := p.judge(r, cpu); err != nil {
		p.Reason = err.Error()
	}
	p.OK = p.Reason == ""
	return p
}

func (p *CurvePair) judge(r, cpu runs.Run) error {
	for _, run := range []runs.Run{r, cpu} {
		switch {
		case run.Info.Status != runs.StatusDone:
			return fmt.Errorf("%s is %s, not done", run.Dir, run.Info.Status)
		case run.Info.Test == nil:
			return fmt.Errorf("%s has no final scores", run.Dir)
		}
	}
	switch {
	case len(p.Loss) == 0:
		return errors.New("no epoch was trained")
	case len(p.Loss) != len(p.CPULoss):
		return fmt.Errorf("%d epochs on the GPU, %d on the CPU", len(p.Loss), len(p.CPULoss))
	case r.Info.GlobalBatch != cpu.Info.GlobalBatch || r.Info.SamplesPerEpoch != cpu.Info.SamplesPerEpoch || r.Info.Parameters != cpu.Info.Parameters:
		return errors.New("the two runs differ in their batch, data or network")
	}
	for i, loss := range p.Loss {
		d := math.Abs(loss/p.CPULoss[i] - 1)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return fmt.Errorf("the loss of epoch %d is %v on the GPU and %v on the CPU", i+1, loss, p.CPULoss[i])
		}
		if d > p.Worst {
			p.Worst, p.WorstEpoch = d, i+1
		}
	}
	p.IoU, p.CPUIoU = r.Info.Test.IoU, cpu.Info.Test.IoU
	switch {
	case p.Worst > p.Band:
		return fmt.Errorf("the loss of epoch %d is %.1f %% off the CPU's: %.0f %% is the band", p.WorstEpoch, 100*p.Worst, 100*p.Band)
	case !(p.IoU >= p.CPUIoU-p.IoUBand):
		return fmt.Errorf("the IoU is %.4f, the CPU's %.4f: it may be %.2f less", p.IoU, p.CPUIoU, p.IoUBand)
	}
	return nil
}

// Write writes the verdicts as a table, or as JSON.
func (c *Curves) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(c)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "series\tworkers\tprecision\tepochs\tworst of the loss\tband\tIoU\tCPU's\tverdict")
	for _, p := range c.Pairs {
		verdict := "ok"
		if !p.OK {
			verdict = "FAILED: " + p.Reason
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%.2f %%\t%.0f %%\t%.4f\t%.4f\t%s\n",
			p.Series, p.Workers, p.Precision, len(p.Loss), 100*p.Worst, 100*p.Band, p.IoU, p.CPUIoU, verdict)
	}
	return t.Flush()
}
