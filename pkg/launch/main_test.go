package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	_ "lockstep/pkg/engine/all"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/slurmtest"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// TestMain makes the test binary its own worker: with the arguments "train …" it replaces
// the lockstep command, with sums instead of a network.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "train" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := trainSums(ctx, os.Args[2:])
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "launch" && os.Args[2] == "--watched" {
		os.Exit(serve())
	}
	if len(os.Args) > 2 && os.Args[1] == "notebook" {
		os.Exit(standInKernel(os.Args[2]))
	}
	if len(os.Args) > 5 && os.Args[1] == "launch" && os.Args[2] == "--task" {
		code, err := RunTask(context.Background(), os.Args[3], os.Args[5:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "task:", err)
			code = 1
		}
		os.Exit(code)
	}
	if len(os.Args) > 3 && os.Args[1] == "launch" {
		j, err := Local(context.Background(), Sweep{
			Command: []string{"/bin/sh", "-c", os.Args[3]}, Workers: []int{2},
			Logs: os.Args[2], Oversubscribe: true, Output: os.Stdout, Now: true,
		})
		if err == nil {
			err = j.Wait(context.Background())
		}
		fmt.Fprintln(os.Stderr, "launcher:", err)
		os.Exit(1)
	}
	os.Exit(ownLocks(m))
}

// cluster is started by the first test that uses it.
var cluster slurmtest.Cluster

