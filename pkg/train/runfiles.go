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
	"slices"
	"time"

	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/checkpoint"
	"lockstep/pkg/train/internal/gpuwatch"
	"lockstep/pkg/train/internal/ranks"
)

// runFiles writes a worker's files in the run folder. Every rank writes its steps, and rank 0
// writes all other files. Without a run folder, it writes nothing.
type runFiles struct {
	t         *Trainer
	writer    *runs.Writer           // rank 0
	steps     *runs.StepWriter       // every rank
	events    *runs.EventWriter      // rank 0
	gpu       gpuwatch.Sampler       // every rank that has one
	meter     *monitor.LoadMeter     // rank 0; nil if the load cannot be measured
	lastLoad  *runs.Load             // load during the last epoch; nil if not measured
	usage     *monitor.UsageRecorder // nil if this rank records no usage
	epochs    []runs.Epoch           // earlier epochs of a resumed run
	untrained *Scores                // scores of the untrained network; nil until they are known
	saved     string                 // newest checkpoint, relative to the run folder

	writing       time.Duration // time spent on writing since the last call of logSlowWriting
	sentLogged    bool          // logExchangeTotals has logged the bytes
	slownessNoted bool          // logSlowWriting has logged its note
	usageNoted    bool          // logUsageEnd has logged its note
}

// Writing is reported as slow if it takes at least slowShare of an epoch's time and at least
// slowTime. An ordinary disk takes a few milliseconds per epoch.
const (
	slowShare = 0.1
	slowTime  = 500 * time.Millisecond
)

// predecessorTimeout is how long a resumed rank waits until an earlier process closes the rank's
// steps file. It exceeds the time for which that process waits for the other ranks.
const predecessorTimeout = stepGracePeriod + 4*time.Second

// measureWriteTime calls write, adds its duration to r.writing, and returns its error.
func (r *runFiles) measureWriteTime(write func() error) error {
	begin := time.Now()
	defer func() { r.writing += time.Since(begin) }()
	return write()
}

// logSlowWriting logs a note, at most once per run, if writing took a large fraction of the epoch.
// lasted is the epoch's duration, including evaluation and checkpoint.
func (r *runFiles) logSlowWriting(epoch int, lasted time.Duration) error {
	wrote := r.writing
	r.writing = 0
	if r.slownessNoted || r.writer == nil || wrote < slowTime || wrote.Seconds() < slowShare*lasted.Seconds() {
		return nil
	}
	r.slownessNoted = true
	return r.log("note: writing to %s took %.1f s of the %.1f s of epoch %d (%.0f %%): its file system is slow, which the times of the steps do not show; "+
		"put the logs on another disk (--logs, LOCKSTEP_LOGS), or save less often (checkpoint.every)",
		r.t.options.Dir, wrote.Seconds(), lasted.Seconds(), epoch, 100*wrote.Seconds()/lasted.Seconds())
}

// openRunFiles opens this rank's files in the run folder. All ranks must call it.
func (t *Trainer) openRunFiles(ctx context.Context) (r *runFiles, err error) {
	r = &runFiles{t: t, untrained: t.untrained, saved: t.saved}
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
		if t.can.PeakFLOPS != nil {
			t.peak = t.can.PeakFLOPS()
		}
		err = r.openRunFolder()
	}
	// No rank writes before rank 0 has created the folder. If that failed, all ranks end.
	if err := ranks.ShareRank0Error(ctx, t.group, err); err != nil {
		return r, err
	}
	if r.steps, err = t.openStepsFile(ctx); err != nil {
		return r, err
	}
	if r.meter, err = t.newLoadMeter(ctx); err != nil {
		return r, err
	}
	var note string
	if r.gpu, note, err = gpuwatch.StartSampling(t.can.Accelerator, t.options.Dir, t.group.Rank()); err == nil && note != "" && r.writer != nil {
		err = r.logNote(note)
	}
	if err == nil {
		err = r.startUsageRecording()
	}
	return r, err
}

// startUsageRecording starts to record the resources that this process and its machine use, if the
// options ask for it. If that fails, it only logs a note.
func (r *runFiles) startUsageRecording() (err error) {
	if !r.t.options.usage {
		return nil
	}
	if r.usage, err = monitor.StartUsage(r.t.options.Dir, r.t.group.Rank(), os.Getpid(), r.gpu.LatestSampleFunc()); err != nil {
		return r.logUsageEnd(err)
	}
	return nil
}

// logUsageEnd logs that usage recording has ended because of err, which may be nil. Ranks other
// than 0, which have no log, write to standard error.
func (r *runFiles) logUsageEnd(err error) error {
	if err == nil || r.usageNoted {
		return nil
	}
	r.usageNoted = true
	note := fmt.Sprintf("note: CPU, memory, network and power of rank %d are not recorded from now on; the training goes on: %v", r.t.group.Rank(), err)
	if r.writer == nil {
		fmt.Fprintln(os.Stderr, note)
		return nil
	}
	return r.log("%s", note)
}

