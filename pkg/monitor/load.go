package monitor

import (
	"time"

	"lockstep/pkg/runs"
)

// LoadMeter measures, for each epoch of a run, how much of the machine other
// processes used.
type LoadMeter struct {
	cpu     *CPU
	started time.Time
	begin   CPUTimes
	known   bool
}

// NewLoadMeter makes a meter of a run whose own processes are roots and all that
// descend from them.
func NewLoadMeter(roots ...int) *LoadMeter { return &LoadMeter{cpu: NewCPU(roots...)} }

// Begin begins an epoch.
func (m *LoadMeter) Begin() {
	var err error
	m.begin, err = m.cpu.Sample()
	m.started, m.known = time.Now(), err == nil
}

// End ends the epoch. ok is false where nothing can be known.
func (m *LoadMeter) End(epoch int) (load runs.Load, ok bool) {
	end, err := m.cpu.Sample()
	if !m.known || err != nil {
		return runs.Load{}, false
	}
	own := end.Tree - m.begin.Tree
	return runs.Load{
		Epoch: epoch, Seconds: time.Since(m.started).Seconds(), Cores: end.Cores,
		OwnSeconds: own, OtherSeconds: end.Busy - m.begin.Busy - own, StealSeconds: end.Steal - m.begin.Steal,
	}, true
}
