// Package logline is what the formats of lines in text logs need: the state of a log
// while it is read, and the description of a format.
//
// A Format has rules, and each Rule reads the lines that begin with its prefix. The
// function of a rule gets the Log and the line without the labels at its beginning
// (StripPrefix). It counts the line for its format with Log.CountLine, adds the
// values of the line to the run that CountLine returns, and returns Used:
//
//	func readMyLoss(log *logline.Log, m []byte) logline.Result {
//		c := scan.Cursor{Rest: m}
//		n := c.Expect("my epoch ").ReadInteger()
//		loss := c.Expect(": loss ").ReadFloat()
//		if !c.IsComplete() {
//			return logline.Unknown
//		}
//		log.CountLine(logline.MyTrainer)
//		log.FindOrAddEpoch(n, 0).TrainLoss = loss
//		return logline.Used
//	}
//
// A Run has fields for values that several formats have. A format keeps its own state in Run.States
// or, if it concerns all runs of a log, in Log.States; the function State returns it.
package logline
