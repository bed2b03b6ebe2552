package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/series"
	"lockstep/pkg/launch/internal/workers"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// run is one run of a sweep.
type run struct {
	sweep   *Sweep
	name    string // of the run folder
	dir     string
	workers int
	seed    int64
	variant series.Variant
	command []string        // Sweep.Command with the values of this run
	config  map[string]any  // as in run.json; nil for a program other than lockstep
	method  strategy.Config // the strategy in config
	resume  bool
	skip    bool // whether the run was done before
	out     *output.LineWriter
	killNow <-chan struct{} // closed when the workers are to be killed at once
	changed func()          // called after each change of state

	studyLogs string // see studyLogFolder; only of an attached sweep, which does not know its other fields

	mu          sync.Mutex
	rank0Output *output.Writer // nil before rank 0 is started
	started     time.Time
	ended       time.Time
	state       string
	err         error
	folder      runfolder.Reader
}

// planRuns returns the runs of the sweep in the order in which they are executed. dir is
// the study's folder.
func (s *Sweep) planRuns(dir string) []*run {
	var all []*run
	out := output.NewLineWriter(s.Output)
	for _, seed := range s.Seeds {
		for _, n := range s.Workers {
			for _, v := range s.seriesAxes().Variants() {
				name := fmt.Sprintf("%s-n%d-s%d", v.Series, n, seed)
				r := &run{sweep: s, name: name, dir: filepath.Join(dir, name), workers: n, seed: seed, variant: v, out: out, state: StateWaiting}
				r.command, _ = s.expandCommand(n, seed, r.dir) // validate has returned the error
				all = append(all, r)
			}
		}
	}
	return all
}

// checkSeparateFolders returns an error if two of the runs have the same folder, because one is a
// link to the other, or both are links to a third folder.
func checkSeparateFolders(all []*run) error {
	byTarget := map[string]*run{}
	for _, r := range all {
		target, err := filepath.EvalSymlinks(r.dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", r.name, err)
		}
		if other := byTarget[target]; other != nil {
			return fmt.Errorf("runs %s and %s have the same folder, %s: remove one of the links, so that each run has a folder of its own", other.dir, r.dir, target)
		}
		byTarget[target] = r
	}
	return nil
}

// checkFolder decides from the content of the run folder whether the run is new, done, or
// to be resumed. It returns an error if the sweep cannot use the folder.
func (r *run) checkFolder() error {
	before, err := runs.Read(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r.checkStudyLog(runs.Info{})
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", r.name, err)
	}
	if err := r.checkSameConfig(before.Info); err != nil {
		return err
	}
	if err := r.checkStudyLog(before.Info); err != nil {
		return fmt.Errorf("run %s: %w", r.name, err)
	}
	switch {
	case before.Info.Status == runs.StatusDone && len(before.Epochs) >= r.plannedEpochs():
		r.skip, r.state, r.folder.Run = true, StateDone, before
	case r.sweep.isForeign():
		return fmt.Errorf("run %s: the run in %s is unfinished, and only runs of a config can be resumed: delete the folder to run it again", r.name, r.dir)
	case !r.sweep.Resume:
		return fmt.Errorf("run %s: %s already contains an unfinished run: resume it (Resume, --resume), choose another series or seed (--series, --seeds), or delete the folder", r.name, r.dir)
	default:
		r.resume = true
	}
	return nil
}

// execute executes the run, unless it was done before, and waits for its end.
func (r *run) execute(ctx context.Context, binary string) error {
	if r.skip {
		return r.writeStudyLog()
	}
	r.setState(StateRunning, nil)
	if r.sweep.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = process.WithTimeoutCause(ctx, r.sweep.Timeout, fmt.Errorf("time-out of %v exceeded: %w", r.sweep.Timeout, context.DeadlineExceeded))
		defer cancel()
	}
	var err error
	if r.sweep.isForeign() {
		err = r.runCommand(ctx)
	} else {
		err = r.runLockstep(ctx, binary)
	}
	status := runfolder.StatusForError(err)
	if err != nil {
		err = fmt.Errorf("run %s: %w", r.name, err)
	} else {
		err = r.writeStudyLog() // an error here leaves the run done
	}
	r.setState(status, err)
	return err
}

// runLockstep trains with the lockstep command, which writes the run folder itself.
func (r *run) runLockstep(ctx context.Context, binary string) error {
	if err := runfolder.Make(r.dir); err != nil {
		return err
	}
	if err := runs.RemoveTemporary(r.dir); err != nil { // left by a launch that was killed before it created a run
		return err
	}
	err := r.runWorkers(ctx, append([]string{binary}, r.trainArguments()...), false, func(*workers.Group, binding.Binding) error { return nil }) // rank 0 records the binding
	if err == nil {
		return nil
	}
	// Rank 0 may have been killed before it could write the final status of the run.
	return errors.Join(err, runfolder.WriteFinalStatus(r.dir, runfolder.StatusForError(err), err))
}

