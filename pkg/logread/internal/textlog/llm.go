package textlog

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// Programs that train language models and print steps, not epochs.
//
// nanoGPT (train.py, 2022 to 2025; the time of a step with an evaluation includes the
// evaluation):
//
//	tokens per iteration will be: 491,520
//	step 250: train loss 1.9600, val loss 2.0500
//	iter 250: loss 1.9012, time 26.50ms, mfu 3.25%
//
// DeepSpeed (0.4 to 0.19: engine._report_progress, timer.ThroughputTimer, pipe/engine.py,
// launcher/launch.py); the rates are those of all processes:
//
//	[…] [INFO] [launch.py:163:main] dist_world_size=8
//	[…] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=1, lr=[1e-05], mom=[(0.9, 0.999)]
//	[…] [INFO] [timer.py:199:stop] epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=95.5, CurrSamplesPerSec=96.25, …
//	[…] [INFO] [timer.py:157:stop] 0/10, SamplesPerSec=64.5
//	steps: 10 loss: 2.3000 iter time (s): 0.500 samples/sec: 128.000
//
// Megatron-LM (1.0 to core 0.20: training_log and evaluate_and_print_results of training.py,
// arguments.py); the last rank prints them:
//
//	using world size: 16, data-parallel size: 8, …
//	 [2024-05-04 10:00:30] iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): 2500.0 | … |
//	 validation loss at iteration 200 | lm loss value: 8.125000E+00 | lm loss PPL: 3.377987E+03 |

// NanoGPT returns the format of nanoGPT.
func NanoGPT() format {
	return format{name: "nanoGPT", templates: nanoGPTTemplates(), finish: (*textRun).finishNanoGPT, lines: []lineRule{
		{prefix: "tokens per iteration will be: ", read: (*textLog).readNanoGPTTokens, endsWithValue: true},
	}}
}

// DeepSpeed returns the format of DeepSpeed.
func DeepSpeed() format {
	return format{name: "DeepSpeed", templates: deepSpeedTemplates(), lines: []lineRule{
		{prefix: "dist_world_size=", read: (*textLog).readDeepSpeedWorldSize, endsWithValue: true},
		{prefix: "Discovered MPI settings of world_rank=", read: (*textLog).readDeepSpeedWorldSize},
	}}
}

// Megatron returns the format of Megatron-LM.
func Megatron() format {
	return format{name: "Megatron-LM", lines: []lineRule{
		{prefix: "using world size: ", read: (*textLog).readMegatronWorldSize},
		{prefix: "iteration ", read: (*textLog).readMegatronIteration},
		{prefix: "validation loss at ", read: (*textLog).readMegatronValidation},
	}}
}

// nanoGPTTemplates describe the lines of nanoGPT with steps.
func nanoGPTTemplates() []string {
	return []string{
		"step {step}: train loss {train_loss}, val loss {val_loss}",
		"iter {step}: loss {loss}, time {step_seconds}ms, mfu {mfu}%",
	}
}

// deepSpeedTemplates describe the lines of DeepSpeed.
func deepSpeedTemplates() []string {
	return []string{
		"step={step}, skipped={skipped}, lr=[{lr}*], mom=*",
		"epoch=*/micro_step=*/global_step={step}, RunningAvgSamplesPerSec={running_samples_per_second}, CurrSamplesPerSec={samples_per_second}, *",
		"steps: {step} loss: {loss} *iter time (s): {step_seconds} samples/sec: {samples_per_second}",
		"0/{step}, SamplesPerSec={samples_per_second}*",
	}
}

// readDeepSpeedWorldSize reads the number of processes at the start of a training.
func (t *textLog) readDeepSpeedWorldSize(m []byte) lineResult {
	_, rest, found := bytes.Cut(m, []byte("world_size="))
	c := scan.Cursor{Rest: rest}
	n := c.ReadInteger()
	if !found || c.Failed || len(c.Rest) > 0 && c.Rest[0] != ',' || n < 1 || n > record.MaxWorkers {
		return unknown
	}
	t.beginHeader().run.Info.Workers = n
	return used
}

// nanoGPTState is what a run's lines of nanoGPT contain beside curves.
type nanoGPTState struct {
	tokensPerStep float64 // of all workers
}

// nanoGPTOf returns what the header of nanoGPT in a run contains.
func nanoGPTOf(r *textRun) *nanoGPTState { return stateOf[nanoGPTState](&r.states, formatNanoGPT) }

// readNanoGPTTokens reads the number of tokens of a step.
func (t *textLog) readNanoGPTTokens(m []byte) lineResult {
	var buf [64]byte
	v, ok := scan.ParseFloat(appendWithoutCommas(buf[:0], bytes.TrimSpace(m[len("tokens per iteration will be: "):])))
	if !ok || !(v >= 1) {
		return unknown
	}
	nanoGPTOf(t.beginHeader()).tokensPerStep = v
	return used
}

