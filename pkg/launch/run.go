package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// run is one run of a sweep.
type run struct {
	sweep   *Sweep
	name    string // of its folder
	dir     string
	workers int
	seed    int64
	variant variant
	config  map[string]any // as run.json keeps it; nil for a program that is not ours
	resume  bool
	skip    bool // it is done already
	out     *output
	now     <-chan struct{} // closed when workers are to be killed
	changed func()          // called after each change of state

	mu      sync.Mutex
	speaks  *lines // of rank 0, once it runs
	started time.Time
	ended   time.Time
	state   string
	err     error
	read    runs.Run // as last read
	stamp   string   // of epochs.csv when it was
}

// plan lists the runs of a sweep, in their order.
func (s *Sweep) plan(dir string) []*run {
	var all []*run
	out := &output{w: s.Output}
	for _, seed := range s.Seeds {
		for _, n := range s.Workers {
			for _, v := range s.variants() {
				name := fmt.Sprintf("%s-n%d-s%d", v.series, n, seed)
				all = append(all, &run{sweep: s, name: name, dir: filepath.Join(dir, name), workers: n, seed: seed, variant: v, out: out, state: StateWaiting})
			}
		}
	}
	return all
}

// look decides what a folder that is there already means.
func (r *run) look() error {
	before, err := runs.Read(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r.checkStudyLog(runs.Info{})
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", r.name, err)
	}
	if err := r.differs(before.Info); err != nil {
		return err
	}
	if err := r.checkStudyLog(before.Info); err != nil {
		return fmt.Errorf("run %s: %w", r.name, err)
	}
	switch {
	case before.Info.Status == runs.StatusDone && len(before.Epochs) >= r.epochs():
		r.skip, r.state, r.read = true, StateDone, before
	case r.sweep.foreign():
		return fmt.Errorf("run %s: %s was not finished, and only a config's runs can be resumed: delete the folder to run it again", r.name, r.dir)
	case !r.sweep.Resume:
		return fmt.Errorf("run %s: %s already holds a run that was not finished: go on with it (Resume, --resume), choose another series or seed (--series, --seeds), or delete the folder", r.name, r.dir)
	default:
		r.resume = true
	}
	return nil
}

// do runs it, from its folder to its end.
func (r *run) do(ctx context.Context, binary string) error {
	if r.skip {
		return r.writeStudyLog()
	}
	r.set(StateRunning, nil)
	if r.sweep.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = process.WithTimeoutCause(ctx, r.sweep.Timeout, fmt.Errorf("it did not end within %v: %w", r.sweep.Timeout, context.DeadlineExceeded))
		defer cancel()
	}
	var err error
	if r.sweep.foreign() {
		err = r.doForeign(ctx)
	} else {
		err = r.doOwn(ctx, binary)
	}
	status := stateOf(err)
	if err != nil {
		err = fmt.Errorf("run %s: %w", r.name, err)
	} else {
		err = r.writeStudyLog() // the run is done nonetheless
	}
	r.set(status, err)
	return err
}

// stateOf is the state, and the status in run.json, that an error stands for.
func stateOf(err error) string {
	switch {
	case err == nil:
		return runs.StatusDone
	case errors.Is(err, context.Canceled):
		return runs.StatusCanceled
	}
	return runs.StatusFailed
}

// doOwn has the lockstep command train; it writes the run folder itself.
func (r *run) doOwn(ctx context.Context, binary string) error {
	if err := makeFolder(r.dir); err != nil {
		return err
	}
	if err := runs.RemoveTemporary(r.dir); err != nil { // of a launch that was killed before there was a run
		return err
	}
	err := r.work(ctx, append([]string{binary}, r.trainArguments()...), false)
	if err == nil {
		return nil
	}
	// Rank 0 may have been killed before it could say how the run ended.
	return errors.Join(err, r.finish(stateOf(err), err))
}

// makeFolder makes a folder, or says where else one may.
func makeFolder(dir string) error { return unwritable("make folder", os.MkdirAll(dir, 0o755)) }

