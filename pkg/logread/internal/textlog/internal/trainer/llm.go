package trainer

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
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
func NanoGPT() logline.Format {
	return logline.Format{Name: "nanoGPT", Finish: finishNanoGPT, Templates: []string{
		"step {step}: train loss {train_loss}, val loss {val_loss}",
		"iter {step}: loss {loss}, time {step_seconds}ms, mfu {mfu}%",
	}, Rules: []logline.Rule{
		{Templates: []string{"tokens per iteration will be: {tokens}"}, Use: setNanoGPTTokens, MayBeOther: true},
	}}
}

// DeepSpeed returns the format of DeepSpeed.
func DeepSpeed() logline.Format {
	return logline.Format{Name: "DeepSpeed", Templates: []string{
		"step={step}, skipped={skipped}, lr=[{lr}*], mom=*",
		"epoch=*/micro_step=*/global_step={step}, RunningAvgSamplesPerSec={running_samples_per_second}, CurrSamplesPerSec={samples_per_second}, *",
		"steps: {step} loss: {loss} *iter time (s): {step_seconds} samples/sec: {samples_per_second}",
		"0/{step}, SamplesPerSec={samples_per_second}*",
	}, Rules: []logline.Rule{
		logline.WorkersRule(nil, "dist_world_size={workers}", "dist_world_size={workers},*"),
		logline.WorkersRule(nil, "Discovered MPI settings of world_rank=*world_size={workers}*"),
	}}
}

// Megatron returns the format of Megatron-LM.
func Megatron() logline.Format {
	return logline.Format{Name: "Megatron-LM", Rules: []logline.Rule{
		logline.WorkersRule(nil, "using world size: {workers}", "using world size: {workers}, data-parallel*"),
		{Prefix: "iteration ", Read: readMegatronIteration},
		{Prefix: "validation loss at ", Read: readMegatronValidation},
	}}
}

// tokensPerStep returns a pointer to the number of tokens that all workers of nanoGPT process per
// step.
func tokensPerStep(r *logline.Run) *float64 {
	return logline.FormatState[float64](&r.States, logline.NanoGPT)
}

func setNanoGPTTokens(log *logline.Log, v []template.Value) logline.Result {
	if !(v[0].Number >= 1) {
		return logline.Unknown
	}
	*tokensPerStep(log.BeginHeader()) = v[0].Number
	return logline.Used
}

// finishNanoGPT computes the throughput of each step from its time, except for steps with an
// evaluation, whose time includes it.
func finishNanoGPT(r *logline.Run, report *record.Report) {
	seconds := r.Curves.First("step_seconds")
	if *tokensPerStep(r) == 0 || seconds == nil || r.LinesByFormat[logline.NanoGPT] == 0 {
		return
	}
	evaluated := map[int64]bool{}
	if c := r.Curves.First("val_loss"); c != nil {
		for _, step := range c.Steps {
			evaluated[step] = true
		}
	}
	rates := r.Curves.FindOrAdd([]byte("tokens_per_second"), seconds.Rank, false)
	for i, step := range seconds.Steps {
		if v := *tokensPerStep(r) / seconds.Values[i]; rates != nil && !evaluated[step] && v > 0 && !math.IsInf(v, 0) {
			rates.AddPoint(step, v, 0)
		}
	}
	if rates != nil && rates.Points > 0 {
		r.Run.ThroughputUnit = "tokens/s"
		report.AddAssumption("tokens per second: the tokens per iteration divided by the time of the iteration, without iterations that evaluate")
	}
}

// readMegatronIteration reads a line of an iteration, whose fields are separated by |.
func readMegatronIteration(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	step := c.Expect("iteration").SkipBlanks().ReadInteger()
	c.Expect("/").SkipBlanks().ReadInteger()
	if c.SkipBlanks().Expect("|"); c.Failed || !bytes.Contains(c.Rest, []byte("elapsed time per iteration (ms):")) {
		return logline.Unknown
	}
	if curve := log.Current.Curves.First("step_seconds"); curve != nil && log.Current.LinesByFormat[logline.Megatron] > 0 && len(curve.Steps) > 0 && int64(step) <= curve.Steps[0] {
		log.BeginRun()
	}
	if !bytes.HasSuffix(bytes.TrimSpace(m), []byte("|")) { // torn: the last field may be incomplete
		i := bytes.LastIndexByte(c.Rest, '|')
		log.AddProblem("line is torn: %.80q; its last field is not used", m[max(0, len(m)-80):])
		c.Rest = c.Rest[:i+1]
	}
	log.CountLine(logline.Megatron)
	batch, seconds := math.NaN(), math.NaN()
	for name, v := range progress.NamedValues(c.Rest, "|") {
		switch string(name) {
		case "elapsed time per iteration (ms)":
			seconds, v = v/1000, v/1000
			name = []byte("step_seconds")
		case "global batch size":
			batch = v
		}
		log.AddPoint(name, max(log.Rank, -1), int64(step), v, log.StampSeconds())
	}
	if rate := batch / seconds; rate > 0 && !math.IsInf(rate, 0) {
		log.AddPoint([]byte("samples_per_second"), max(log.Rank, -1), int64(step), rate, log.StampSeconds())
		log.In.Report.AddAssumptionOnce("samples per second: the global batch size divided by the time of an iteration")
	}
	return logline.Used
}

func readMegatronValidation(log *logline.Log, m []byte) logline.Result {
	head, rest, _ := bytes.Cut(m, []byte(" | "))
	i := bytes.LastIndex(head, []byte(" iteration "))
	c := scan.Cursor{Rest: head[i+1:]}
	step := c.Expect("iteration ").ReadInteger()
	if i < 0 || log.Current.LinesByFormat[logline.Megatron] == 0 || c.Failed {
		return logline.Unknown
	}
	log.CountLine(logline.Megatron)
	rest = rest[:bytes.LastIndexByte(rest, '|')+1] // a last field without it is torn
	for name, v := range progress.NamedValues(rest, "|") {
		if name, found := bytes.CutSuffix(name, []byte(" value")); found && len(name) <= 90 {
			log.AddPoint(append([]byte("validation "), name...), max(log.Rank, -1), int64(step), v, log.StampSeconds())
		}
	}
	return logline.Used
}
