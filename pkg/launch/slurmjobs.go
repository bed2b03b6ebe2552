package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/internal/slurmsubmit"
	"lockstep/pkg/runs"
)

// slurmPollInterval is the shortest time between two requests to Slurm: administrators want few per user.
const slurmPollInterval = 2 * time.Second

// slurmSweep is a sweep whose runs are jobs of Slurm. No process of this machine is needed while
// they run: their states come from Slurm and from the run folders.
type slurmSweep struct {
	study  string
	client slurm.Client
	out    *output.LineWriter

	mu       sync.Mutex
	runs     []*slurmRun
	next     time.Time // Slurm is not asked again before
	problem  string    // why the states of the jobs are unknown; "" if they are known
	reported string    // the last text of describeExpectedWait that was written to the output
	canceled bool      // whether this process has canceled the jobs
	record   *queue.SweepRecord
}

type slurmRun struct {
	*attachedRun
	job   slurm.Job // as last read; only the id if it was not read yet, and "" if the run was done before
	tails []*output.LogTail

	sharesJob bool // whether the job executes other runs of the sweep too; see SlurmOptions.OneJob
}

func newSlurmSweep(p *SweepPlan) *slurmSweep {
	m := &slurmSweep{study: p.Sweep.Study, client: p.jobs.client, out: output.NewLineWriter(p.Sweep.Output)}
	for i := range p.Runs {
		r := &attachedRun{PlannedRun: p.Runs[i]}
		if r.state = StateWaiting; r.Reason == reasonRunDone {
			r.state = StateDone
		}
		m.addRun(r)
	}
	return m
}

// attachSlurm returns the sweep on Slurm that record describes.
func attachSlurm(record *queue.SweepRecord) *slurmSweep {
	m := &slurmSweep{study: record.Study, out: output.NewLineWriter(nil), record: record}
	for _, n := range record.Runs {
		m.addRun(newAttachedRun(n))
	}
	return m
}

func (m *slurmSweep) addRun(r *attachedRun) {
	n := &slurmRun{attachedRun: r, job: slurm.Job{ID: r.JobID}}
	group := r.toWorkersRun()
	group.Output = m.out
	for process := range r.Processes {
		n.tails = append(n.tails, group.NewTail(process*r.workersPerProcess()))
	}
	if len(n.tails) > 0 {
		r.setRank0Output(n.tails[0].Out)
	}
	for _, other := range m.runs {
		if other.job.ID == n.job.ID && n.job.ID != "" {
			other.sharesJob, n.sharesJob = true, true
		}
	}
	m.runs = append(m.runs, n)
}

// isEndRecorded reports whether the run has ended and its result has been recorded.
func (r *slurmRun) isEndRecorded() bool {
	return r.state == StateDone || r.state == StateFailed || r.state == StateCanceled
}