// openStepsFile opens this rank's steps file. If rank 0 of a previous process group was killed, the
// earlier process of this rank may still have the file open for a moment. openStepsFile waits for
// it to end, for at most predecessorTimeout.
func (t *Trainer) openStepsFile(ctx context.Context) (*runs.StepWriter, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	doc, err := t.cfg.jsonDocument()
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
			PID: os.Getpid(), Host: host, Started: time.Now(), BuildID: buildid.ID, FromStep: t.step, ConfigHash: config,
			DataHash: t.dataHash, Data: t.dataRecord, AcceptedChangedData: t.acceptedData,
		})
		if !errors.Is(err, runs.ErrStepsInUse) || time.Since(begin) > predecessorTimeout {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(predecessorTimeout / 100):
		}
	}
}

// recordTotalEnergy adds the energy of all ranks' devices to run.json. All ranks must call it.
func (r *runFiles) recordTotalEnergy(ctx context.Context) error {
	if r.t.can.Accelerator == nil || r.steps == nil {
		return nil
	}
	s, joules, err := r.gpu.StopOnAllRanks(ctx, r.t.group)
	if err != nil || r.writer == nil {
		return err
	}
	if line := gpuwatch.FormatSummary(s, joules); line != "" {
		if err := r.log("%s", line); err != nil {
			return err
		}
	}
	// A resumed run adds the energy of all its processes that ended without an error.
	return r.writer.UpdateInfo(func(i *runs.Info) { i.EnergyJoules += joules })
}