// replicasPerProcess returns how many workers of the run each of its processes contains.
func (r *run) replicasPerProcess() int { return max(1, r.method.ReplicasPerProcess(r.workers)) }

// trainArguments returns the arguments with which the lockstep command trains the run.
func (r *run) trainArguments() []string {
	s := r.sweep
	args := []string{
		"train", "--config", s.Config, "--seed", strconv.FormatInt(r.seed, 10),
		"--threads", strconv.Itoa(s.Threads), "--run", r.dir,
	}
	if s.Oversubscribe && r.workers*s.Threads > train.ThreadsPerCore*runtime.NumCPU() { // a process may contain all workers
		args = append(args, "--oversubscribe")
	}
	if r.method.Name == strategy.NameMirrored {
		args = append(args, "--replicas", strconv.Itoa(r.workers))
	}
	if s.Data != "" {
		args = append(args, "--data", s.Data)
	}
	if s.Epochs > 0 {
		args = append(args, "--epochs", strconv.Itoa(s.Epochs))
	}
	for _, kv := range append(append([]string{}, s.Set...), r.variant.Set...) {
		args = append(args, "--set", kv)
	}
	if s.GlobalBatch > 0 {
		args = append(args, "--set", "batch="+strconv.Itoa(s.GlobalBatch/r.workers))
	}
	if s.Profile != "" {
		args = append(args, "--profile", s.Profile)
	}
	if r.resume {
		args = append(args, "--resume")
		if s.AcceptChangedData {
			args = append(args, "--accept-changed-data")
		}
	}
	return args
}

// runCommand runs a program other than lockstep. It also writes the run folder: the wall time
// in run.json, and the load of the machine. The epochs are in the logs of the workers, which
// logread reads.
func (r *run) runCommand(ctx context.Context) error {
	s := r.sweep
	w, err := runs.Create(r.dir, runs.Info{
		Study: s.Study, Series: s.Series, Workers: r.workers, Seed: r.seed, Nodes: s.knownNodes(),
		Command: r.command, ThreadsPerWorker: s.Threads, Host: runs.DescribeHost(),
	})
	if err != nil {
		return err
	}
	begin := time.Now()
	err = w.Log("start %s with %s, %s each", strings.Join(r.command, " "), english.Count(r.workers, "worker"), english.Count(s.Threads, "thread"))
	load := monitor.NewLoadMeter(os.Getpid())
	if err == nil {
		load.Begin()
		stopUsage := func() {}
		err = r.runWorkers(ctx, r.command, true, func(c *workers.Group, b binding.Binding) error {
			stopUsage = runfolder.RecordUsage(r.dir, c.Processes(), func(err error) { _ = w.Log("note: %v", err) })
			return errors.Join(w.UpdateInfo(func(i *runs.Info) { i.Binding = &b.Binding }), w.Log("%s", b))
		})
		stopUsage()
	}
	seconds := time.Since(begin).Seconds()
	if measured, ok := load.End(1); ok && err == nil {
		err = w.AppendLoad(measured)
	}
	status := runfolder.StatusForError(err)
	return errors.Join(err, w.Log("%s after %.3f s", status, seconds), w.Finish(status, err))
}

// runWorkers starts the workers with the arguments argv, calls started with them, and
// waits until all have ended. foreign is true for a program other than lockstep. The error
// describes the workers that failed.
func (r *run) runWorkers(ctx context.Context, argv []string, foreign bool, started func(*workers.Group, binding.Binding) error) error {
	if ctx.Err() != nil {
		return queue.EndCause(ctx)
	}
	var c *workers.Group
	b := workers.MPIBinding()
	var err error
	if r.sweep.onMPI {
		c, err = r.startMPI(ctx, argv, foreign)
	} else {
		c, b, err = r.startWorkers(ctx, argv, foreign)
	}
	if err != nil {
		return err
	}
	if err := started(c, b); err != nil {
		return errors.Join(err, c.Kill())
	}
	failed, err := c.Wait(ctx)
	if len(failed) > 0 {
		var text []string
		for _, e := range failed {
			text = append(text, e.String())
		}
		return errors.Join(errors.New(strings.Join(text, "\nthen ")), err)
	}
	if ctx.Err() != nil {
		return errors.Join(queue.EndCause(ctx), err)
	}
	return err
}

// setRank0Output stores the output of rank 0, which Status shows. Later calls, for other
// ranks, do nothing.
func (r *run) setRank0Output(o *output.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rank0Output == nil {
		r.rank0Output = o
	}
}

// setState sets the state and the error of the run, and its start or end time.
func (r *run) setState(state string, err error) {
	defer r.changed()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state = state; state == StateRunning {
		r.started = time.Now()
	} else {
		r.ended = time.Now()
	}
	r.err = err
}
