package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
)

// recorder writes a worker's files in the run folder: every rank its steps, and rank 0 all
// other files. Without a run folder it writes nothing.
type recorder struct {
	t         *Trainer
	w         *runs.Writer       // rank 0
	steps     *runs.StepWriter   // every rank
	events    *runs.EventWriter  // rank 0
	gpu       gpuWatch           // every rank that has one
	load      *monitor.LoadMeter // rank 0; nil if the load cannot be measured
	measured  *runs.Load         // load during the last epoch; nil if not measured
	epochs    []runs.Epoch       // earlier epochs of a resumed run
	untrained *Scores            // scores of the untrained network; nil until they are known
	saved     string             // newest checkpoint, relative to the run folder

	writing       time.Duration // time spent on writing since the last call of noteSlowWriting
	slownessNoted bool          // slow writing has been reported
}

// If writing takes at least slowShare of an epoch's time and at least slowTime, it is
// reported as slow. A usual disk takes a few milliseconds per epoch.
const (
	slowShare = 0.1
	slowTime  = 500 * time.Millisecond
)

// predecessorPatience is how long a rank waits until the process that wrote its steps file
// before has ended. It is longer than that process waits for its peers.
const predecessorPatience = stepPatience + 4*time.Second

// timed calls write and adds the time that it takes to r.writing.
func (r *recorder) timed(write func() error) error {
	begin := time.Now()
	defer func() { r.writing += time.Since(begin) }()
	return write()
}

// noteSlowWriting logs a note if writing took a large part of the epoch, at most once per run. lasted
// is the duration of the epoch with its evaluation and its checkpoint.
func (r *recorder) noteSlowWriting(epoch int, lasted time.Duration) error {
	wrote := r.writing
	r.writing = 0
	if r.slownessNoted || r.w == nil || wrote < slowTime || wrote.Seconds() < slowShare*lasted.Seconds() {
		return nil
	}
	r.slownessNoted = true
	return r.log("note: writing to %s took %.1f s of the %.1f s of epoch %d (%.0f %%): its file system is slow, which no step's times show; "+
		"put the logs on another disk (--logs, LOCKSTEP_LOGS), or save less often (checkpoint.every)",
		r.t.options.Dir, wrote.Seconds(), lasted.Seconds(), epoch, 100*wrote.Seconds()/lasted.Seconds())
}

// record creates the recorder and opens its files. All ranks must call it.
func (t *Trainer) record(ctx context.Context) (r *recorder, err error) {
	r = &recorder{t: t, untrained: t.untrained, saved: t.saved}
	if t.options.Dir == "" {
		return r, nil
	}
	defer func() {
		if err != nil {
			r, err = nil, r.close(ctx, err)
		}
	}()
	if t.group.Rank() == 0 {
		// The other ranks wait for rank 0 below, so they do not disturb the measurement.
		if e, ok := t.engine.(engine.PeakMeasurer); ok {
			t.peak = e.PeakFLOPS()
		}
		err = r.open()
	}
	// No rank writes before rank 0 has made the folder, or has refused it.
	if err := t.agree(ctx, err); err != nil {
		return r, err
	}
	if r.steps, err = t.openSteps(ctx); err != nil {
		return r, err
	}
	if r.load, err = t.loadMeter(ctx); err != nil {
		return r, err
	}
	var note string
	if r.gpu, note, err = watchGPU(t.engine, t.options.Dir, t.group.Rank()); err == nil && note != "" && r.w != nil {
		err = r.log("note: %s", note)
	}
	return r, err
}

// openSteps opens this rank's steps file. If another process still has it open, because its
// rank 0 was killed a moment ago, openSteps waits until that process ends, for at most
// predecessorPatience.
func (t *Trainer) openSteps(ctx context.Context) (*runs.StepWriter, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	doc, err := t.cfg.document()
	if err != nil {
		return nil, err
	}
	config, err := ConfigHash(doc)
	if err != nil {
		return nil, err
	}
	for begin := time.Now(); ; {
		s, err := runs.OpenSteps(t.options.Dir, t.group.Rank(), runs.Worker{
			Rank: t.group.Rank(), LocalRank: t.options.LocalRank, WorldSize: t.group.Size(),
			PID: os.Getpid(), Host: host, Started: time.Now(), BuildID: buildid.ID, FromStep: t.step, ConfigHash: config, DataHash: t.dataHash,
		})
		if !errors.Is(err, runs.ErrStepsInUse) || time.Since(begin) > predecessorPatience {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(predecessorPatience / 100):
		}
	}
}

// energy adds the energy that the devices of all ranks have used to run.json. All ranks
// must call it.
func (r *recorder) energy(ctx context.Context) error {
	if _, ok := r.t.engine.(engine.Accelerated); !ok || r.steps == nil {
		return nil
	}
	s, joules, err := r.gpu.total(ctx, r.t.group)
	if err != nil || r.w == nil {
		return err
	}
	if line := usage(s, joules); line != "" {
		if err := r.log("%s", line); err != nil {
			return err
		}
	}
	// A run that was resumed counts its parts that came to their end.
	return r.w.Update(func(i *runs.Info) { i.EnergyJoules += joules })
}