// openRunFolder creates the run folder, or opens the folder of the resumed run, and writes the
// first lines of the logs. Only rank 0 calls it.
func (r *runFiles) openRunFolder() (err error) {
	t := r.t
	_, err = os.Stat(filepath.Join(t.options.Dir, "run.json"))
	if !t.options.Resume || errors.Is(err, fs.ErrNotExist) {
		info, err := t.newRunInfo()
		if err != nil {
			return err
		}
		if r.writer, err = t.lock.Create(info); err != nil {
			return err
		}
		t.lock = nil // the writer releases it
		return r.openLogs()
	}
	var before runs.Run
	if r.writer, before, err = t.lock.Resume(); err != nil {
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
	doc, err := t.cfg.jsonDocument()
	if err != nil {
		return err
	}
	if err := r.writer.UpdateInfo(func(i *runs.Info) {
		i.Status, i.Error, i.Ended, i.Config, i.Engine, i.Binding, i.RankSource = runs.StatusRunning, "", time.Time{}, doc, t.engine.Name(), t.options.binding, t.options.rankSource
		i.Checkpoint = t.saved
	}); err != nil {
		return err
	}
	if err := r.writer.TruncateAfter(t.epoch); err != nil { // epochs after the checkpoint are trained again
		return err
	}
	if err := r.openLogs(); err != nil {
		return err
	}
	if err := r.logFolderProblems(before, steps); err != nil {
		return err
	}
	if note := instructionSetNote(before.Info.Engine, t.engine.Name()); note != "" {
		return r.logNote(note)
	}
	return nil
}

const maxLoggedFolderProblems = 10

// logFolderProblems logs problems in the folder of a resumed run: lines that are unreadable or out
// of order, and missing rows of epochs and steps before the checkpoint. before is the content of
// the folder. steps contains the last recorded step of each rank.
func (r *runFiles) logFolderProblems(before runs.Run, steps []int) error {
	t := r.t
	var notes []string
	for _, p := range before.Problems {
		notes = append(notes, p.String())
	}
	if n := len(notes) - maxLoggedFolderProblems; n > 0 {
		notes = append(notes[:maxLoggedFolderProblems], fmt.Sprintf("%s more in %s", english.FormatCount(n, "problem"), t.options.Dir))
	}
	if last := checkpoint.LastEpoch(r.epochs); last < t.epoch {
		notes = append(notes, fmt.Sprintf("%s ends with epoch %d, but the checkpoint is of epoch %d: rows are missing", before.File, last, t.epoch))
	}
	for rank, last := range steps {
		if last < t.step {
			notes = append(notes, fmt.Sprintf("the steps of rank %d end with step %d, but the checkpoint is of step %d: lines are missing", rank, last, t.step))
		}
	}
	for _, note := range notes {
		if err := r.logNote(note); err != nil {
			return err
		}
	}
	return nil
}

// openLogs writes the first lines of out.log, with the notes so far, and opens the file of
// TensorBoard events.
func (r *runFiles) openLogs() (err error) {
	for _, notice := range r.writer.Notices() { // the writer has written them to out.log
		r.logToTerminal("note: %s", notice)
	}
	for _, note := range r.t.notes {
		if err := r.logNote(note); err != nil {
			return err
		}
	}
	if r.events, err = runs.OpenEvents(r.t.options.Dir, r.t.step); err != nil {
		return err
	}
	return r.writeLogHeader()
}

func (t *Trainer) newRunInfo() (runs.Info, error) {
	doc, err := t.cfg.jsonDocument()
	if err != nil {
		return runs.Info{}, err
	}
	accelerator := ""
	if a := t.can.Accelerator; a != nil {
		accelerator = a.Name
	}
	return runs.Info{
		SentFormula: t.expectedSentBytes(),
		Unreal:      t.noCommunicationReason(), OptimizerBytes: t.optimizerBytes, CompleteOptimizerBytes: t.completeOptimizerBytes,
		Accelerator: accelerator,
		Study:       t.options.Study, Series: t.options.Series, Workers: t.group.Size(), Processes: t.options.processes, Seed: t.cfg.Seed,
		Started: time.Now(), Config: doc,
		Engine: t.engine.Name(), Strategy: t.cfg.strategyName(), Collective: t.strategy.Name(),
		BatchPerWorker: t.cfg.Batch, GlobalBatch: t.globalBatch(), ThreadsPerWorker: t.cfg.Engine.Threads,
		Parameters: t.net.Parameters(), SamplesPerEpoch: t.samples.Train.Len(),
		FLOPsPerStep: t.stepFLOPs, PeakFLOPS: t.peak,
		Binding: t.options.binding, RankSource: t.options.rankSource, Host: describeHost(t.options.binding), Versions: moduleVersions(),
	}, nil
}

func moduleVersions() map[string]string {
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

func (r *runFiles) log(format string, a ...any) error {
	r.logToTerminal(format, a...)
	return r.logToFile(format, a...)
}

// logEpochDetail logs a line about the last epoch, unless it is empty.
func (r *runFiles) logEpochDetail(line string) error {
	if line == "" {
		return nil
	}
	return r.log("  %s", line)
}

// logNote logs a message and stores it in run.json, so that notebooks can show it. A resumed run
// stores equal messages only once.
func (r *runFiles) logNote(text string) error {
	err := r.log("note: %s", text)
	if r.writer == nil { // only rank 0 writes the run folder
		return err
	}
	return errors.Join(err, r.writer.UpdateInfo(func(i *runs.Info) {
		if !slices.Contains(i.Notes, text) {
			i.Notes = append(i.Notes, text)
		}
	}))
}

// logRunStart logs a description of the run, and s, the scores of the untrained network.
func (r *runFiles) logRunStart(s Scores) error {
	r.untrained = &s
	t := r.t
	purpose := "held out"
	if part := t.evaluatedDataPart(); part != runs.HeldOutPart {
		purpose = "for " + part
	}
	if err := r.log("%s: %d parameters, %s × batch %d, %s each, %s, %d training samples, %d %s; %s",
		t.cfg.Name, t.net.Parameters(), english.FormatCount(t.group.Size(), "worker"), t.cfg.Batch, english.FormatCount(t.cfg.Engine.Threads, "thread"), t.engine.Name(),
		t.samples.Train.Len(), t.samples.Test.Len(), purpose, s.formatUntrained()); err != nil {
		return err
	}
	if note := t.describeStrategy(); note != "" {
		if err := r.log("%s", note); err != nil {
			return err
		}
	}
	if t.options.binding == nil {
		return nil
	}
	return r.log("%s", t.options.binding)
}

// noCommunicationReason returns why the losses and scores of this run are meaningless, for
// runs.Info.Unreal. It returns "" if they are valid.
func (t *Trainer) noCommunicationReason() string {
	if !t.cfg.Strategy.Unreal() || t.group.Size() == 1 {
		return ""
	}
	return "the workers did not communicate (strategy.no_communication): each trained a network of its own on its shard of the data"
}

// describeStrategy returns a log line about the strategy and its memory. It returns "" for ddp
// without options.
func (t *Trainer) describeStrategy() string {
	if t.cfg.Strategy.IsZero() {
		return ""
	}
	line := "strategy " + t.cfg.Strategy.String()
	if n := t.options.processes; n > 0 && n < t.group.Size() {
		line += fmt.Sprintf(": %s in %s, global batch %d", english.FormatCount(t.group.Size(), "replica"), english.FormatCount(n, "process"), t.globalBatch())
	}
	if t.can.Stages != "" {
		line += ", stages of " + t.can.Stages
	}
	if reason := t.noCommunicationReason(); reason != "" {
		line += ": losses and scores are not real: " + reason
	}
	if t.optimizerBytes == nil || t.group.Size() == 1 {
		return line
	}
	mib := func(n int64) string { return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20)) }
	sum, largest := int64(0), slices.Max(t.optimizerBytes)
	for _, n := range t.optimizerBytes {
		sum += n
	}
	saved := t.completeOptimizerBytes*int64(len(t.optimizerBytes)) - sum
	return fmt.Sprintf("%s: the optimizer's state takes at most %s on a worker, with ddp %s on each; all workers together save %s",
		line, mib(largest), mib(t.completeOptimizerBytes), mib(saved))
}

