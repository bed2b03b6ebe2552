package textlog

import (
	"bytes"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// nnU-Net's training_log_*.txt and standard output, version 2 (nnUNetTrainer.py, 2.0 to 2.8)
// and version 1 (network_trainer.py, nnUNetTrainer.py), after the time stamps. Epochs are
// counted from 0. The time of an epoch includes its validation.
//
//	I am local rank 0. 2 GPUs are available. The world size is 2.Setting device to cuda:0
//	Epoch 5                                      epoch:  5
//	Current learning rate: 0.00995               lr: 0.00995
//	train_loss -0.5                              train loss : -0.5000
//	val_loss -0.6                                validation loss: -0.6000
//	Pseudo dice [0.8, np.float32(0.7)]           Average global foreground Dice: [0.8, 0.7]
//	Epoch time: 123.4 s                          This epoch took 123.400000 s

// NNUNet returns the format of nnU-Net.
func NNUNet() format {
	return format{name: "nnU-Net", countsFromZero: true, templates: nnUNetTemplates(), applies: (*textLog).isNNUNetLine, lines: []lineRule{
		{prefix: "Pseudo dice ", read: (*textLog).readNNUNetDice},
		{prefix: "Average global foreground Dice: ", read: (*textLog).readNNUNetDice},
		{prefix: "I am local rank ", read: (*textLog).readNNUNetRank},
	}}
}

// nnUNetTemplates describe the lines with one value. They count only with a time stamp as
// nnU-Net writes it; see isNNUNetLine.
func nnUNetTemplates() []string {
	return []string{
		"Epoch {epoch}", "epoch: {epoch}",
		"Current learning rate: {lr}", "lr: {lr}",
		"train_loss {train_loss}", "train loss : {train_loss}",
		"val_loss {val_loss}", "validation loss: {val_loss}",
		"Epoch time: {seconds} s", "This epoch took {seconds} s",
	}
}

// isNNUNetLine reports whether the current line has a time stamp as nnU-Net writes it, with
// microseconds and a colon, or follows a line that contains only such a stamp.
func (t *textLog) isNNUNetLine() bool {
	return t.microStamp || t.afterMicroStamp
}

// readNNUNetDice reads the list of the dice scores of the foreground classes. Its mean is the
// score of the epoch, as in nnU-Net. Classes that the validation set lacks have nan.
func (t *textLog) readNNUNetDice(m []byte) lineResult {
	e := t.lastEpoch()
	begin, end := bytes.IndexByte(m, '['), bytes.LastIndexByte(m, ']')
	if !t.isNNUNetLine() || e == nil || t.cur.linesByFormat[formatNNUNet] == 0 || begin < 0 || end < begin {
		return unknown
	}
	var mean record.MeanOfKnown
	for list := m[begin+1 : end]; len(list) > 0; {
		item, rest, _ := bytes.Cut(list, []byte(","))
		list = rest
		item = bytes.TrimSpace(item)
		if i := bytes.IndexByte(item, '('); i >= 0 { // np.float32(0.7)
			item = bytes.TrimSuffix(item[i+1:], []byte(")"))
		}
		v, ok := scan.ParseFloat(item)
		if !ok || v < 0 || v > 1 {
			t.in.AddProblem(t.l.Number, "expected a list of dice scores from 0 to 1, got %.80q", m)
			return unused
		}
		mean.Add(v)
	}
	t.countLine(formatNNUNet)
	e.Dice = mean.Value()
	t.in.Report.AddAssumptionOnce("the dice score of an epoch is the mean over the classes, and its time includes the validation, as in nnU-Net")
	return used
}

// readNNUNetRank reads the number of processes.
func (t *textLog) readNNUNetRank(m []byte) lineResult {
	_, rest, found := bytes.Cut(m, []byte("The world size is "))
	c := scan.Cursor{Rest: rest}
	n := c.ReadInteger()
	if c.Expect("."); !found || c.Failed || n < 1 || n > record.MaxWorkers {
		return unknown
	}
	t.beginHeader().run.Info.Workers = n
	return used
}
