package launch

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/slurmsubmit"
	"lockstep/pkg/runs"
)

// JobInfo is a sweep of this user on this machine or on Slurm, as Jobs lists it.
type JobInfo struct {
	Study   string
	Dir     string // the study's folder, an argument for Attach
	State   string // one of the State constants
	PID     int    // of the process that runs it; 0 on Slurm
	Started time.Time
	Ended   time.Time // zero if it has not ended
	Runs    int
	Done    int    // number of runs that are done
	Waits   string // description of the sweep that it waits for, or of what its jobs of Slurm wait for; "" if none
	Error   string // "" unless the sweep failed or was canceled
	Detach  bool   // whether it continues after the end of the notebook that launched it

	isProgram bool // whether the runs are of another program, which cannot be continued

	Site string   // the site profile, if the runs are jobs of Slurm; otherwise ""
	Jobs []string // ids of these jobs
}

// JobList is a list of sweeps. Its String method formats it as a table.
type JobList []JobInfo

// Jobs returns the sweeps of this user, the newest first. It lists those that wait or run on this
// machine, the latest ones that have ended since the machine was started, and the latest ones on
// Slurm.
func Jobs() (JobList, error) {
	folder, err := queue.FindLocksFolder()
	if err != nil {
		return nil, err
	}
	all, err := queue.ListEntries(folder)
	if err != nil {
		return nil, err
	}
	list, err := slurmJobs()
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		r, err := queue.ReadRecord(e.Record)
		if err != nil {
			continue // the study was deleted
		}
		m := newExternalSweep(r)
		if _, err := m.hasEnded(); err != nil && m.record.Error == "" {
			return nil, err
		}
		list = append(list, toJobInfo(m.record))
	}
	slices.SortStableFunc(list, func(a, b JobInfo) int { return b.Started.Compare(a.Started) })
	return list, nil
}

// slurmJobs returns the listed sweeps on Slurm. It asks Slurm for the states of those that have not
// ended, until a request fails.
func slurmJobs() (JobList, error) {
	all, err := queue.ListSlurmSweeps()
	if err != nil {
		return nil, err
	}
	var list JobList
	problem := "" // of the request that failed
	for _, r := range all {
		waits := ""
		switch {
		case r.HasEnded():
		case problem != "": // another request would also take long
			waits = problem
		default:
			m := attachSlurm(r)
			_, _ = m.hasEnded() // refreshes the record; the error is in it
			if waits = m.waitsFor(); m.problem != "" {
				problem = waits
			}
		}
		info := toJobInfo(r)
		info.Waits = waits
		list = append(list, info)
	}
	return list, nil
}

func toJobInfo(r *queue.SweepRecord) JobInfo {
	info := JobInfo{
		Study: r.Study, Dir: r.Dir, State: r.State, PID: r.PID, Started: r.Started, Ended: r.Ended,
		Runs: len(r.Runs), Waits: r.WaitsFor, Error: r.Error, Detach: r.Detach, Site: r.Site,
	}
	running := false
	for _, n := range r.Runs {
		info.isProgram = info.isProgram || n.Program
		switch n.State {
		case StateDone:
			info.Done++
		case StateRunning:
			running = true
		}
		if n.Job != "" && !slices.Contains(info.Jobs, n.Job) {
			info.Jobs = append(info.Jobs, n.Job)
		}
	}
	if r.Site != "" && !r.HasEnded() && !running {
		info.State = StateWaiting // its record does not distinguish them
	}
	return info
}

// String returns a table with one line per sweep.
func (l JobList) String() string {
	if len(l) == 0 {
		return "no sweeps"
	}
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "study\tstate\truns done\tsince\tprocess\tfolder\t")
	for _, j := range l {
		process, note := "", ""
		switch {
		case j.State == StateWaiting || j.State == StateRunning:
			process, note = fmt.Sprintf("pid %d", j.PID), strings.ReplaceAll(j.Waits, "\n", "; ")
			if j.Site != "" {
				process = fmt.Sprintf("Slurm (%s): %s", j.Site, strings.Join(j.Jobs, ", "))
			}
		case j.Error != "":
			note = output.SummarizeError(j.Error, !j.isProgram)
		}
		fmt.Fprintf(w, "%s\t%s\t%d of %d\t%s\t%s\t%s\t%s\n", j.Study, j.State, j.Done, j.Runs, queue.FormatTime(j.Started), process, j.Dir, note)
	}
	_ = w.Flush() // into memory
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// Attach returns a job for a study that another process has launched or trains, such as the notebook's
// kernel before its restart, or a lockstep command in a terminal. study is the name of its folder in
// the logs folder, or a path. If no sweep of the study is running, the job shows the last one.
func Attach(study string) (*Job, error) {
	dir, err := runs.LocateLogs(study)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w; lockstep jobs (launch.Jobs) lists the sweeps", study, err)
	}
	job := &Job{dir: dir, name: filepath.Base(dir)}
	all := queue.ReadRecords(dir)
	for i, r := range all {
		if err := r.CheckSchema(); err != nil && (i == 0 || !r.HasEnded()) {
			return nil, fmt.Errorf("attach %s: %w", study, err)
		}
		if !r.HasEnded() && r.Site != "" {
			job.backend = attachSlurm(r)
			return job, nil
		}
		if !r.HasEnded() && r.HasLiveProcess() {
			job.backend = newExternalSweep(r)
			return job, nil
		}
	}
	found, err := runs.Find(dir)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w; lockstep jobs (launch.Jobs) lists the sweeps", study, err)
	}
	for _, run := range found {
		owner, alive, err := runs.OwnerOf(run)
		if err != nil {
			return nil, fmt.Errorf("attach %s: %w", study, err)
		}
		if alive {
			job.backend = newExternalSweep(newSingleRunRecord(run, owner))
			return job, nil
		}
	}
	if len(all) == 0 && slurmsubmit.HasSubmittedJobs(dir) {
		return nil, fmt.Errorf("attach %s: the launcher ended before it had recorded its Slurm jobs: launch the same sweep again, which finds the jobs in the queue", study)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("attach %s: no sweep was launched in %s, and no process trains there; lockstep jobs (launch.Jobs) lists the sweeps", study, dir)
	}
	job.backend = newExternalSweep(all[0])
	return job, nil
}
