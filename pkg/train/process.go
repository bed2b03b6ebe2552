package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/term"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs/flight"
	"lockstep/pkg/strategy"
)

// trainingProcess contains one or more workers of a run, called replicas, with consecutive ranks.
type trainingProcess struct {
	cfg      Config
	env      rendezvous.Env // describes the processes: env.World is their number
	replicas int
	options  WorkerOptions // of every replica
	out      io.Writer     // receives log lines on rank 0; nil: no log
}

// countReplicas returns the number of replicas in this process. It returns an error if the strategy
// does not support this number, or the number of processes in env.
func (w Worker) countReplicas(cfg Config, env rendezvous.Env) (int, error) {
	cores, threads := runtime.NumCPU(), max(1, cfg.Engine.Threads)
	n := cfg.Strategy.ReplicasPerProcess(1)
	switch mirrored := cfg.Strategy.Name == strategy.NameMirrored; {
	case w.Replicas < 0:
		return 0, fmt.Errorf("got %d replicas: use at least 1, or 0 for all cores (--replicas)", w.Replicas)
	case w.Replicas > 0 && cfg.Strategy.Name == strategy.NameMultiWorker:
		return 0, fmt.Errorf("--replicas belongs to strategy %s: with strategy %s, set strategy.replicas", strategy.NameMirrored, cfg.Strategy.Name)
	case w.Replicas > 0 && !mirrored:
		return 0, fmt.Errorf("--replicas belongs to strategy %s: with strategy %s, a process is one worker", strategy.NameMirrored, cfg.strategyName())
	case mirrored && env.World > 1:
		return 0, fmt.Errorf("strategy %s trains in one process, but %s describes %d processes: use strategy %s, or start one process",
			strategy.NameMirrored, env.Source, env.World, strategy.NameMultiWorker)
	case mirrored && w.Replicas > 0:
		n = w.Replicas
	case mirrored:
		n = max(1, cores/threads)
	}
	if n > engine.MaxThreads/threads {
		return 0, fmt.Errorf("%s × %s: use at most %d threads in a process", english.FormatCount(n, "replica"), english.FormatCount(threads, "thread"), engine.MaxThreads)
	}
	if n > 1 && n*threads > ThreadsPerCore*cores && !w.Oversubscribe {
		return 0, fmt.Errorf("%s × %s = %d, but this machine has %s: use at most %d threads per core, or allow more with --oversubscribe",
			english.FormatCount(n, "replica"), english.FormatCount(threads, "thread"), n*threads, english.FormatCount(cores, "core"), ThreadsPerCore)
	}
	return n, nil
}

func (p trainingProcess) worldSize() int { return p.env.World * p.replicas }

// run joins the other processes and trains all replicas of this process. A replica that fails
// leaves the group, so that the other replicas end too.
func (p trainingProcess) run(ctx context.Context) error {
	groups, err := rendezvous.JoinReplicas(ctx, p.env, p.cfg.JoinOptions(), p.replicas)
	if err != nil {
		return err
	}
	if len(groups) == 1 {
		return p.trainReplica(ctx, 0, groups[0], func(error) {})
	}
	var first firstError
	var wg sync.WaitGroup
	for local, group := range groups {
		wg.Go(func() {
			rank := group.Rank()
			note := func(err error) { first.noteError(rank, err) }
			note(p.trainReplica(ctx, local, group, note)) // group may fail to close
		})
	}
	wg.Wait()
	return first.err
}

// firstError keeps the error of the rank that failed first. Errors of the other ranks are usually
// its consequences, but may be noted earlier: a rank of several nodes leaves the group inside its
// node before its own error is noted.
type firstError struct {
	mu          sync.Mutex
	err         error
	consequence bool // err only says that another rank has left or failed
}

// noteError keeps the error of a rank, unless it is nil. A later error replaces an earlier one that
// says only that another rank has left or failed.
func (f *firstError) noteError(rank int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		return
	}
	consequence := errors.Is(err, collective.ErrRankLeft) || errors.Is(err, collective.ErrRankFailed)
	if f.err == nil || f.consequence && !consequence {
		f.err, f.consequence = fmt.Errorf("rank %d: %w", rank, err), consequence
	}
}

// trainReplica trains the replica with the given local rank, and closes group. It calls failed with
// the replica's error, or nil, before it leaves the group, because leaving makes the other replicas
// fail.
func (p trainingProcess) trainReplica(ctx context.Context, local int, group collective.Group, failed func(error)) (err error) {
	joined := group
	defer func() {
		failed(err)
		if cerr := joined.Close(); err == nil {
			err = cerr
		}
	}()
	options := p.options
	options.LocalRank = p.env.LocalRank*p.replicas + local
	options.usage = options.usage && local == 0 // for all replicas of this process
	if group.Size() > 1 {
		if p.env.World == 1 { // Join has done it for the other groups
			if err := collective.Tune(ctx, group); err != nil {
				return err
			}
		}
		if options.Dir != "" {
			r, stop, rerr := recordCollectives(ctx, group, options.Dir)
			if rerr != nil {
				return rerr
			}
			defer stop()
			defer func() { collective.RecordOwnFailure(r, err) }() // before this rank leaves the group
			group = r
		}
	}
	if group.Rank() == 0 && p.out != nil {
		options.Log = func(line string) { fmt.Fprintln(p.out, line) }
		if term.IsTerminal(int(os.Stderr.Fd())) {
			options.Progress = newProgressBar()
		}
	}
	return p.trainAndClose(ctx, group, options, local)
}

// recordCollectives returns a group that records its operations for the run folder dir. It removes
// the record of an earlier process of this rank. Until stop is called, the signal SIGUSR2 makes the
// group write its record. All ranks must call recordCollectives.
func recordCollectives(ctx context.Context, group collective.Group, dir string) (r *collective.Recorder, stop func(), err error) {
	r = collective.NewRecorder(group, dir)
	if err := flight.Remove(dir, group.Rank()); err != nil {
		return nil, nil, err
	}
	stop = r.HandleRequests()
	if err := r.ShareHosts(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return r, stop, nil
}

// newProgressBar returns a function for WorkerOptions.Progress that shows a progress bar for the
// steps of each epoch.
func newProgressBar() func(epoch, step, steps int) {
	var bar *notebook.Progress
	return func(epoch, step, steps int) {
		if bar == nil {
			bar = notebook.NewProgress(fmt.Sprintf("epoch %d", epoch), steps)
		}
		bar.Set(step, "")
		if step == steps {
			bar.Done("")
			bar = nil
		}
	}
}

// trainAndClose creates, runs and closes the Trainer of the replica with the given local rank.
func (p trainingProcess) trainAndClose(ctx context.Context, group collective.Group, options WorkerOptions, local int) (err error) {
	begin := time.Now()
	t, err := New(ctx, p.cfg, group, options)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := t.Close(); err == nil {
			err = cerr
		}
	}()
	if local == 0 { // for all replicas of this process
		sharing := countWorkersSharingCPUs(options.binding, group.Rank(), p.env.LocalWorld*p.replicas)
		limitGOMAXPROCS(p.replicas, p.cfg.Engine.Threads, sharing, t.OverlapsExchange())
	}
	res, err := t.Run(ctx)
	if err != nil {
		return err
	}
	if options.Log != nil {
		options.Log(fmt.Sprintf("done in %.1f s: %s; %s", time.Since(begin).Seconds(), SummarizeTest(res.Test), options.Dir))
	}
	return nil
}