func (r *runFiles) writeStep(s runs.Step) error {
	if r.steps == nil {
		return nil
	}
	return r.measureWriteTime(func() error {
		if err := r.steps.AppendStep(s); err != nil {
			return err
		}
		return r.writeStepEvents(s)
	})
}

// writeEpoch writes the row of a finished epoch, and the scores of its classes, which may be nil.
// Call it before the epoch's checkpoint is saved.
func (r *runFiles) writeEpoch(row runs.Epoch, classes []runs.NamedScores) error {
	if r.steps != nil {
		if err := r.steps.Flush(); err != nil {
			return err
		}
	}
	if err := r.gpu.CheckSampleFile(); err != nil {
		return err
	}
	if err := r.logUsageEnd(r.usage.Err()); err != nil {
		return err
	}
	row.Seconds, row.SamplesPerSecond = exactThroughput(row.Samples, row.Seconds)
	if r.writer != nil {
		// Write the load and the classes first: readers look for them when they find a new row.
		if r.lastLoad != nil {
			if err := r.writer.AppendLoad(*r.lastLoad); err != nil {
				return err
			}
		}
		if classes != nil {
			if err := r.writer.AppendClasses(row.Epoch, classes); err != nil {
				return err
			}
		}
		if err := r.writer.AppendEpoch(row); err != nil {
			return err
		}
	}
	if err := r.logEpoch(row, classes); err != nil {
		return err
	}
	return r.writeEpochEvents(row, classes)
}

// lastCheckpoint returns the path of the newest checkpoint, relative to the run folder, or "" if
// there is none.
func (r *runFiles) lastCheckpoint() string { return r.saved }

// checkRunFilesExist returns an error on every rank if a file of any rank in the run folder was deleted.
// All ranks must call it.
func (r *runFiles) checkRunFilesExist(ctx context.Context) error {
	if r.t.options.Dir == "" {
		return nil
	}
	lost := []float64{0}
	err := r.checkRankFilesExist()
	if err != nil {
		lost[0] = 1
	}
	if r.t.group.Size() > 1 {
		work, end := withDelayedCancel(ctx, stepGracePeriod)
		defer end()
		if serr := r.t.allReduce(work, lost); serr != nil {
			return errors.Join(err, serr)
		}
	}
	if err == nil && lost[0] > 0 {
		err = errors.New("files of another rank in the run folder were deleted")
	}
	return err
}

// checkRankFilesExist returns a *runs.LostError if a file of this rank was deleted.
func (r *runFiles) checkRankFilesExist() error {
	if err := r.steps.Flush(); err != nil {
		return err
	}
	if r.writer == nil {
		return nil
	}
	if err := r.writer.Check(); err != nil {
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

func (r *runFiles) writeTestScores(test runs.Test) error {
	if r.writer == nil {
		return nil
	}
	return r.writer.UpdateInfo(func(i *runs.Info) { i.Test = &test })
}

// close closes the files and records how the run ended: done if err is nil, else canceled or
// failed. It returns err joined with its own errors.
func (r *runFiles) close(ctx context.Context, err error) error {
	if uerr := r.logUsageEnd(r.usage.Stop()); err == nil {
		err = uerr
	}
	var lost *runs.LostError
	if _, gpuErr := r.gpu.Stop(); !errors.As(err, &lost) || !errors.As(gpuErr, &lost) { // report one deleted file only
		err = errors.Join(err, gpuErr)
	}
	if r.steps != nil {
		err = errors.Join(err, r.steps.Close())
	}
	if r.events != nil {
		err = errors.Join(err, r.events.Close())
	}
	if r.writer == nil {
		return err
	}
	if err == nil {
		err = r.logToFile("DONE ---- rank %d", r.t.group.Rank())
	}
	status := runs.StatusDone
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, context.Canceled)):
		status = runs.StatusCanceled
	case err != nil:
		status = runs.StatusFailed
	}
	ferr := r.writer.Finish(status, err)
	if errors.As(err, &lost) && errors.As(ferr, &lost) { // report one deleted file only
		return err
	}
	return errors.Join(err, ferr)
}
