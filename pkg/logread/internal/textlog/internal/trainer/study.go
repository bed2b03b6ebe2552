package trainer

import (
	"bytes"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// The output of the programs of the U-Net study:
//
//	PyTorch Settings:
//	--epochs: 200
//	[INFO] EPOCH: 1/200
//	Train loss: 0.561627, elapsed time: 205.38
//	Elapsed execution time: 38765.41 sec
//	Test loss: 0.21, elapsed time: 29.63
//	IOU on test: 0.8998

// Study returns the format of the programs of the U-Net study.
func Study() logline.Format {
	// Many programs print a loss.
	rule := func(line string, use func(log *logline.Log, v []template.Value) logline.Result) logline.Rule {
		return logline.Rule{Templates: []string{line}, Use: use, MayBeOther: true}
	}
	return logline.Format{Name: "U-Net study stdout", ReadInBlock: readStudySetting, Rules: []logline.Rule{
		{Prefix: "[INFO] EPOCH: ", Read: readStudyEpoch},
		{Prefix: "Train loss: ", Read: readStudyLoss, EndsWithValue: true},
		rule("Test loss: {test_loss}, elapsed time: {seconds}", func(log *logline.Log, v []template.Value) logline.Result {
			test := findOrAddTest(log.CountLine(logline.Study))
			test.Loss, test.Seconds = v[0].Number, v[1].Number
			return logline.Used
		}),
		rule("IOU on test: {iou}", func(log *logline.Log, v []template.Value) logline.Result {
			findOrAddTest(log.CountLine(logline.Study)).IoU = v[0].Number
			return logline.Used
		}),
		rule("Elapsed execution time: {seconds} sec", func(log *logline.Log, v []template.Value) logline.Result {
			log.CountLine(logline.Study)
			log.AddSetting(record.TrainingSecondsKey, v[0].Number)
			return logline.Used
		}),
		{Prefix: "PyTorch Settings:", Read: readStudySettings},
		{Prefix: "TensorFlow Settings:", Read: readStudySettings},
	}}
}

func readStudyEpoch(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	n := c.Expect("[INFO] EPOCH: ").ReadInteger()
	c.Expect("/").ReadInteger()
	if !c.IsComplete() || n < 1 {
		return logline.Unknown
	}
	log.Block = logline.NoBlock
	last := log.LastEpoch()
	if last != nil && n != last.Epoch && last.TrainLoss != last.TrainLoss && last.Seconds != last.Seconds {
		log.AddProblem("epoch %d has no values: epoch %d begins before them", last.Epoch, n)
	}
	if last != nil && n < last.Epoch {
		log.BeginRun()
	}
	if len(log.Config) > 0 { // settings before the first epoch
		log.AddConfig(log.Config)
		log.Config = nil
	}
	log.CountLine(logline.Study)
	log.FindOrAddEpoch(n, 0)
	return logline.Used
}

func readStudyLoss(log *logline.Log, m []byte) logline.Result {
	c := scan.Cursor{Rest: m}
	loss := c.Expect("Train loss: ").ReadFloat()
	seconds := c.Expect(", elapsed time: ").ReadFloat()
	c.SkipBlanks()
	if c.Accept("sec"); !c.IsComplete() {
		return logline.Unknown // many programs print a loss
	}
	e := log.LastEpoch()
	if e == nil {
		return log.Refuse("loss without a line \"[INFO] EPOCH: N/M\" before it")
	}
	if e.TrainLoss == e.TrainLoss || e.Seconds == e.Seconds { // the epoch has its line
		return log.Refuse("second training loss of epoch %d: a line \"[INFO] EPOCH: N/M\" before it is missing", e.Epoch)
	}
	log.CountLine(logline.Study)
	e.TrainLoss, e.Seconds, e.Line = loss, log.EpochSecondsOrNaN(seconds), log.Lines.Number
	return logline.Used
}

// findOrAddTest returns the test of the run. If there is none, it adds a test without results.
func findOrAddTest(r *logline.Run) *runs.Test {
	info := &r.Run.Info
	if info.Test == nil {
		info.Test = record.NewUnmeasuredTest()
	}
	return info.Test
}

// readStudySettings reads "PyTorch Settings:" or "TensorFlow Settings:", which begins a list of settings.
func readStudySettings(log *logline.Log, _ []byte) logline.Result {
	log.Block = logline.Study
	return logline.Idle
}

// readStudySetting reads "--key: value" in a list of settings, for the run after it.
func readStudySetting(log *logline.Log, m []byte) logline.Result {
	if !scan.HasPrefix(m, "--") {
		log.Block = logline.NoBlock
		return logline.Unknown
	}
	key, value, ok := bytes.Cut(m[2:], []byte(":"))
	if !ok || !scan.IsName(key) || len(value) > 1000 || len(log.Config) >= record.MaxRunSettings {
		return logline.Unknown
	}
	record.PutInMap(&log.Config, string(key), logline.ParseNumberOrText(value))
	return logline.Idle
}
