package trainer

import (
	"bytes"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
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
func NNUNet() logline.Format {
	return logline.Format{Name: "nnU-Net", CountsFromZero: true, Applies: isNNUNetLine, Templates: []string{
		"Epoch {epoch}", "epoch: {epoch}",
		"Current learning rate: {lr}", "lr: {lr}",
		"train_loss {train_loss}", "train loss : {train_loss}",
		"val_loss {val_loss}", "validation loss: {val_loss}",
		"Epoch time: {seconds} s", "This epoch took {seconds} s",
	}, Rules: []logline.Rule{
		{Prefix: "Pseudo dice ", Read: readNNUNetDice},
		{Prefix: "Average global foreground Dice: ", Read: readNNUNetDice},
		logline.WorkersRule(nil, "I am local rank *The world size is {workers}.*"),
	}}
}

// isNNUNetLine reports whether the current line has nnU-Net's time stamp, with microseconds and a
// colon, or follows a line that is only such a stamp.
func isNNUNetLine(log *logline.Log) bool {
	return log.MicroStamp || log.AfterMicroStamp
}

// readNNUNetDice reads the dice scores of the foreground classes. Their mean is the score of the
// epoch, as in nnU-Net. The score is nan for a class that does not occur in the validation set.
func readNNUNetDice(log *logline.Log, m []byte) logline.Result {
	e := log.LastEpoch()
	begin, end := bytes.IndexByte(m, '['), bytes.LastIndexByte(m, ']')
	if !isNNUNetLine(log) || e == nil || log.Current.LinesByFormat[logline.NNUNet] == 0 || begin < 0 || end < begin {
		return logline.Unknown
	}
	var mean record.MeanIgnoringNaN
	for list := m[begin+1 : end]; len(list) > 0; {
		item, rest, _ := bytes.Cut(list, []byte(","))
		list = rest
		item = bytes.TrimSpace(item)
		if i := bytes.IndexByte(item, '('); i >= 0 { // np.float32(0.7)
			item = bytes.TrimSuffix(item[i+1:], []byte(")"))
		}
		v, ok := scan.ParseFloat(item)
		if !ok || v < 0 || v > 1 {
			return log.Refuse("expected a list of dice scores from 0 to 1, got %.80q", m)
		}
		mean.Add(v)
	}
	log.CountLine(logline.NNUNet)
	e.Dice = mean.Value()
	log.In.Report.AddAssumptionOnce("the dice score of an epoch is the mean over the classes, and its time includes the validation, as in nnU-Net")
	return logline.Used
}
