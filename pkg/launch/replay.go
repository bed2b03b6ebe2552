package launch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/replay"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// Replay shows a recorded or published sweep as if it were being trained now, speed times as fast.
// The methods of the returned Job work as for a sweep in this process: Watch shows a growing table
// and the speed-up so far, and scaling.Read reads the growing run folders in Dir. Each epoch takes
// its recorded seconds of training and validation, divided by speed. RunStatus.Seconds counts
// recorded seconds.
//
// name is a table in logs/published that has the seconds of at least two consecutive epochs per run
// (resnet-cifar10-power, sc21-one-gpu), or a study in logs/recorded (unet2d-cells,
// resnet50v2-cifar10-laptop). Replay returns an error for any other name, and if speed is not
// positive or not finite.
//
// The run folders are in a temporary folder, which is not removed at the end. Source in their
// run.json says where the numbers come from; tables, captions, figures and reports show it. The end
// of ctx or Cancel ends the replay with the status canceled. Other sweeps do not wait for a replay,
// and Jobs does not list it.
func Replay(ctx context.Context, name string, speed float64) (*Job, error) {
	return replayWithClock(ctx, name, speed, sleep)
}

// sleep waits for d, or returns context.Canceled once ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Canceled
	}
}

type replayedSweep struct {
	*inProcessSweep // without plan and record

	sources []runs.Run // of its runs
	speed   float64
	wait    func(context.Context, time.Duration) error // as sleep
}

// replayWithClock implements Replay. wait waits for a duration of real time, and returns an error
// if its context ends.
func replayWithClock(ctx context.Context, name string, speed float64, wait func(context.Context, time.Duration) error) (*Job, error) {
	if !(speed > 0) || math.IsInf(speed, 0) {
		return nil, fmt.Errorf("replay %s: got the speed %g: use a finite number above 0, such as 30 for 30 times as fast", name, speed)
	}
	sources, err := replay.FindRuns(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", name, err)
	}
	study, err := scaling.FromRuns(sources)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", name, err)
	}
	temporary, err := os.MkdirTemp("", "lockstep-replay-")
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", name, err)
	}
	name = replay.LogsName(name)
	dir := filepath.Join(temporary, name)
	l := &replayedSweep{
		inProcessSweep: &inProcessSweep{ended: make(chan struct{}), killNow: make(chan struct{})},
		sources:        sources, speed: speed, wait: wait,
	}
	for _, r := range sources {
		run := fmt.Sprintf("%s-n%d-s%d", strings.ReplaceAll(r.Info.Series, "/", "-"), r.Info.Workers, r.Info.Seed)
		planned := &PlannedRun{
			Name: run, Dir: filepath.Join(dir, run), Series: r.Info.Series, Workers: r.Info.Workers, Seed: r.Info.Seed, Epochs: len(r.Epochs),
		}
		l.runs = append(l.runs, &runningRun{PlannedRun: planned, runState: runState{state: StateWaiting}, changed: func() {}})
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	go l.replayAll()
	return &Job{
		dir: dir, name: name, backend: l, where: "folder of the replayed runs: " + dir,
		heading: fmt.Sprintf("replay of %s, %g times as fast: %s", name, speed, strings.Join(study.Sources(), "; ")),
	}, nil
}

func (l *replayedSweep) replayAll() {
	defer close(l.ended)
	defer l.cancel()
	for i, r := range l.runs {
		r.setState(StateRunning, nil)
		err := l.replay(r, l.sources[i])
		if err != nil {
			err = fmt.Errorf("replay run %s: %w", r.Name, err)
		}
		r.setState(runfolder.StatusForError(err), err)
		if err != nil {
			l.err = err
			return
		}
	}
}

func (l *replayedSweep) replay(r *runningRun, source runs.Run) (err error) {
	if err := runfolder.MakeDir(r.Dir); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.Dir, runs.WorkerLogName(0)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	rank0 := output.NewWriter("", log, output.NewLineWriter(nil))
	r.setRank0Output(rank0)
	return replay.WriteRun(source, r.Dir, rank0, func(e runs.Epoch) error {
		const longest = math.MaxInt64 / 2 // 146 years
		return l.wait(l.ctx, time.Duration(min(replay.EpochSeconds(e)/l.speed*float64(time.Second), longest)))
	})
}

// status returns the status of each run, with times of the replay's clock.
func (l *replayedSweep) status() []RunStatus {
	all := l.inProcessSweep.status()
	for i := range all {
		s, total := &all[i], 0.0
		for _, e := range l.sources[i].Epochs {
			total += replay.EpochSeconds(e)
		}
		s.isProgram = true // it cannot be continued
		s.Seconds = min(s.Seconds*l.speed, total)
		if s.State == StateRunning {
			s.Ends = time.Now().Add(time.Duration(min((total-s.Seconds)/l.speed*float64(time.Second), math.MaxInt64/2)))
		}
	}
	return all
}
