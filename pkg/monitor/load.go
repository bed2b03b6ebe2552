package monitor

import (
	"time"

	"lockstep/pkg/runs"
)

// LoadMeter measures the CPU time that a run and the other processes of the machine use
// in each epoch.
type LoadMeter struct {
	cpu     *CPU
	started time.Time
	begin   CPUTimes
	known   bool // whether begin is valid
}

// NewLoadMeter returns a meter for a run. The processes of the run are roots, given by
// their process ids, and all their descendants.
func NewLoadMeter(roots ...int) *LoadMeter { return &LoadMeter{cpu: NewCPU(roots...)} }

// Begin starts the measurement of an epoch.
func (m *LoadMeter) Begin() {
	var err error
	m.begin, err = m.cpu.Sample()
	m.started, m.known = time.Now(), err == nil
}

// End returns the load since Begin, as that of the given epoch. ok is false if the CPU times
// cannot be read.
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
