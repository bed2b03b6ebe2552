package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// keepProcessors restores GOMAXPROCS, which a process sets for its replicas, after the test.
func keepProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// trainProcesses trains in the given number of processes with the given number of replicas
// each, which are goroutines of this process, and returns their errors.
func trainProcesses(ctx context.Context, t *testing.T, cfg Config, processes, replicas int, options WorkerOptions) []error {
	t.Helper()
	keepProcessors(t)
	port, err := rendezvous.FindFreePort(ctx)
	if err != nil {
		t.Fatal(err)
	}
	options.processes = processes
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for i := range processes {
		env := rendezvous.Env{Rank: i, World: processes, LocalRank: i, LocalWorld: processes, MasterAddr: "127.0.0.1", MasterPort: port, Token: "secret"}
		p := trainingProcess{cfg: cfg, env: env, replicas: replicas, options: options}
		wg.Go(func() { errs[i] = p.run(ctx) })
	}
	wg.Wait()
	return errs
}

// TestReplicasOfProcessesEqualWorkers: two replicas, of one process or of two, compute the same
// bits as two workers of ddp. A resumed run computes the same bits as one without interruption.
func TestReplicasOfProcessesEqualWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	cfg := tiny()
	cfg.Epochs = 2
	ddp := filepath.Join(t.TempDir(), "ddp")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: ddp}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		strategy            string
		processes, replicas int
		equalsDDP           bool
	}{{"mirrored", 1, 2, true}, {"multiworker", 2, 1, true}, {"multiworker:replicas=2", 2, 2, false}} {
		t.Run(c.strategy, func(t *testing.T) {
			cfg := cfg
			cfg.Strategy = parseStrategy(t, c.strategy)
			dir := filepath.Join(t.TempDir(), "whole")
			if err := errors.Join(trainProcesses(t.Context(), t, cfg, c.processes, c.replicas, WorkerOptions{Dir: dir})...); err != nil {
				t.Fatal(err)
			}
			whole := outcome(t, dir)
			if c.equalsDDP && whole != outcome(t, ddp) {
				t.Errorf("it differs from ddp:\n%.600s", whole)
			}
			run, err := runs.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			if i := run.Info; i.Workers != c.processes*c.replicas || i.Processes != c.processes || i.GlobalBatch != i.Workers*cfg.Batch || len(run.Workers) != i.Workers {
				t.Errorf("run.json: %d workers in %d processes, global batch %d, %d recorded ranks", i.Workers, i.Processes, i.GlobalBatch, len(run.Workers))
			}
			for _, w := range run.Workers {
				if w.LocalRank != w.Rank { // all processes are on this machine
					t.Errorf("rank %d has the local rank %d", w.Rank, w.LocalRank)
				}
			}
			half := filepath.Join(t.TempDir(), "half")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stopping := WorkerOptions{Dir: half, Progress: func(epoch, step, _ int) {
				if epoch == 2 && step == 1 {
					cancel()
				}
			}}
			for _, err := range trainProcesses(ctx, t, cfg, c.processes, c.replicas, stopping) {
				wantError(t, err, "epoch 2: ended after step 1 of", "canceled")
			}
			if err := errors.Join(trainProcesses(t.Context(), t, cfg, c.processes, c.replicas, WorkerOptions{Dir: half, Resume: true})...); err != nil {
				t.Fatal(err)
			}
			if got := outcome(t, half); got != whole {
				t.Errorf("the resumed run differs:\n%.600s\nwant\n%.600s", got, whole)
			}
		})
	}
}

// failingStrategy is a strategy whose rank 1 fails in the third step.
type failingStrategy struct {
	strategy.Strategy
	rank, steps int
}

func (f *failingStrategy) Step(ctx context.Context, exe engine.Executable, s strategy.Step) (engine.Timing, error) {
	if f.steps++; f.steps == 3 && f.rank == 1 {
		return engine.Timing{}, errors.New("out of luck")
	}
	return f.Strategy.Step(ctx, exe, s)
}