// open creates the run folder, or opens the folder of the resumed run.
func (r *recorder) open() (err error) {
	t := r.t
	_, err = os.Stat(filepath.Join(t.options.Dir, "run.json"))
	if !t.options.Resume || errors.Is(err, fs.ErrNotExist) {
		info, err := t.info()
		if err != nil {
			return err
		}
		if r.w, err = t.lock.Create(info); err != nil {
			return err
		}
		t.lock = nil // the writer's
		return r.openLogs()
	}
	var before runs.Run
	if r.w, before, err = t.lock.Resume(); err != nil {
		return err
	}
	t.lock = nil
	for _, e := range before.Epochs {
		if e.Epoch <= t.epoch {
			r.epochs = append(r.epochs, e)
		}
	}
	steps := make([]int, t.group.Size())
	for rank := range steps {
		if steps[rank], err = runs.LastStep(t.options.Dir, rank); err != nil {
			return err
		}
	}
	doc, err := t.cfg.document()
	if err != nil {
		return err
	}
	if err := r.w.Update(func(i *runs.Info) {
		i.Status, i.Error, i.Ended, i.Config, i.Engine = runs.StatusRunning, "", time.Time{}, doc, t.engine.Name()
	}); err != nil {
		return err
	}
	if err := r.w.Truncate(t.epoch); err != nil { // rows of epochs that no checkpoint holds are trained again
		return err
	}
	if err := r.openLogs(); err != nil {
		return err
	}
	if err := r.noteMissing(before, steps); err != nil {
		return err
	}
	if note := otherSet(before.Info.Engine, t.engine.Name()); note != "" {
		return r.log("note: %s", note)
	}
	return nil
}

// mostProblems limits the problems in a resumed run's folder that are logged one by one.
const mostProblems = 10

// noteMissing logs what is wrong in the folder of a resumed run: lines that cannot be read
// or are out of order, and missing rows of epochs and steps before the checkpoint. steps
// are the last recorded steps, by rank.
func (r *recorder) noteMissing(before runs.Run, steps []int) error {
	t := r.t
	var notes []string
	for _, p := range before.Problems {
		notes = append(notes, p.String())
	}
	if n := len(notes) - mostProblems; n > 0 {
		notes = append(notes[:mostProblems], fmt.Sprintf("%s more in %s", english.Count(n, "problem"), t.options.Dir))
	}
	if last := lastEpoch(r.epochs); last < t.epoch {
		notes = append(notes, fmt.Sprintf("%s ends with epoch %d, but the checkpoint is of epoch %d: rows are missing", before.File, last, t.epoch))
	}
	for rank, last := range steps {
		if last < t.step {
			notes = append(notes, fmt.Sprintf("the steps of rank %d end with step %d, but the checkpoint is of step %d: lines are missing", rank, last, t.step))
		}
	}
	for _, note := range notes {
		if err := r.log("note: %s", note); err != nil {
			return err
		}
	}
	return nil
}

// lastEpoch returns the largest number of an epoch, or 0 if there are no epochs.
func lastEpoch(epochs []runs.Epoch) int {
	last := 0
	for _, e := range epochs {
		last = max(last, e.Epoch)
	}
	return last
}

// openLogs opens the outputs for other programs, and writes their first lines.
func (r *recorder) openLogs() (err error) {
	for _, notice := range r.w.Notices() { // which are in out.log already
		r.say("note: %s", notice)
	}
	for _, note := range r.t.notes {
		if err := r.log("note: %s", note); err != nil {
			return err
		}
	}
	if r.events, err = runs.OpenEvents(r.t.options.Dir, r.t.step); err != nil {
		return err
	}
	return r.begin()
}

// info returns the content of run.json at the start of a run.
func (t *Trainer) info() (runs.Info, error) {
	doc, err := t.cfg.document()
	if err != nil {
		return runs.Info{}, err
	}
	accelerator := ""
	if a, ok := t.engine.(engine.Accelerated); ok {
		accelerator = a.Accelerator()
	}
	return runs.Info{
		Accelerator: accelerator,
		Study:       t.options.Study, Series: t.options.Series, Workers: t.group.Size(), Seed: t.cfg.Seed,
		Started: time.Now(), Config: doc,
		Engine: t.engine.Name(), Strategy: t.cfg.strategyName(), Collective: t.sync.Name(),
		BatchPerWorker: t.cfg.Batch, GlobalBatch: t.globalBatch(), ThreadsPerWorker: t.cfg.Engine.Threads,
		Parameters: t.net.Parameters(), SamplesPerEpoch: t.samples.Train.Len(),
		FLOPsPerStep: t.train.Program().StepFLOPs(), PeakFLOPS: t.peak,
		Host: runs.CollectHost(), Versions: versions(),
	}, nil
}

