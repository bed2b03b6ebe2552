package trainer

import (
	"bytes"
	"math"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// The logger of the SC21 tutorial "Deep Learning at Scale" (its train.py).
// Seconds × samples/sec is the number of samples of the epoch.
//
//	2021-11-12 00:32:26,118 - root - INFO - Configuration name: base
//	2021-11-12 00:32:26,119 - root - INFO - global_batch_size 64
//	2021-11-12 00:46:23,492 - root - INFO - Time taken for epoch 1 is 752.95 sec, avg 87.04 samples/sec
//	2021-11-12 00:46:23,492 - root - INFO -   Avg train loss=0.014280
//	2021-11-12 00:47:36,657 - root - INFO -   Avg val loss=0.007129
//	2021-11-12 00:47:36,657 - root - INFO -   Total validation time: 73.16 sec
//	2021-11-12 02:50:57,853 - root - INFO - DONE ---- rank 0

// SC21 returns the format of the logger of the SC21 tutorial.
func SC21() logline.Format {
	value := func(line string, of func(*runs.Epoch) *float64) logline.Rule {
		return logline.Rule{Templates: []string{line}, Use: func(log *logline.Log, v []template.Value) logline.Result {
			return setSC21Value(log, of, v[0].Number)
		}}
	}
	return logline.Format{Name: "SC21 log", ReadInBlock: readSC21Setting, NotInBlock: []logline.FormatID{logline.SC21, logline.Keras}, Rules: []logline.Rule{
		{
			Use: addSC21Epoch, EndsWithValue: true,
			Templates: []string{"Time taken for epoch {epoch} is {seconds} sec, avg {samples_per_second} samples/sec", "Time taken for epoch {epoch} is {seconds} sec"},
		},
		value("Avg train loss={train_loss}", func(e *runs.Epoch) *float64 { return &e.TrainLoss }),
		value("Avg val loss={val_loss}", func(e *runs.Epoch) *float64 { return &e.ValLoss }),
		value("Total validation time: {val_seconds} sec", func(e *runs.Epoch) *float64 { return &e.ValSeconds }),
		{Prefix: "Configuration name: ", Read: readSC21Name},
		{Templates: []string{"DONE ---- rank {rank}"}, Use: addFinishedSC21Rank, MayBeOther: true},
	}}
}

// readSC21Name reads "Configuration name:", which begins a run. One line per setting follows.
func readSC21Name(log *logline.Log, m []byte) logline.Result {
	name := strings.TrimSpace(string(m[len("Configuration name: "):]))
	if name == "" || len(name) > 200 {
		return logline.Unknown
	}
	if !log.Current.Epochs.IsEmpty() || log.Current.Run.Info.Series != "" && log.Current.Run.Info.Series != name {
		log.BeginRun()
	}
	run := log.CountLine(logline.SC21)
	run.Run.Info.Series = name
	log.Block = logline.SC21
	return logline.Used
}

// readSC21Setting reads "name value" after the configuration's name, up to a line of dashes.
func readSC21Setting(log *logline.Log, m []byte) logline.Result {
	if m[0] == '-' {
		log.Block = logline.NoBlock
		return logline.Idle
	}
	key, value, ok := bytes.Cut(m, []byte(" "))
	if !ok || !scan.IsName(key) || len(value) > 1000 || len(log.Stamp) == 0 {
		return logline.Unknown
	}
	log.AddProperty(string(key), logline.ParseNumberOrText(value))
	return logline.Used
}

// addSC21Epoch adds an epoch: its number, seconds and, if the line has them, samples per second.
// Epoch 1 after other epochs begins a run.
func addSC21Epoch(log *logline.Log, v []template.Value) logline.Result {
	n, seconds, rate := int(v[0].Number), v[1].Number, math.NaN()
	if len(v) > 2 {
		rate = v[2].Number
	}
	if n < 0 || n >= 1<<31 {
		return log.Refuse("got epoch %d, want 0 or more", n)
	}
	log.Block = logline.NoBlock
	if last := log.LastEpoch(); last != nil && n <= last.Epoch {
		switch {
		case n <= 1:
			log.BeginRun()
		case n < last.Epoch:
			log.In.Report.AddAssumptionOnce("epoch %d in line %d does not continue the epochs before it", n, log.Lines.Number)
			log.BeginRun()
		default:
			log.AddProblem("duplicate epoch %d; the later line counts", n)
		}
	}
	log.CountLine(logline.SC21)
	e := log.FindOrAddEpoch(n, 0)
	*e = record.NewUnmeasuredEpoch(n, log.Lines.Number)
	e.Seconds, e.SamplesPerSecond, e.Samples = log.EpochSecondsOrNaN(seconds), rate, samplesFromRate(seconds, rate)
	return logline.Used
}

// samplesFromRate returns the number of samples in an epoch: seconds × rate. It returns 0 if the
// product is not close to an integer, because seconds and rate were rounded.
func samplesFromRate(seconds, rate float64) int {
	samples := seconds * rate
	if !(samples > 0.5 && samples < 1<<40) {
		return 0
	}
	if n := int64(samples + 0.5); math.Abs(samples-float64(n)) < 1e-9*samples {
		return int(n)
	}
	return 0
}

func setSC21Value(log *logline.Log, of func(*runs.Epoch) *float64, v float64) logline.Result {
	e := log.LastEpoch()
	if e == nil {
		return log.Refuse("value of an epoch without a line with the epoch's time before it")
	}
	to := of(e)
	if *to == *to {
		return log.Refuse("second value of epoch %d: a line with the time of the next epoch is missing before it", e.Epoch)
	}
	*to = v
	log.CountLine(logline.SC21)
	return logline.Used
}

// addFinishedSC21Rank adds a rank, counted from 0, that reported its end. If only rank 0 does, which also
// writes the log file, the number of ranks stays unknown.
func addFinishedSC21Rank(log *logline.Log, v []template.Value) logline.Result {
	rank := int(v[0].Number)
	if rank < 0 || rank >= record.MaxWorkers {
		return logline.Unknown
	}
	log.CountLine(logline.SC21).Done = max(log.Current.Done, rank+1)
	return logline.Used
}