// TestFailingReplicaEndsItsProcess: the error of the process names the replica that failed
// first, with its reason, and run.json says that the run failed.
func TestFailingReplicaEndsItsProcess(t *testing.T) {
	cfg := tiny()
	cfg.Strategy.Name = strategy.NameMirrored
	dir := filepath.Join(t.TempDir(), "run")
	errs := trainProcesses(t.Context(), t, cfg, 1, 3, WorkerOptions{Dir: dir, Strategy: func(ctx context.Context, c strategy.Config, gpu *engine.Accelerator, g collective.Group) (strategy.Strategy, error) {
		s, err := strategy.New(ctx, c, gpu, g)
		return &failingStrategy{Strategy: s, rank: g.Rank()}, err
	}})
	wantError(t, errs[0], "rank 1: epoch 1: batch 3: out of luck")
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if run.Info.Status != runs.StatusFailed || !strings.Contains(run.Info.Error, "rank 1 ") {
		t.Errorf("run.json: status %q, error %q", run.Info.Status, run.Info.Error)
	}
}

// stuckStrategy is a strategy whose rank 1 waits in the third step until released is closed.
type stuckStrategy struct {
	strategy.Strategy
	rank, steps int
	released    <-chan struct{}
}

func (s *stuckStrategy) Step(ctx context.Context, exe engine.Executable, step strategy.Step) (engine.Timing, error) {
	if s.steps++; s.steps == 3 && s.rank == 1 {
		<-s.released
	}
	return s.Strategy.Step(ctx, exe, step)
}

// TestRecordsOfReplicas: a worker that is stuck in the program's own code, or fails there, is
// explained with its stack or its error.
func TestRecordsOfReplicas(t *testing.T) {
	cfg := tiny()
	cfg.TimeoutCollective = "4s"
	train := func(newStrategy func(strategy.Strategy, int) strategy.Strategy) (errs []error, problems string) {
		dir := filepath.Join(t.TempDir(), "run")
		errs = trainProcesses(t.Context(), t, cfg, 2, 1, WorkerOptions{Dir: dir, Strategy: func(ctx context.Context, c strategy.Config, gpu *engine.Accelerator, g collective.Group) (strategy.Strategy, error) {
			s, err := strategy.New(ctx, c, gpu, g)
			return newStrategy(s, g.Rank()), err
		}})
		run, err := runs.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		return errs, fmt.Sprint(run.Problems)
	}
	released := make(chan struct{})
	errs, problems := train(func(s strategy.Strategy, rank int) strategy.Strategy {
		if rank == 0 {
			return &releasingStrategy{s, released}
		}
		return &stuckStrategy{Strategy: s, rank: rank, released: released}
	})
	const place = "train.(*stuckStrategy).Step (process_test.go:"
	wantError(t, errs[0], "rank 1 ", "did not arrive within 4s", "its last collective was ", "its stack is in ", place)
	if !strings.Contains(problems, "; its stack (stacks-1.txt): "+place) {
		t.Errorf("problems %s, want one with the stack of rank 1", problems)
	}
	errs, problems = train(func(s strategy.Strategy, rank int) strategy.Strategy {
		return &failingStrategy{Strategy: s, rank: rank}
	})
	wantError(t, errs[1], "out of luck")
	if !strings.Contains(problems, "; its error: epoch 1: batch 3: out of luck") {
		t.Errorf("problems %s, want one with the error of rank 1", problems)
	}
}

// releasingStrategy is a strategy that closes released when a step fails.
type releasingStrategy struct {
	strategy.Strategy
	released chan struct{}
}

func (r *releasingStrategy) Step(ctx context.Context, exe engine.Executable, step strategy.Step) (engine.Timing, error) {
	timing, err := r.Strategy.Step(ctx, exe, step)
	if err != nil {
		close(r.released)
	}
	return timing, err
}