// ownLocks runs the tests with a separate locks folder, and with this executable as the lockstep
// command.
func ownLocks(m *testing.M) int {
	dir, err := os.MkdirTemp("", "launch-locks-")
	if err == nil {
		err = os.Setenv("LOCKSTEP_LOCKS", dir)
	}
	var self string
	if err == nil {
		self, err = os.Executable()
	}
	if err == nil {
		err = os.Setenv("LOCKSTEP_BIN", self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	code := m.Run()
	cluster.Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// ownQueue gives a test a separate queue.
func ownQueue(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("LOCKSTEP_LOCKS", dir)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	return dir
}

// serve replaces "lockstep launch --watched".
func serve() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	j, err := Serve(ctx, os.Stdin, os.Stderr)
	if err == nil {
		err = j.Wait(ctx)
	}
	if err != nil {
		return 1
	}
	return 0
}

// standInKernel is a notebook's kernel whose one cell launches the sweep that is
// written in JSON, and which then runs until it is killed.
func standInKernel(text string) int {
	notebook.SetHook(notebook.Hook{
		Context: context.Background,
		Display: func(v any, _ string, _ bool) error { fmt.Println("shows:", v); return nil },
	})
	var s Sweep
	err := json.Unmarshal([]byte(text), &s)
	s.Output, s.gracePeriod = os.Stdout, time.Second
	start := Local
	if s.MPI != (MPIOptions{}) {
		start = MPI
	}
	if err == nil {
		_, err = start(notebook.Context(), s)
	}
	fmt.Println("cell ended:", err)
	time.Sleep(time.Hour)
	return 0
}

// sums is the worker's main function. Its behavior depends on the name of the config.
type sums struct {
	config, dir string
	data        string
	seed        int64
	threads     int
	epochs      int
	resume      bool
	set         string
	check       int
}

func trainSums(ctx context.Context, args []string) error {
	var f sums
	fs := flag.NewFlagSet("train", flag.ContinueOnError)
	fs.StringVar(&f.config, "config", "", "")
	fs.StringVar(&f.dir, "run", "", "")
	fs.Int64Var(&f.seed, "seed", 0, "")
	fs.IntVar(&f.threads, "threads", 0, "")
	fs.IntVar(&f.epochs, "epochs", 2, "")
	fs.BoolVar(&f.resume, "resume", false, "")
	fs.StringVar(&f.set, "set", "", "")
	fs.IntVar(&f.check, "check", 0, "")
	fs.StringVar(&f.data, "data", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if f.check > 0 {
		if f.config == "wrong" {
			return fmt.Errorf("%d workers are wrong", f.check)
		}
		device := "cpu"
		if f.config == "gpus" {
			device = "cuda"
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]any{
			"epochs": f.epochs, "set": f.set, "data": map[string]any{"path": f.data}, "engine": map[string]any{"device": device},
		})
	}
	env, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	group, err := rendezvous.Join(ctx, env, rendezvous.Options{Timeout: 20 * time.Second})
	if err != nil {
		return err
	}
	return errors.Join(f.train(ctx, group), group.Close())
}

func (f sums) train(ctx context.Context, g collective.Group) (err error) {
	if f.config == "threads" {
		text, err := describeThreads()
		if err != nil {
			return err
		}
		fmt.Println(text)
	}
	fmt.Printf("pid %d, seed %d, threads %d, set %q\n", os.Getpid(), f.seed, f.threads, f.set)
	var w *runs.Writer
	done := 0 // epochs before this process
	if g.Rank() == 0 {
		if _, none := os.Stat(filepath.Join(f.dir, "run.json")); f.resume && none == nil {
			var before runs.Run
			w, before, err = runs.Resume(f.dir)
			done = len(before.Epochs)
		} else {
			info := runs.Info{Workers: g.Size(), Seed: f.seed, Config: map[string]any{"epochs": f.epochs, "set": f.set}}
			if f.config == "dark" {
				info.Notes, info.Nodes, info.ThreadsPerWorker, info.Host.Cores = []string{"the images are dark"}, 1, 1, 1
			}
			if text := os.Getenv(train.BindingVariable); text != "" && f.config != "dark" {
				if err := json.Unmarshal([]byte(text), &info.Binding); err != nil {
					return err
				}
			}
			w, err = runs.Create(f.dir, info)
		}
		if err != nil {
			return err
		}
		defer func() {
			status := runs.StatusDone
			if err != nil {
				status = runs.StatusFailed
			}
			err = errors.Join(err, w.Finish(status, err))
		}()
	}
	sync := strategy.NewDDP(ctx, g)
	defer func() { err = errors.Join(err, sync.Close()) }()
	for epoch := 1; epoch <= f.epochs; epoch++ {
		if err := f.misbehave(ctx, g.Rank(), epoch); err != nil {
			return err
		}
		// The mean of rank+1 over ranks is (size+1)/2.
		b := device.Buffer{F32: make([]float32, 100_000)}
		for i := range b.F32 {
			b.F32[i] = float32(g.Rank() + 1)
		}
		if err := sync.ReduceBucket(0, b, device.Stream{}); err != nil {
			return err
		}
		if err := sync.Wait(); err != nil {
			return err
		}
		fmt.Printf("epoch %d mean %v\n", epoch, b.F32[len(b.F32)-1])
		if w != nil && epoch > done {
			row := runs.Epoch{
				Epoch: epoch, Seconds: 0.5, Samples: 10, SamplesPerSecond: 20, TrainLoss: 1 / float64(epoch),
				ValLoss: math.NaN(), IoU: float64(b.F32[0]), Dice: math.NaN(), ValSeconds: math.NaN(), LearningRate: 0.1,
			}
			if err := w.AppendEpoch(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// misbehave causes the fault that the config asks for, at epoch 2, or "waits-third" at epoch 3.
func (f sums) misbehave(ctx context.Context, rank, epoch int) error {
	if f.config == "waits-third" && epoch == 3 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if epoch != 2 {
		return nil
	}
	switch {
	case f.config == "fails" && rank == 1:
		return errors.New("loss is not finite")
	case f.config == "killed" && rank == 1:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case f.config == "first-killed" && rank == 0:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case f.config == "waits" || f.config == "waits-once" && os.Getenv("SLURM_RESTART_COUNT") == "":
		<-ctx.Done()
		fmt.Println("ends in order")
		return context.Cause(ctx)
	}
	return nil
}

// describeThreads describes on which CPUs the threads of this process may run.
func describeThreads() (string, error) {
	for range 4 { // more threads than the runtime has started so far
		go func() { runtime.LockOSThread(); time.Sleep(time.Second) }()
	}
	time.Sleep(50 * time.Millisecond)
	paths, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return "", err
	}
	var lists []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		for line := range bytes.Lines(text) {
			if _, list, ok := bytes.Cut(line, []byte("Cpus_allowed_list:\t")); ok {
				lists = append(lists, strings.TrimSpace(string(list)))
			}
		}
	}
	return fmt.Sprintf("%d threads on CPUs %s, GOMAXPROCS %d", len(lists), strings.Join(slices.Compact(lists), " and "), runtime.GOMAXPROCS(0)), nil
}
