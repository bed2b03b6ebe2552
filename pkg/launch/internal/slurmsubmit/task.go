package slurmsubmit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch/internal/child"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/workers"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
)

// RunTask implements "lockstep launch --task", as launch.RunTask documents.
func RunTask(ctx context.Context, dir string, command []string) (code int, err error) {
	f, err := readDescription(dir)
	if err != nil {
		return 0, err
	}
	env, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return 0, err
	}
	env = env.ResolveMaster(ctx)
	if env.World == 1 { // Lockstep needs no address then, but torch.distributed.init_process_group does
		env.MasterAddr = "127.0.0.1"
		if env.MasterPort, err = rendezvous.FindFreePort(ctx); err != nil {
			return 0, err
		}
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(path, command[1:]...)
	threads := f.Threads
	if f.OneProcess {
		threads *= f.Workers
	}
	cmd.Env = workers.ProgramEnvironment(env, threads)
	if f.TFConfig {
		entry, err := env.TFConfig(ctx, os.Getenv)
		if err != nil {
			return 0, err
		}
		cmd.Env = append(cmd.Env, entry)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Slurm sends signals to all processes of a task. The program decides what to do, so this
	// process ignores them.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGHUP)
	defer signal.Stop(signals)
	if env.Rank == 0 {
		return f.runRank0(dir, cmd)
	}
	code, err = runRankProgram(dir, env.Rank, cmd)
	if code == ExitRequeue { // rank 0 decides; a failed task would end it while it saves the run
		code = 0
	}
	return code, err
}

// runRankProgram runs the program of a rank, and records its CPU, memory and network usage in the run
// folder dir. code is its exit code, or 128 plus the number of the signal that ended it. err is not
// nil if the program could not be run.
func runRankProgram(dir string, rank int, cmd *exec.Cmd) (code int, err error) {
	stop := runfolder.RecordResourceUsage(dir, map[int]int{rank: os.Getpid()}, func(err error) { fmt.Fprintf(os.Stderr, "lockstep: note: %v\n", err) })
	defer stop()
	var exit *exec.ExitError
	cmd.SysProcAttr = child.TaskAttr()
	runtime.LockOSThread() // the program is killed if the thread that starts it ends
	err = cmd.Run()
	runtime.UnlockOSThread()
	if !errors.As(err, &exit) {
		return 0, err
	}
	const signalOffset = 128 // as in shells
	if s := child.TerminatingSignal(exit); s != 0 {
		return signalOffset + int(s), nil
	}
	return exit.ExitCode(), nil
}

func (f jobDescription) runRank0(dir string, cmd *exec.Cmd) (code int, err error) {
	w, err := f.openRunWriter(dir)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	load := monitor.NewLoadMeter(os.Getpid())
	load.Begin()
	err = w.Log("start %s with %s, %s each, as job %s", strings.Join(f.Command, " "), english.FormatCount(f.Workers, "worker"),
		english.FormatCount(f.Threads, "thread"), ownJobID())
	if err == nil {
		code, err = runRankProgram(dir, 0, cmd)
	}
	seconds := time.Since(begin).Seconds()
	if measured, ok := load.End(1); ok && err == nil && code == 0 {
		err = w.AppendLoad(measured)
	}
	status, cause := runfolder.StatusForError(err), err
	switch {
	case err != nil || code == 0:
	case code == ExitRequeue:
		status, cause = runs.StatusCanceled, errors.New("the program saved its state and ended before Slurm ended the job; the requeued job starts it again")
	default:
		status, cause = runs.StatusFailed, fmt.Errorf("rank 0 ended with exit code %d", code)
	}
	return code, errors.Join(err, w.Log("%s after %.3f s", status, seconds), w.Finish(status, cause))
}

// ownJobID returns the id of this process's job, such as 17, or 17_3 in a job array.
func ownJobID() string {
	if array, task := os.Getenv("SLURM_ARRAY_JOB_ID"), os.Getenv("SLURM_ARRAY_TASK_ID"); array != "" && task != "" {
		return array + "_" + task
	}
	return os.Getenv("SLURM_JOB_ID")
}

func (f jobDescription) openRunWriter(dir string) (*runs.Writer, error) {
	if restarts := os.Getenv("SLURM_RESTART_COUNT"); restarts != "" && restarts != "0" {
		if _, err := runs.Read(dir); err == nil {
			w, _, err := runs.Resume(dir)
			return w, err
		}
	}
	info := runs.Info{
		Study: f.Study, Series: f.Series, Workers: f.Workers, Seed: f.Seed, Nodes: f.Nodes,
		Command: f.Command, Profiler: f.Profiler, GPUs: f.GPUs, ThreadsPerWorker: f.Threads, Host: runs.DescribeHost(),
	}
	if f.OneProcess {
		info.Processes = 1
	}
	return runs.Create(dir, info)
}
