package monitor

import (
	"time"

	"lockstep/pkg/runs"
)

// LoadMeter measures, for each epoch of a run, the CPU time of the run and of all other processes
// on the machine.
type LoadMeter struct {
	cpu     *CPUMeter
	started time.Time
	begin   CPUTimes
	known   bool // whether begin is valid
}

// NewLoadMeter returns a meter for the run with the processes roots and all their descendants.
func NewLoadMeter(roots ...int) *LoadMeter { return &LoadMeter{cpu: NewCPUMeter(roots...)} }

// Begin starts the measurement of an epoch.
func (m *LoadMeter) Begin() {
	var err error
	m.begin, err = m.cpu.Sample()
	m.started, m.known = time.Now(), err == nil
}

// End returns the load of an epoch since Begin. ok is false if the CPU times cannot be read.
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