// TestWorkerWithReplicas: a worker process with strategy mirrored trains its replicas; out.log
// has one run of several workers.
func TestWorkerWithReplicas(t *testing.T) {
	keepProcessors(t)
	cfg := tiny()
	cfg.Epochs = 1
	dir := filepath.Join(t.TempDir(), "run")
	var out strings.Builder
	w := Worker{Own: &cfg, Set: []string{"strategy=mirrored"}, Replicas: 2, Oversubscribe: true, Run: dir, Out: &out}
	if err := w.Train(t.Context()); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "out.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 workers × batch 2, 1 thread each", "strategy mirrored: 2 replicas in 1 process, global batch 4"} {
		if !strings.Contains(string(log), want) || strings.Count(out.String(), want) != 1 {
			t.Errorf("no %q in out.log, or not once in\n%s", want, out.String())
		}
	}
}

// TestProcessesNeedOneStrategy: processes with different strategies end with the same error,
// whether or not they have the same number of replicas.
func TestProcessesNeedOneStrategy(t *testing.T) {
	for _, c := range []struct {
		other    strategy.Config // of process 1
		replicas int             // of process 1
		want     string
	}{
		{strategy.Config{Name: "multiworker", Replicas: 2}, 2, "has 2 replicas in its process, rank 0 has 1 replica: give all processes the same strategy"},
		{strategy.Config{Name: "multiworker"}, 1, "strategy is multiworker there and ddp on rank 0"},
	} {
		port := findMasterPort(t)
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i := range 2 {
			p := trainingProcess{cfg: tiny(), replicas: 1, options: WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")}}
			p.env = rendezvous.Env{Rank: i, World: 2, LocalRank: i, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: port, Token: "secret"}
			if i == 1 {
				p.cfg.Strategy, p.replicas = c.other, c.replicas
			}
			wg.Go(func() { errs[i] = p.run(t.Context()) })
		}
		wg.Wait()
		for _, err := range errs {
			wantError(t, err, c.want)
		}
	}
}

// TestMultiWorkerByHand: processes that a user starts with TF_CONFIG join each other, over
// sockets. When one is killed, the other ends and names a rank of it.
func TestMultiWorkerByHand(t *testing.T) {
	start := func(dir string, epochs int) []*workerProcess {
		address := fmt.Sprintf("127.0.0.1:%d", findMasterPort(t))
		var all []*workerProcess
		for i := range 2 {
			env := []string{rendezvous.FormatTFConfig([]string{address, "127.0.0.1:2223"}, i), "LOCKSTEP_TOKEN=secret", "LOCKSTEP_COLLECTIVE=tcp"}
			all = append(all, startTrainIn(t, env, "--run", dir, "--epochs", fmt.Sprint(epochs), "--oversubscribe", "--set", "strategy={name: multiworker, replicas: 2}"))
		}
		return all
	}
	dir := filepath.Join(t.TempDir(), "run")
	for _, p := range start(dir, 1) {
		if err := p.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, p.out.String())
		}
	}
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if i, want := run.Info, "in-process inside each of 2 nodes, tcp ring between them"; i.Workers != 4 || i.Processes != 2 || i.RankSource != rendezvous.SourceTFConfig || i.Collective != want {
		t.Errorf("run.json: %d workers in %d processes by %q over %q", i.Workers, i.Processes, i.RankSource, i.Collective)
	}
	dir = filepath.Join(t.TempDir(), "killed")
	all := start(dir, 100_000)
	waitForEpochs(t, dir, 1)
	if err := all[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Wait(); err == nil || !strings.Contains(all[0].out.String(), "rank 2 is gone") && !strings.Contains(all[0].out.String(), "rank 3 is gone") {
		t.Errorf("process 0 after the end of process 1: %v\n%s", err, all[0].out.String())
	}
}