// refreshJobStates asks Slurm for the states of the jobs, at most every slurmPollInterval. The caller holds mu.
func (m *slurmSweep) refreshJobStates() {
	if time.Now().Before(m.next) {
		return
	}
	defer m.reportWait()
	var ids []string
	for _, r := range m.runs {
		if !r.isEndRecorded() {
			ids = append(ids, r.job.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	jobs, err := m.client.QueryJobs(context.Background(), ids)
	m.next = time.Now().Add(slurmPollInterval)
	if err != nil {
		m.problem = err.Error()
		return
	}
	m.problem = ""
	changed := false
	for _, r := range m.runs {
		if !r.isEndRecorded() {
			before := r.state
			r.updateFromJob(jobs[r.job.ID], m.canceled)
			changed = changed || r.state != before
		}
	}
	if changed {
		m.saveRecord()
	}
}

// updateFromJob sets the state of the run from that of its job, j. canceled is whether this process has
// canceled the job.
func (r *slurmRun) updateFromJob(j slurm.Job, canceled bool) {
	j.ID = r.job.ID
	r.job = j
	for _, t := range r.tails {
		t.CopyNewLines()
	}
	state, err := StateRunning, error(nil)
	started, ended := j.Started, j.Ended
	code, hasEnded, isRunning := 0, false, true
	if r.sharesJob {
		code, hasEnded = slurmsubmit.ReadExitCode(r.Dir)
		read, err := runs.Read(r.Dir)
		if isRunning = err == nil && read.Info.Status == runs.StatusRunning; err == nil {
			started, ended = read.Info.Started, read.Info.Ended
		}
	}
	switch {
	case hasEnded && code == 0:
		state = StateDone
	case hasEnded && code != slurmsubmit.ExitRequeue:
		r.job = j.AsFailed(code)
		state, err = StateFailed, r.jobFailureError(false)
		err = errors.Join(err, runfolder.WriteFinalStatus(r.Dir, state, err))
	case !isRunning && j.IsKnown() && !j.HasEnded():
		state = StateWaiting
	case j.IsPending():
		state = StateWaiting
	case !j.IsKnown() && r.isDone(), j.Succeeded():
		state = StateDone
	case !j.IsKnown() || j.HasEnded():
		state, err = StateFailed, r.jobFailureError(canceled)
		if errors.Is(err, context.Canceled) {
			state = StateCanceled
		}
		err = errors.Join(err, runfolder.WriteFinalStatus(r.Dir, state, err))
	}
	if state == StateDone {
		err = r.writeStudyLog()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.err, r.started, r.ended = state, err, started, ended
	if r.ended.IsZero() {
		r.ended = time.Now()
	}
}

func (r *slurmRun) describeWait() string {
	if r.sharesJob && !r.job.IsPending() {
		return "after the runs above, in the same job"
	}
	return r.job.DescribeWait()
}

func (r *slurmRun) isDone() bool {
	read, err := runs.Read(r.Dir)
	return err == nil && read.Info.Status == runs.StatusDone
}

// jobFailureError returns the error of a run whose job failed: the reason in words, and the last
// lines of the output.
func (r *slurmRun) jobFailureError(canceled bool) error {
	script := output.ReadLastLines(slurmsubmit.JobOutputPath(r.Dir, r.job.ID), output.MaxKeptLines)
	reason := r.job.DescribeEnd(script)
	isCanceled := r.job.IsCanceled()
	// Slurm keeps no record of a task of an array that was canceled while it waited. The output
	// exists once a job has started.
	if _, err := os.Stat(slurmsubmit.JobOutputPath(r.Dir, r.job.ID)); !r.job.IsKnown() && errors.Is(err, fs.ErrNotExist) {
		reason, isCanceled = "canceled before it started; this cluster does not record by whom", true
	}
	if canceled && isCanceled {
		reason = "canceled by you"
	}
	lines := cmp.Or(r.lastLines(slurm.FirstFailedTask(script)), script)
	if lines == "" {
		lines = "there is no output"
	} else {
		lines = output.LastLinesIntro + lines
	}
	text := fmt.Sprintf("run %s: job %s: %s; %s", r.Name, r.job.ID, reason, lines)
	if isCanceled {
		return &canceledError{text}
	}
	return errors.New(text)
}

// lastLines returns the last lines of output of the given process of the run. If it has written
// nothing, lastLines returns those of the first process that has.
func (r *slurmRun) lastLines(process int) string {
	if process < len(r.tails) {
		if text := r.tails[process].Out.LastLines(); text != "" {
			return text
		}
	}
	for _, t := range r.tails {
		if text := t.Out.LastLines(); text != "" {
			return text
		}
	}
	return ""
}

// saveRecord writes the states of the runs to the record. It ignores errors for the same reason as
// inProcessSweep.saveRecord.
func (m *slurmSweep) saveRecord() {
	if m.record == nil {
		return
	}
	m.record.Runs = m.record.Runs[:0]
	m.record.State, m.record.Error = StateDone, ""
	var errs []string
	for _, r := range m.runs {
		n := r.toRecord(&r.PlannedRun)
		n.Job, n.StudyLogs = r.job.ID, r.StudyLogs
		switch {
		case r.err != nil:
			errs = append(errs, n.Error)
			if m.record.HasEnded() {
				m.record.State = r.state
			}
		case !r.isEndRecorded():
			n.Ended = time.Time{}
			m.record.State = StateRunning
		}
		m.record.Runs = append(m.record.Runs, n)
	}
	m.record.Error = strings.Join(errs, "\n")
	if m.record.HasEnded() {
		m.record.Ended = time.Now()
	}
	_ = m.record.Write()
}

func (m *slurmSweep) status() []RunStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshJobStates()
	all := make([]RunStatus, len(m.runs))
	for i, r := range m.runs {
		all[i] = r.status(&r.PlannedRun)
		all[i].Job = r.job.ID
		if r.state == StateWaiting && m.problem == "" {
			all[i].Waits = r.describeWait()
		}
	}
	return all
}

// waitsFor describes the jobs that wait, or why the states of the jobs are unknown.
func (m *slurmSweep) waitsFor() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.describeWait()
}

// reportWait writes waitsFor to the output of the sweep if it has changed. The caller holds mu.
func (m *slurmSweep) reportWait() {
	text := m.describeWait()
	if text != m.reported && text != "" {
		m.out.WriteLine(text)
	}
	m.reported = text
}

// describeExpectedWait implements waitsFor. The caller holds mu.
func (m *slurmSweep) describeWait() string {
	if m.problem != "" {
		return "the states of the jobs are unknown, and Lockstep asks again: " + m.problem
	}
	var reasons []string // in the order of the runs
	waiting := map[string][]*slurmRun{}
	for _, r := range m.runs {
		if r.state == StateWaiting {
			reason := r.describeWait()
			if waiting[reason] == nil {
				reasons = append(reasons, reason)
			}
			waiting[reason] = append(waiting[reason], r)
		}
	}
	lines := make([]string, len(reasons))
	for i, reason := range reasons {
		all := waiting[reason]
		if len(all) == 1 {
			lines[i] = fmt.Sprintf("%s (job %s) waits: %s", all[0].Name, all[0].job.ID, reason)
			continue
		}
		var ids []string
		for _, r := range all {
			ids = append(ids, r.job.ID)
		}
		what := "jobs"
		if all[0].sharesJob {
			what = "job"
		}
		lines[i] = fmt.Sprintf("%d runs (%s %s) wait: %s", len(all), what, strings.Join(slurm.ShortenIDs(ids), ", "), reason)
	}
	return strings.Join(lines, "\n")
}

func (m *slurmSweep) hasEnded() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshJobStates()
	var errs []error
	for _, r := range m.runs {
		if !r.isEndRecorded() {
			return false, nil
		}
		errs = append(errs, r.err)
	}
	return true, errors.Join(errs...)
}

// done returns nil: the caller must poll.
func (m *slurmSweep) done() <-chan struct{} { return nil }

// isOwn returns true: the jobs belong to no process.
func (m *slurmSweep) isOwn() bool { return true }

// isEnding reports whether this process has canceled the jobs. The end of a context cancels none.
func (m *slurmSweep) isEnding() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.canceled
}

