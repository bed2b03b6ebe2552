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

// CurveComparison compares training on a GPU with the same training on the CPU.
type CurveComparison struct {
	Folder string      `json:"folder"`
	Pairs  []CurvePair `json:"pairs"`
	Failed int         `json:"failed"`
}

// CurvePair compares a GPU run with the CPU run of the same seed and worker count.
type CurvePair struct {
	Series    string `json:"series"`
	Workers   int    `json:"workers"`
	Seed      int64  `json:"seed"`
	Device    string `json:"device"` // device of the GPU run
	Precision string `json:"precision"`

	Loss    []float64 `json:"loss"` // training loss of each epoch
	CPULoss []float64 `json:"cpu_loss"`
	// Worst is the largest |Loss/CPULoss − 1|, which occurs in epoch WorstEpoch. Band is its limit.
	Worst      float64 `json:"worst"`
	WorstEpoch int     `json:"worst_epoch"`
	Band       float64 `json:"band"`

	// IoU and CPUIoU are the scores of the test images after training on the GPU and on the CPU. IoU
	// may be lower than CPUIoU by at most IoUBand.
	IoU     float64 `json:"iou"`
	CPUIoU  float64 `json:"cpu_iou"`
	IoUBand float64 `json:"iou_band"`

	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"` // reason of a failure
}

// lossTolerance returns the largest accepted relative difference between an epoch's loss on the GPU and on
// the CPU.
//
// Training amplifies small differences: two algorithms of the CPU engine itself (Winograd and direct
// convolution; unet2d-cells, 12 epochs, seeds 1 and 2) differ by up to 1.1 % in an epoch's loss, and two seeds
// by up to 60 %. The limit for fp32 is about five times the former, 5 %. For TF32, bf16 and fp16, which have 8
// to 11 significant bits instead of 24, it is 15 %.
func lossTolerance(precision string, tf32 bool) float64 {
	if precision == "fp32" && !tf32 {
		return 0.05
	}
	return 0.15
}

// iouTolerance is the largest accepted difference by which the IoU on the GPU is lower than on the CPU.
const iouTolerance = 0.02

// CompareCurves compares each GPU run below dir with the CPU run of the same seed and worker count: the
// loss of each epoch and the final IoU. It returns an error if there is no GPU run, or none on the CPU for it.
func CompareCurves(dir string) (*CurveComparison, error) {
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
		if _, ok := engineOptions(r.Info).CUDA(); ok {
			onGPU = append(onGPU, r)
		} else {
			onCPU[key{r.Info.Workers, r.Info.Seed}] = r
		}
	}
	c := &CurveComparison{Folder: dir}
	for _, r := range onGPU {
		cpu, ok := onCPU[key{r.Info.Workers, r.Info.Seed}]
		if !ok {
			return nil, fmt.Errorf("compare curves: found no CPU run with %d workers and seed %d to compare with %s: train one", r.Info.Workers, r.Info.Seed, r.Dir)
		}
		p := newCurvePair(r, cpu)
		if !p.OK {
			c.Failed++
		}
		c.Pairs = append(c.Pairs, p)
	}
	if len(c.Pairs) == 0 {
		return nil, fmt.Errorf("compare curves: found no GPU run in %s (%s): use a folder that environment/gpu-check train has written", dir, english.FormatCount(len(folders), "run"))
	}
	return c, nil
}

// engineOptions returns the engine options in a run's config, or none if they cannot be read.
func engineOptions(i runs.Info) engine.Options {
	var o engine.Options
	if doc, ok := i.Config["engine"]; ok {
		// A config that cannot be read is not of a GPU run.
		if text, err := json.Marshal(doc); err == nil {
			_ = json.Unmarshal(text, &o)
		}
	}
	return o
}

func newCurvePair(r, cpu runs.Run) CurvePair {
	o := engineOptions(r.Info)
	p := CurvePair{
		Series: r.Info.Series, Workers: r.Info.Workers, Seed: r.Info.Seed, Device: r.Info.Engine,
		Precision: o.Precision, Band: lossTolerance(o.Precision, o.TF32), IoUBand: iouTolerance,
	}
	for _, e := range r.Epochs {
		p.Loss = append(p.Loss, e.TrainLoss)
	}
	for _, e := range cpu.Epochs {
		p.CPULoss = append(p.CPULoss, e.TrainLoss)
	}
	if err := p.compareRuns(r, cpu); err != nil {
		p.Reason = err.Error()
	}
	p.OK = p.Reason == ""
	return p
}

// compareRuns sets Worst, WorstEpoch and the IoUs. It returns an error if the runs cannot be compared or
// differ by more than the tolerances.
func (p *CurvePair) compareRuns(r, cpu runs.Run) error {
	for _, run := range []runs.Run{r, cpu} {
		switch {
		case run.Info.Status != runs.StatusDone:
			return fmt.Errorf("run %s has the status %s, want done", run.Dir, run.Info.Status)
		case run.Info.Test == nil:
			return fmt.Errorf("run %s has no final scores", run.Dir)
		}
	}
	switch {
	case len(p.Loss) == 0:
		return errors.New("the GPU run has no epochs")
	case len(p.Loss) != len(p.CPULoss):
		return fmt.Errorf("the GPU run has %d epochs, but the CPU run has %d", len(p.Loss), len(p.CPULoss))
	case r.Info.GlobalBatch != cpu.Info.GlobalBatch || r.Info.SamplesPerEpoch != cpu.Info.SamplesPerEpoch || r.Info.Parameters != cpu.Info.Parameters:
		return errors.New("the two runs differ in their batch, data or network")
	}
	for i, loss := range p.Loss {
		d := math.Abs(loss/p.CPULoss[i] - 1)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return fmt.Errorf("invalid loss in epoch %d: %v on the GPU, %v on the CPU", i+1, loss, p.CPULoss[i])
		}
		if d > p.Worst {
			p.Worst, p.WorstEpoch = d, i+1
		}
	}
	p.IoU, p.CPUIoU = r.Info.Test.IoU, cpu.Info.Test.IoU
	switch {
	case p.Worst > p.Band:
		return fmt.Errorf("the loss of epoch %d differs by %.1f %% from the CPU, want at most %.0f %%", p.WorstEpoch, 100*p.Worst, 100*p.Band)
	case !(p.IoU >= p.CPUIoU-p.IoUBand):
		return fmt.Errorf("the IoU is %.4f on the GPU and %.4f on the CPU: the GPU may be at most %.2f lower", p.IoU, p.CPUIoU, p.IoUBand)
	}
	return nil
}

// Write writes the results as a table, or as JSON.
func (c *CurveComparison) Write(w io.Writer, asJSON bool) error {
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
