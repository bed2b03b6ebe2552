package launch

import (
	"errors"
	"sync"
	"time"

	"lockstep/pkg/launch/internal/estimate"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/runs"
)

// The values of RunStatus.State.
const (
	StateWaiting  = queue.StateWaiting
	StateRunning  = runs.StatusRunning
	StateDone     = runs.StatusDone
	StateFailed   = runs.StatusFailed
	StateCanceled = runs.StatusCanceled
	// StateNotStarted is the state of a run whose sweep ended before. The same launch starts it.
	StateNotStarted = "not started"
)

// RunStatus describes the state and progress of a run.
type RunStatus struct {
	Name    string // of the run folder in Job.Dir
	Dir     string
	Workers int
	Seed    int64
	State   string // one of the State constants
	Err     error  // nil unless the run failed or was canceled
	Seconds float64
	// Epoch is the number of epochs done, and Epochs the number of all, or 0 if unknown. For a
	// program other than lockstep they come from its logs.
	Epoch, Epochs int
	// Binding describes the workers' CPUs, or is nil until run.json contains it.
	Binding *runs.Binding
	// Last is the last finished epoch. It is the zero Epoch if none has finished.
	Last runs.Epoch
	// Lines is the number of lines that rank 0 has written, and Line the last of them.
	Lines int
	Line  string
	// Job is the id of the run's job of Slurm, or "" on this machine.
	Job string
	// Waits describes what the run's job on Slurm waits for. It is "" if the job does not wait.
	Waits string
	// Ends is when the running run will probably end, by the mean time of its epochs. It is the
	// zero time if unknown.
	Ends time.Time

	isProgram bool // whether it is another program, which cannot be continued

	read *runs.Run // the run folder as last read
}

// runState is the state of a run, in addition to its plan.
type runState struct {
	mu             sync.Mutex
	state          string
	started, ended time.Time
	err            error
	rank0Output    *output.WorkerWriter // nil before rank 0 is started, and in another process
	folder         runfolder.Reader
}

// setRank0Output stores the output of rank 0, for Status. Only the first call has an effect,
// because rank 0 is started first.
func (s *runState) setRank0Output(o *output.WorkerWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rank0Output == nil {
		s.rank0Output = o
	}
}

func (s *runState) status(r *PlannedRun) RunStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := RunStatus{Name: r.Name, Dir: r.Dir, Workers: r.Workers, Seed: r.Seed, State: s.state, Err: s.err, Epochs: r.Epochs, isProgram: r.Program}
	if s.rank0Output != nil {
		status.Lines, status.Line = s.rank0Output.LastLine()
	}
	switch {
	case s.started.IsZero():
	case s.state == StateRunning:
		status.Seconds = time.Since(s.started).Seconds()
	default:
		status.Seconds = s.ended.Sub(s.started).Seconds()
	}
	if s.state != StateWaiting {
		s.folder.Reread(r.Dir, s.state == StateRunning, r.Program)
	}
	if n, ok := s.folder.Run.Info.Config["epochs"].(float64); ok {
		status.Epochs = int(n)
	}
	status.Binding = s.folder.Run.Info.Binding
	if n := len(s.folder.Run.Epochs); n > 0 {
		status.Epoch, status.Last = n, s.folder.Run.Epochs[n-1]
	}
	read := s.folder.Run
	read.Info.Status = s.state // run.json is not read again when the state changes
	status.read = &read
	if s.state == StateRunning {
		status.Ends = estimate.EndTime(s.folder.Run.Epochs, status.Epochs, s.folder.Time)
	}
	return status
}

// markNotStarted sets the state to not started if the run still waits although its sweep has ended.
func (s *RunStatus) markNotStarted() {
	if s.State == StateWaiting {
		s.State = StateNotStarted
	}
}

// toRecord returns the part of the sweep's record about the run. r is the plan of the run.
func (s *runState) toRecord(r *PlannedRun) queue.RunRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := queue.RunRecord{
		Name: r.Name, Dir: r.Dir, Label: r.Label, Workers: r.Workers, Processes: r.Processes, Seed: r.Seed, Program: r.Program, Epochs: r.Epochs,
		State: s.state, Started: s.started, Ended: s.ended,
	}
	if s.err != nil {
		n.Error = s.err.Error()
	}
	return n
}

// attachedRun is a run that another process or Slurm executes.
type attachedRun struct {
	PlannedRun
	runState
}

// newAttachedRun returns the run that n describes. n contains the parts of the run's plan that are
// needed to observe it.
func newAttachedRun(n queue.RunRecord) *attachedRun {
	r := &attachedRun{PlannedRun: PlannedRun{
		Name: n.Name, Dir: n.Dir, Label: n.Label, Workers: n.Workers, Processes: n.Processes, Seed: n.Seed, Program: n.Program, Epochs: n.Epochs,
		JobID: n.Job, StudyLogs: n.StudyLogs,
	}}
	if r.Processes == 0 { // of an older launcher
		r.Processes = max(1, r.Workers)
	}
	r.updateFromRecord(n)
	return r
}

func (r *attachedRun) updateFromRecord(n queue.RunRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.started, r.ended, r.err = n.State, n.Started, n.Ended, nil
	if n.Error != "" {
		r.err = errors.New(n.Error)
	}
}