func (m *slurmSweep) end(atOnce bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []string
	for _, r := range m.runs {
		if !r.isEndRecorded() {
			ids = append(ids, r.job.ID)
		}
	}
	if err := m.client.Cancel(context.Background(), ids, atOnce); err != nil {
		return fmt.Errorf("cancel %s: %w", m.study, err)
	}
	m.canceled, m.next = true, time.Time{}
	return nil
}

func (m *slurmSweep) describeJobs() string {
	var ids []string
	doneBefore := 0
	for _, r := range m.runs {
		if r.isEndRecorded() {
			doneBefore++
		} else {
			ids = append(ids, r.job.ID)
		}
	}
	if len(ids) == 0 {
		return english.FormatCount(doneBefore, "run") + " done; nothing to do"
	}
	short := slurm.ShortenIDs(ids)
	text := fmt.Sprintf("Slurm jobs %s continue without this program; Cancel, lockstep stop or scancel %s ends them", strings.Join(short, ", "), strings.Join(short, " "))
	if len(short) == 1 && !strings.Contains(short[0], "[") {
		text = fmt.Sprintf("Slurm job %s continues without this program; Cancel, lockstep stop or scancel %[1]s ends it", short[0])
	}
	if doneBefore > 0 {
		text += "; " + english.FormatCount(doneBefore, "run") + " done before"
	}
	return text
}
