package train

import (
	"fmt"
	"math"
	"strings"
	"time"

	"lockstep/pkg/model"
	"lockstep/pkg/runs"
)

// Rank 0 writes two outputs for other programs: out.log, with the lines of the SC21 tutorial's
// trainer, which log readers search for, and TensorBoard scalars with that trainer's tags.

func (r *runFiles) logToFile(format string, a ...any) error {
	if r.writer == nil {
		return nil
	}
	return r.writer.Log(format, a...)
}

// logToTerminal passes a line to WorkerOptions.Log on rank 0, but does not write it to out.log.
func (r *runFiles) logToTerminal(format string, a ...any) {
	if r.t.options.Log != nil && r.t.group.Rank() == 0 {
		r.t.options.Log(fmt.Sprintf(format, a...))
	}
}

// writeLogHeader writes the header of out.log. A resumed run writes another one.
func (r *runFiles) writeLogHeader() error {
	if err := r.logToFile("Configuration name: %s", r.t.cfg.Name); err != nil {
		return err
	}
	return r.logToFile("global_batch_size %d", r.t.globalBatch())
}

func (r *runFiles) logEpoch(row runs.Epoch, classes []runs.NamedScores) error {
	taken := fmt.Sprintf("Time taken for epoch %d is %v sec, avg %v samples/sec", row.Epoch, row.Seconds, row.SamplesPerSecond)
	r.logToTerminal("%s", taken)
	short, long := r.formatScores(row, classes)
	r.logToTerminal("  epoch %d/%d: train loss %.6f, val loss %.6f, %slr %.6g",
		row.Epoch, r.t.cfg.Epochs, row.TrainLoss, row.ValLoss, short, row.LearningRate)
	for _, line := range []string{
		taken,
		fmt.Sprintf("  Avg train loss=%f", row.TrainLoss),
		fmt.Sprintf("  Avg val loss=%f", row.ValLoss),
		fmt.Sprintf("  Total validation time: %v sec", row.ValSeconds),
		fmt.Sprintf("  %slearning rate=%.6g", long, row.LearningRate),
		"  " + r.t.formatThroughput(r.t.throughputOf(row.Samples/r.t.group.Size(), row.Seconds)),
	} {
		if err := r.logToFile("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// formatScores formats an epoch's scores: short for the terminal, and long for out.log. Both are ""
// for regression. The scores of the classes are only in short, because programs that read out.log
// expect one IoU.
func (r *runFiles) formatScores(row runs.Epoch, classes []runs.NamedScores) (short, long string) {
	switch r.t.net.Task() {
	case model.Segmentation:
		short = fmt.Sprintf("IoU %.4f, Dice %.4f, ", row.IoU, row.Dice)
		if classes != nil {
			short = fmt.Sprintf("mean IoU %.4f (%s), ", row.IoU, listClassIoUs(classes))
		}
		return short, fmt.Sprintf("IoU=%f, Dice=%f, ", row.IoU, row.Dice)
	case model.Classification:
		return fmt.Sprintf("accuracy %.4f, val accuracy %.4f, ", row.Accuracy, row.ValAccuracy),
			fmt.Sprintf("accuracy=%f, val accuracy=%f, ", row.Accuracy, row.ValAccuracy)
	}
	return "", ""
}

// listClassIoUs formats the IoUs of the first eight classes.
func listClassIoUs(classes []runs.NamedScores) string {
	const most = 8
	var parts []string
	for _, c := range classes[:min(most, len(classes))] {
		if math.IsNaN(c.IoU) {
			parts = append(parts, c.Name+" –")
		} else {
			parts = append(parts, fmt.Sprintf("%s %.4f", c.Name, c.IoU))
		}
	}
	if n := len(classes) - most; n > 0 {
		parts = append(parts, fmt.Sprintf("%d more", n))
	}
	return strings.Join(parts, ", ")
}

// exactThroughput returns seconds and the rate samples/seconds, adjusted so that their product in float64
// is exactly samples, because programs that read the log compute it. Due to rounding, this does not
// always hold for samples/seconds. exactThroughput then tries the neighboring float64 values of both
// numbers, and finally changes the seconds by up to 4e-9 of their value, which is rarely needed (29
// samples in 176385.25 s).
func exactThroughput(samples int, seconds float64) (exactSeconds, rate float64) {
	n := float64(samples)
	if !(seconds > 0) || math.IsInf(seconds, 1) || samples <= 0 {
		return seconds, n / seconds
	}
	exact := func(s float64) (rate float64, ok bool) {
		r := n / s
		for _, near := range []float64{r, math.Nextafter(r, 0), math.Nextafter(r, math.Inf(1))} {
			if s*near == n {
				return near, true
			}
		}
		return 0, false
	}
	up, down := seconds, seconds
	for range 64 { // the next float64 upwards and downwards, in turn
		for _, s := range []float64{up, down} {
			if r, ok := exact(s); ok {
				return s, r
			}
		}
		up, down = math.Nextafter(up, math.Inf(1)), math.Nextafter(down, 0)
	}
	for part := 0x1p-46; part <= 0x1p-28; part *= 2 {
		for _, s := range []float64{seconds + part*seconds, seconds - part*seconds} {
			if r, ok := exact(s); ok {
				return s, r
			}
		}
	}
	return seconds, n / seconds
}

// writeEpochEvents writes TensorBoard scalars for an epoch and its classes. Their step is the last
// completed one.
func (r *runFiles) writeEpochEvents(row runs.Epoch, classes []runs.NamedScores) error {
	if r.events == nil {
		return nil
	}
	iterations := float64(row.Samples) / float64(r.t.globalBatch())
	scalars := []runs.Scalar{
		{Tag: "Loss/train", Value: row.TrainLoss},
		{Tag: "Loss/valid", Value: row.ValLoss},
		{Tag: "Learning Rate", Value: row.LearningRate},
		{Tag: "Avg iters per sec", Value: iterations / row.Seconds},
	}
	for _, s := range []runs.Scalar{
		{Tag: "IoU", Value: row.IoU},
		{Tag: "Dice", Value: row.Dice},
		{Tag: "Accuracy/train", Value: row.Accuracy},
		{Tag: "Accuracy/valid", Value: row.ValAccuracy},
	} {
		if !math.IsNaN(s.Value) { // NaN: the task does not have this score
			scalars = append(scalars, s)
		}
	}
	for _, c := range classes {
		scalars = append(scalars, runs.Scalar{Tag: "IoU/" + c.Name, Value: c.IoU}, runs.Scalar{Tag: "Dice/" + c.Name, Value: c.Dice})
	}
	if err := r.events.AppendScalars(r.t.step, time.Now(), scalars...); err != nil {
		return err
	}
	return r.events.Flush()
}

// writeStepEvents writes TensorBoard scalars for a step of rank 0. The loss is that of rank 0's
// batch only, so its tag differs from the tag of the epoch's mean loss over all ranks.
func (r *runFiles) writeStepEvents(s runs.Step) error {
	if r.events == nil {
		return nil
	}
	seconds := s.Data + s.Forward + s.Backward + s.Wait + s.Optimizer
	const most = 5
	scalars := append(make([]runs.Scalar, 0, most), runs.Scalar{Tag: "Loss/step", Value: s.Loss}, runs.Scalar{Tag: "Seconds/step", Value: seconds})
	if speed := r.t.throughputOf(s.Samples, seconds); speed.samples > 0 {
		scalars = append(scalars, runs.Scalar{Tag: "Samples per sec/step", Value: speed.samples}, runs.Scalar{Tag: "Effective FLOP per sec/step", Value: speed.flops})
		if speed.fractionOfPeak > 0 {
			scalars = append(scalars, runs.Scalar{Tag: "Part of peak FLOP per sec/step", Value: speed.fractionOfPeak})
		}
	}
	return r.events.AppendScalars(s.Step, time.Now(), scalars...)
}

// throughput is the training speed of one worker.
type throughput struct {
	samples float64 // per second
	// flops is the effective number of floating-point operations per second. Operations are counted
	// as the network defines them: an algorithm that needs fewer operations (Winograd) does not
	// decrease the number, and recomputed activations do not increase it.
	flops float64
	// fractionOfPeak is flops divided by the engine's measured peak, or 0 if the peak is unknown.
	fractionOfPeak float64
}

// throughputOf returns the speed of one worker that processed the given number of samples in
// seconds. It is zero unless seconds is positive.
func (t *Trainer) throughputOf(samples int, seconds float64) throughput {
	if !(seconds > 0) {
		return throughput{}
	}
	r := throughput{samples: float64(samples) / seconds}
	r.flops = r.samples * float64(t.stepFLOPs) / float64(t.cfg.Batch)
	if t.peak > 0 {
		r.fractionOfPeak = r.flops / t.peak
	}
	return r
}

// formatThroughput formats r for out.log: the effective FLOP/s and, if the peak is known, the
// percentage of the peak.
func (t *Trainer) formatThroughput(r throughput) string {
	s := fmt.Sprintf("effective %.4g GFLOP/s a worker", r.flops/1e9)
	if t.peak > 0 {
		s += fmt.Sprintf(", %.1f %% of the measured peak of %.4g GFLOP/s", 100*r.fractionOfPeak, t.peak/1e9)
	}
	return s
}