// unwritable adds to err what was done, and where else one may write.
func unwritable(what string, err error) error {
	for _, cause := range []error{fs.ErrPermission, unix.EROFS, unix.ENOTDIR} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%s: %w; choose a folder that you may write (Logs, --logs, or LOCKSTEP_LOGS)", what, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (r *run) trainArguments() []string {
	s := r.sweep
	args := []string{
		"train", "--config", s.Config, "--seed", strconv.FormatInt(r.seed, 10),
		"--threads", strconv.Itoa(s.Threads), "--run", r.dir,
	}
	if s.Oversubscribe && s.Threads > train.ThreadsPerCore*runtime.NumCPU() {
		args = append(args, "--oversubscribe")
	}
	if s.Data != "" {
		args = append(args, "--data", s.Data)
	}
	if s.Epochs > 0 {
		args = append(args, "--epochs", strconv.Itoa(s.Epochs))
	}
	for _, kv := range append(append([]string{}, s.Set...), r.variant.set...) {
		args = append(args, "--set", kv)
	}
	if s.Profile != "" {
		args = append(args, "--profile", s.Profile)
	}
	if r.resume {
		args = append(args, "--resume")
	}
	return args
}

// finish writes how the run ended where run.json still says that it runs, or says
// what rank 0 alone could not know: that it was canceled, of one that was asked to end
// because another rank had failed; or that it failed, of one that lost a rank which was
// interrupted a moment before it was itself.
func (r *run) finish(status string, cause error) error {
	err := runs.RemoveTemporary(r.dir)
	var owned *runs.OwnedError
	if errors.As(err, &owned) {
		return nil // the workers were refused; its owner writes how the run ends
	}
	if err != nil {
		return err
	}
	before, err := runs.Read(r.dir)
	if err != nil {
		return nil // it never began
	}
	asked := before.Info.Status == runs.StatusCanceled && status == runs.StatusFailed
	left := before.Info.Status == runs.StatusFailed && status == runs.StatusCanceled
	switch {
	case left:
		cause = fmt.Errorf("%w; rank 0 then said: %s", cause, before.Info.Error)
	case before.Info.Status != runs.StatusRunning && before.Info.Status != runs.StatusKilled && !asked:
		return nil // it has said so itself
	}
	w, _, err := runs.Resume(r.dir)
	if err != nil {
		return err
	}
	return w.Finish(status, cause)
}

// doForeign runs another program, and writes the run folder for it: one epoch,
// the whole of it.
func (r *run) doForeign(ctx context.Context) error {
	s := r.sweep
	w, err := runs.Create(r.dir, runs.Info{
		Study: s.Study, Series: s.Series, Workers: r.workers, Seed: r.seed,
		Command: s.Command, ThreadsPerWorker: s.Threads, Host: runs.CollectHost(),
	})
	if err != nil {
		return err
	}
	begin := time.Now()
	err = w.Log("start %s with %s, %s each", strings.Join(s.Command, " "), count(r.workers, "worker"), count(s.Threads, "thread"))
	load := monitor.NewLoadMeter(os.Getpid())
	if err == nil {
		load.Begin()
		err = r.work(ctx, s.Command, true)
	}
	seconds := time.Since(begin).Seconds()
	if measured, ok := load.End(1); ok && err == nil {
		err = w.Load(measured)
	}
	if err == nil {
		nan := math.NaN()
		err = w.Epoch(runs.Epoch{
			Epoch: 1, Seconds: seconds, SamplesPerSecond: nan, TrainLoss: nan, ValLoss: nan,
			IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
		})
	}
	status := stateOf(err)
	return errors.Join(err, w.Log("%s after %.3f s", status, seconds), w.Finish(status, err))
}

// work starts the workers and waits for them.
func (r *run) work(ctx context.Context, argv []string, foreign bool) error {
	if ctx.Err() != nil {
		return why(ctx)
	}
	c, err := r.start(ctx, argv, foreign)
	if err != nil {
		return err
	}
	failed, err := c.wait(ctx)
	if len(failed) > 0 {
		var text []string
		for _, e := range failed {
			text = append(text, e.String())
		}
		return errors.Join(errors.New(strings.Join(text, "\nthen ")), err)
	}
	if ctx.Err() != nil {
		return errors.Join(why(ctx), err)
	}
	return err
}

// why returns the reason for ctx's end: the time-out, or context.Canceled whoever
// canceled it.
func why(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return context.Canceled
}

// seen remembers rank 0's lines, for Status.
func (r *run) seen(l *lines) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.speaks == nil {
		r.speaks = l
	}
}

func (r *run) set(state string, err error) {
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