// finishNanoGPT computes the throughput of each step from its time. Steps with an evaluation
// do not count, since their time includes it.
func (r *textRun) finishNanoGPT(report *record.Report) {
	seconds := r.curves["step_seconds"]
	if nanoGPTOf(r).tokensPerStep == 0 || seconds == nil || r.linesByFormat[formatNanoGPT] == 0 {
		return
	}
	evaluated := map[int64]bool{}
	if c := r.curves["val_loss"]; c != nil {
		for _, step := range c.Steps {
			evaluated[step] = true
		}
	}
	rates := &runCurve{Curve: *record.NewCurve("tokens_per_second", seconds.Rank, false)}
	for i, step := range seconds.Steps {
		if v := nanoGPTOf(r).tokensPerStep / seconds.Values[i]; !evaluated[step] && v > 0 && !math.IsInf(v, 0) {
			rates.Add(step, v, 0)
		}
	}
	if len(rates.Steps) > 0 {
		r.curves[rates.Name], r.run.ThroughputUnit = rates, "tokens/s"
		report.AddAssumption("tokens per second: the tokens per iteration divided by the time of the iteration, without iterations that evaluate")
	}
}

// readMegatronWorldSize reads the line "using world size:".
func (t *textLog) readMegatronWorldSize(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	n := c.Expect("using world size: ").ReadInteger()
	if c.Expect(", data-parallel"); c.Failed || n < 1 || n > record.MaxWorkers {
		return unknown
	}
	run := t.beginHeader()
	run.run.Info.Workers = n
	return used
}

// readMegatronIteration reads a line of an iteration, whose fields are separated by |.
func (t *textLog) readMegatronIteration(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	step := c.Expect("iteration").SkipBlanks().ReadInteger()
	c.Expect("/").SkipBlanks().ReadInteger()
	if c.SkipBlanks().Expect("|"); c.Failed || !bytes.Contains(c.Rest, []byte("elapsed time per iteration (ms):")) {
		return unknown
	}
	if curve := t.cur.curves["step_seconds"]; curve != nil && t.cur.linesByFormat[formatMegatron] > 0 && len(curve.Steps) > 0 && int64(step) <= curve.Steps[0] {
		t.beginRun()
	}
	if !bytes.HasSuffix(bytes.TrimSpace(m), []byte("|")) { // torn: the last field may be incomplete
		i := bytes.LastIndexByte(c.Rest, '|')
		t.in.AddProblem(t.l.Number, "line is torn: %.80q; its last field is not used", m[max(0, len(m)-80):])
		c.Rest = c.Rest[:i+1]
	}
	t.countLine(formatMegatron)
	batch, seconds := math.NaN(), math.NaN()
	for len(c.Rest) > 0 {
		field, rest, _ := bytes.Cut(c.Rest, []byte("|"))
		c.Rest = rest
		i := bytes.LastIndex(field, []byte(": "))
		if i < 0 {
			continue
		}
		name := bytes.TrimSpace(field[:i])
		v, ok := scan.ParseFloat(bytes.TrimSpace(field[i+2:]))
		if !ok || len(name) == 0 || len(name) > 100 {
			continue
		}
		switch string(name) {
		case "elapsed time per iteration (ms)":
			seconds, v = v/1000, v/1000
			name = []byte("step_seconds")
		case "global batch size":
			batch = v
		}
		t.addPoint(name, max(t.rank, -1), int64(step), v, t.stampSeconds())
	}
	if rate := batch / seconds; rate > 0 && !math.IsInf(rate, 0) {
		t.addPoint([]byte("samples_per_second"), max(t.rank, -1), int64(step), rate, t.stampSeconds())
		t.in.Report.AddAssumptionOnce("samples per second: the global batch size divided by the time of an iteration")
	}
	return used
}

// readMegatronValidation reads a line of an evaluation.
func (t *textLog) readMegatronValidation(m []byte) lineResult {
	head, rest, _ := bytes.Cut(m, []byte(" | "))
	i := bytes.LastIndex(head, []byte(" iteration "))
	c := scan.Cursor{Rest: head[i+1:]}
	step := c.Expect("iteration ").ReadInteger()
	if i < 0 || t.cur.linesByFormat[formatMegatron] == 0 || c.Failed {
		return unknown
	}
	t.countLine(formatMegatron)
	for len(rest) > 0 {
		field, after, complete := bytes.Cut(rest, []byte("|"))
		rest = after
		name, text, found := bytes.Cut(field, []byte(" value: "))
		if v, ok := scan.ParseFloat(bytes.TrimSpace(text)); complete && found && ok && len(name) <= 90 {
			t.addPoint(append([]byte("validation "), bytes.TrimSpace(name)...), max(t.rank, -1), int64(step), v, t.stampSeconds())
		}
	}
	return used
}
