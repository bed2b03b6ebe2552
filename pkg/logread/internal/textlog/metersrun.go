package textlog

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// What programs with meters print before the first epoch, and what follows from all of their
// lines; see meters.go.

// readTimmMode reads timm's line with the number of processes.
func (t *textLog) readTimmMode(m []byte) lineResult {
	n := 1
	if _, rest, found := bytes.Cut(m, []byte(", total ")); found && bytes.HasPrefix(m, []byte("Training in distributed mode with multiple processes, 1 ")) {
		c := scan.Cursor{Rest: rest}
		if n = c.ReadInteger(); c.Failed || n < 1 || n > record.MaxWorkers {
			return unknown
		}
	} else if !bytes.HasPrefix(m, []byte("Training with a single process on 1 ")) {
		return unknown
	}
	t.beginHeader().run.Info.Workers = n
	return used
}

// readImageNetModel reads the line with the model, which each process of the ImageNet example
// prints before its first epoch.
func (t *textLog) readImageNetModel(m []byte) lineResult {
	name, end, _ := bytes.Cut(m[bytes.IndexByte(m, '\'')+1:], []byte("'"))
	if len(name) == 0 || len(name) > 100 || len(end) > 0 {
		return unknown
	}
	t.beginHeader()
	t.addSetting("model", string(name))
	return used
}

// readDistributedInit reads the line that each process of torchvision's references prints.
func (t *textLog) readDistributedInit(m []byte) lineResult {
	c := scan.Cursor{Rest: m}
	rank := c.Expect("| distributed init (rank ").ReadInteger()
	if c.Expect("):"); c.Failed || rank > record.MaxWorkers {
		return unknown
	}
	s := metersOf(t.beginHeader())
	if s.initRanks == nil {
		s.initRanks = map[int]bool{}
	}
	s.initRanks[rank] = true
	return used
}

// readNamespace reads the settings that argparse.Namespace prints, of which those of
// torchvision's references are used.
func (t *textLog) readNamespace(m []byte) lineResult {
	if m[len(m)-1] != ')' || len(metersOf(t.cur).initRanks) == 0 || metersOf(t.cur).primary != nil {
		return unknown
	}
	for list := m[len("Namespace(") : len(m)-1]; ; {
		name, v, rest, ok := progress.NextValue(list)
		if !ok {
			return used
		}
		list = rest
		switch {
		case string(name) == "world_size" && record.IsPlausibleCount(v):
			t.cur.run.Info.Workers = int(v)
		case string(name) == "batch_size" && record.IsPlausibleCount(v): // images per GPU
			t.cur.run.Info.BatchPerWorker = int(v)
		case string(name) == "seed" && v == math.Trunc(v) && math.Abs(v) < 1<<53:
			t.cur.run.Info.Seed, t.cur.seedKnown = int64(v), true
		}
	}
}

// finishMeters sets the times of the epochs of programs that print only the mean time of a
// step, and the number of workers.
func (r *textRun) finishMeters(report *record.Report) {
	s := metersOf(r)
	if n := len(s.initRanks); n > 1 && r.run.Info.Workers == 0 {
		for rank := range s.initRanks {
			n = max(n, rank+1)
		}
		r.run.Info.Workers = n
	}
	if s.primary == nil {
		return
	}
	report.AddAssumptionOnce("losses and accuracies of an epoch are the means in its last line")
	for _, writers := range s.ranks {
		for _, w := range writers {
			r.setMeterSeconds(w, report)
		}
	}
	x := s.primary.current()
	if e := r.epochs.find(s.primary.id).Find(x.epoch); e != nil && math.IsNaN(e.Seconds) && !s.isComplete(x) {
		r.epochs.remove(x.epoch)
		report.AddAssumption("epoch %d is not complete (step %d of %d): its values are only in the curves", x.epoch+1, x.last, x.steps)
	}
}

// setMeterSeconds sets the times of the complete epochs of a process, if it has printed only
// the mean time of a step.
func (r *textRun) setMeterSeconds(w *meterWriter, report *record.Report) {
	list := r.epochs.find(w.id)
	for i := range w.epochs {
		x := &w.epochs[i]
		e := list.Find(x.epoch)
		if e == nil || !math.IsNaN(e.Seconds) || !(x.stepSeconds > 0) || i+1 == len(w.epochs) && !metersOf(r).isComplete(x) {
			continue
		}
		e.Seconds = x.stepSeconds * float64(x.steps)
		report.AddAssumptionOnce("the time of an epoch is the mean time of its logged steps times the number of its steps")
	}
}

// isComplete reports whether the epoch of a process's last line is complete: an evaluation has
// followed, or no further step of the epoch would be logged at the interval of the log.
func (s *meterState) isComplete(x *meterEpoch) bool {
	return s.evaluated > x.epoch || x.last+1 >= x.steps || x.interval > 0 && x.last+x.interval >= x.steps
}