// TestFirstError: the reported error is the first one that says more than that another rank has
// left or failed, in whatever order the ranks of a process note theirs.
func TestFirstError(t *testing.T) {
	left := fmt.Errorf("all-gather 240: rank 1 %w (last seen in reduce-scatter 239 inside the node)", collective.ErrRankLeft)
	failed := fmt.Errorf("barrier 240: rank 1 %w (last seen in barrier 240)", collective.ErrRankFailed)
	gone, later := errors.New("all-reduce 241: rank 3 is gone"), errors.New("later")
	for _, c := range []struct {
		noted []error // by rank
		want  string
	}{
		{[]error{left, gone, later}, "rank 1: all-reduce 241: rank 3 is gone"},
		{[]error{nil, gone, left}, "rank 1: all-reduce 241: rank 3 is gone"},
		{[]error{failed, left, gone}, "rank 2: all-reduce 241: rank 3 is gone"},
		{[]error{left, nil, left}, "rank 0: " + left.Error()},
	} {
		var first firstError
		for rank, err := range c.noted {
			first.noteError(rank, err)
		}
		wantError(t, first.err, c.want)
	}
}

// TestReplicasOfWorkers: how many replicas a process has, and what is refused.
func TestReplicasOfWorkers(t *testing.T) {
	cores := runtime.NumCPU()
	two := rendezvous.Env{World: 2, Source: rendezvous.SourceTFConfig}
	for _, c := range []struct {
		w        Worker
		strategy string
		threads  int
		env      rendezvous.Env
		want     int
		err      string
	}{
		{Worker{}, "ddp", 1, two, 1, ""},
		{Worker{Replicas: 2, Oversubscribe: true}, "mirrored", 1, rendezvous.Env{World: 1}, 2, ""},
		{Worker{}, "mirrored", 1, rendezvous.Env{World: 1}, cores, ""},
		{Worker{}, "mirrored", 2 * cores, rendezvous.Env{World: 1}, 1, ""},
		{Worker{Oversubscribe: true}, "multiworker:replicas=3", 1, two, 3, ""},
		{Worker{}, "multiworker", 1, two, 1, ""},
		{Worker{Replicas: -1}, "mirrored", 1, rendezvous.Env{World: 1}, 0, "got -1 replicas: use at least 1, or 0 for all cores (--replicas)"},
		{Worker{Replicas: 2}, "ddp", 1, two, 0, "--replicas belongs to strategy mirrored: with strategy ddp, a process is one worker"},
		{Worker{Replicas: 2}, "multiworker", 1, two, 0, "--replicas belongs to strategy mirrored: with strategy multiworker, set strategy.replicas"},
		{Worker{Replicas: 2}, "mirrored", 1, two, 0, "strategy mirrored trains in one process, but TF_CONFIG describes 2 processes: use strategy multiworker, or start one process"},
		{Worker{Replicas: 4*cores + 1}, "mirrored", 1, rendezvous.Env{World: 1}, 0, "use at most 4 threads per core, or allow more with --oversubscribe"},
		{Worker{}, fmt.Sprintf("multiworker:replicas=%d", 4*cores+1), 1, two, 0, "use at most 4 threads per core, or allow more with --oversubscribe"},
		{Worker{Replicas: 1_000_000, Oversubscribe: true}, "mirrored", 1, rendezvous.Env{World: 1}, 0, "1000000 replicas × 1 thread: use at most 1024 threads in a process"},
	} {
		cfg := tiny()
		cfg.Strategy, cfg.Engine.Threads = parseStrategy(t, c.strategy), c.threads
		got, err := c.w.countReplicas(cfg, c.env)
		if c.err != "" {
			wantError(t, err, c.err)
		} else if err != nil || got != c.want {
			t.Errorf("%+v with %s: got %d, %v, want %d", c.w, c.strategy, got, err, c.want)
		}
	}
}

// TestStrategyOf: the strategy is that of the config in run.json, by default ddp.
func TestStrategyOf(t *testing.T) {
	for _, want := range []strategy.Config{{}, {Name: "mirrored"}, {Name: "multiworker", Replicas: 2}} {
		cfg := tiny()
		cfg.Strategy = want
		doc, err := cfg.jsonDocument()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := StrategyOf(doc); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	_, err := StrategyOf(map[string]any{"strategy": 4})
	wantError(t, err, "read strategy in config: ")
}