// versions returns the versions of this program, Go and gorgonia, by name.
func versions() map[string]string {
	v := map[string]string{"lockstep": buildid.ID, "go": runtime.Version()}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range b.Deps {
			if m.Path == "gorgonia.org/gorgonia" {
				v["gorgonia"] = m.Version
			}
		}
	}
	return v
}

// log writes a line to the terminal and to out.log.
func (r *recorder) log(format string, a ...any) error {
	r.say(format, a...)
	return r.outLog(format, a...)
}

// start logs a description of the run with the scores s of the untrained network.
func (r *recorder) start(s Scores) error {
	r.untrained = &s
	t := r.t
	return r.log("%s: %d parameters, %s × batch %d, %s each, %s, %d training samples, %d held out; %s",
		t.cfg.Name, t.net.Parameters(), english.Count(t.group.Size(), "worker"), t.cfg.Batch, english.Count(t.cfg.Engine.Threads, "thread"), t.engine.Name(),
		t.samples.Train.Len(), t.samples.Test.Len(), s.before())
}

func (r *recorder) step(s runs.Step) error {
	if r.steps == nil {
		return nil
	}
	return r.timed(func() error {
		if err := r.steps.Step(s); err != nil {
			return err
		}
		return r.stepEvents(s)
	})
}

// epoch writes a finished epoch, before its checkpoint.
func (r *recorder) epoch(row runs.Epoch) error {
	if r.steps != nil {
		if err := r.steps.Flush(); err != nil {
			return err
		}
	}
	if err := r.gpu.check(); err != nil {
		return err
	}
	row.Seconds, row.SamplesPerSecond = exactRate(row.Samples, row.Seconds)
	if r.w != nil {
		// Write the load first: readers look for it when they find a new row.
		if r.measured != nil {
			if err := r.w.Load(*r.measured); err != nil {
				return err
			}
		}
		if err := r.w.Epoch(row); err != nil {
			return err
		}
	}
	if err := r.logEpoch(row); err != nil {
		return err
	}
	return r.epochEvents(row)
}

// lastCheckpoint returns the newest checkpoint, relative to the run folder; empty if none.
func (r *recorder) lastCheckpoint() string { return r.saved }

// intact returns an error on every rank if one of them has lost a file of the run
// folder that it wrote. All ranks must call it.
func (r *recorder) intact(ctx context.Context) error {
	if r.t.options.Dir == "" {
		return nil
	}
	lost := []float64{0}
	err := r.lost()
	if err != nil {
		lost[0] = 1
	}
	if r.t.group.Size() > 1 {
		work, end := lag(ctx, stepPatience)
		defer end()
		if serr := r.t.sum(work, lost); serr != nil {
			return errors.Join(err, serr)
		}
	}
	if err == nil && lost[0] > 0 {
		err = errors.New("another rank has lost files of the run folder")
	}
	return err
}

// lost returns a *runs.LostError if a file that this rank writes was deleted.
func (r *recorder) lost() error {
	if err := r.steps.Flush(); err != nil {
		return err
	}
	if r.w == nil {
		return nil
	}
	if err := r.w.Check(); err != nil {
		return err
	}
	if err := r.events.Flush(); err != nil {
		return err
	}
	path := filepath.Join(r.t.options.Dir, r.saved)
	if _, err := os.Stat(path); r.saved != "" && errors.Is(err, fs.ErrNotExist) {
		return &runs.LostError{Path: path}
	}
	return nil
}

// done writes the final scores to run.json.
func (r *recorder) done(test runs.Test) error {
	if r.w == nil {
		return nil
	}
	return r.w.Update(func(i *runs.Info) { i.Test = &test })
}

// close ends the run with the status that err means, and returns err.
func (r *recorder) close(ctx context.Context, err error) error {
	var lost *runs.LostError
	if _, gpuErr := r.gpu.stop(); !errors.As(err, &lost) || !errors.As(gpuErr, &lost) { // one lost file is enough
		err = errors.Join(err, gpuErr)
	}
	if r.steps != nil {
		err = errors.Join(err, r.steps.Close())
	}
	if r.events != nil {
		err = errors.Join(err, r.events.Close())
	}
	if r.w == nil {
		return err
	}
	if err == nil {
		err = r.outLog("DONE ---- rank %d", r.t.group.Rank())
	}
	status := runs.StatusDone
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, context.Canceled)):
		status = runs.StatusCanceled
	case err != nil:
		status = runs.StatusFailed
	}
	ferr := r.w.Finish(status, err)
	if errors.As(err, &lost) && errors.As(ferr, &lost) { // the same, once more
		return err
	}
	return errors.Join(err, ferr)
}
