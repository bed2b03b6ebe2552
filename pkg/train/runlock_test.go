package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
)

// workerProcess is a worker in a separate process.
type workerProcess struct {
	*exec.Cmd
	out bytes.Buffer
}

// startTrain starts this test binary as "lockstep train" for one rank of world ranks.
func startTrain(t *testing.T, rank, world, port int, args ...string) *workerProcess {
	t.Helper()
	var env []string
	if world > 1 {
		env = []string{
			fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", world), fmt.Sprintf("LOCAL_RANK=%d", rank), fmt.Sprintf("LOCAL_WORLD_SIZE=%d", world),
			"MASTER_ADDR=127.0.0.1", fmt.Sprintf("MASTER_PORT=%d", port), "LOCKSTEP_TOKEN=secret",
		}
	}
	return startTrainIn(t, env, args...)
}

// startTrainIn starts this test binary as "lockstep train" with more environment variables.
func startTrainIn(t *testing.T, env []string, args ...string) *workerProcess {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &workerProcess{Cmd: exec.Command(program, append([]string{"train"}, args...)...)}
	p.Env = append(os.Environ(), env...)
	p.Stdout, p.Stderr = &p.out, &p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		_ = p.Wait()
	})
	return p
}

// findMasterPort returns a free port for the workers of one run.
func findMasterPort(t *testing.T) int {
	t.Helper()
	port, err := rendezvous.FindFreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// waitForEpochs waits until the run has the given number of epochs.
func waitForEpochs(t *testing.T, dir string, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if run, err := runs.Read(dir); err == nil && len(run.Epochs) >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has no %d epochs after a minute", dir, n)
		}
	}
}

// verified fails the test unless all checks of the folder pass, except the named ones.
func verified(t *testing.T, dir string, but ...string) {
	t.Helper()
	checks, err := VerifyRun(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !c.OK && !slices.Contains(but, c.Name) {
			t.Error(c)
		}
	}
}

// TestTrainTwice: while one or two workers train in a folder, a second training in it is an
// error on every rank and changes nothing. After a rank was killed, the run can be resumed,
// and its folder passes all checks.
func TestTrainTwice(t *testing.T) {
	for _, world := range []int{1, 2} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			start := func(args ...string) (all []*workerProcess) {
				port := findMasterPort(t)
				for rank := range world {
					all = append(all, startTrain(t, rank, world, port, append([]string{"--run", dir, "--epochs", "40", "--set", "checkpoint.every=2"}, args...)...))
				}
				return all
			}
			first := start()
			waitForEpochs(t, dir, 3)
			before, err := runs.ReadInfo(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{nil, {"--resume"}} {
				for rank, p := range start(args...) {
					err := p.Wait()
					want := fmt.Sprintf("in use by pid %d since ", first[0].Process.Pid)
					if p.ProcessState.ExitCode() != 1 || !strings.Contains(p.out.String(), want) || !strings.Contains(p.out.String(), "--resume") {
						t.Errorf("rank %d with %q: %v, %s; want exit code 1 and %q", rank, args, err, &p.out, want)
					}
				}
			}
			after, err := runs.ReadInfo(dir)
			before.Checkpoint = after.Checkpoint // the first training goes on
			if err != nil || !reflect.DeepEqual(before, after) {
				t.Errorf("run.json was changed (%v) to %+v", err, after)
			}
			if err := first[0].Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = first[0].Wait()
			if _, alive, err := runs.OwnerOf(dir); alive || err != nil {
				t.Errorf("a killed owner is alive, %v", err)
			}
			for rank, p := range start("--resume") { // the other ranks of the first world are still ending
				if err := p.Wait(); err != nil {
					t.Errorf("resume, rank %d: %v: %s", rank, err, &p.out)
				}
			}
			verified(t, dir)
			owners, _, err := runs.Owners(dir)
			if err != nil || len(owners) != 2 || owners[0].PID != first[0].Process.Pid {
				t.Errorf("owners %+v, %v", owners, err)
			}
			parts, _, err := runs.ReadStepParts(dir, world-1)
			if err != nil || len(parts) != 2 || parts[1].Worker.FromStep == 0 {
				t.Errorf("%d parts, %v: expected the second to go on from a checkpoint", len(parts), err)
			}
		})
	}
}

// TestOwnedOnEveryRank: if rank 0 cannot lock the folder, every rank returns an error.
func TestOwnedOnEveryRank(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := runs.Create(dir, runs.Info{Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(3) {
		wg.Go(func() {
			tr, err := New(t.Context(), tiny(), g, WorkerOptions{Dir: dir})
			if err == nil {
				err = errors.Join(errors.New("no error"), tr.Close())
			}
			if want := "this process (pid "; !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: %v; want %q", rank, err, want)
			}
			var owned *runs.OwnedError
			if rank == 0 && !errors.As(err, &owned) {
				t.Errorf("rank 0: %v is no OwnedError", err)
			}
		})
	}
	wg.Wait()
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(entries) {
		t.Errorf("%d files, %v; there were %d", len(after), err, len(entries))
	}
	if err := w.Finish(runs.StatusDone, nil); err != nil {
		t.Fatal(err)
	}
}

// TestReleasedUntrained: a trainer that is closed before training releases the lock.
func TestReleasedUntrained(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	tr, err := New(t.Context(), tiny(), collective.Single(), WorkerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, alive, err := runs.OwnerOf(dir); !alive || err != nil {
		t.Errorf("nobody owns it, %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if _, alive, err := runs.OwnerOf(dir); alive || err != nil {
		t.Errorf("somebody owns it, %v", err)
	}
}

// TestWaitsForStragglers: a resumed rank waits until its earlier process has written its last
// steps.
func TestWaitsForStragglers(t *testing.T) {
	cfg, dir := tiny(), t.TempDir()
	cfg.Epochs = 1
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	straggler, err := runs.OpenSteps(dir, 0, runs.Worker{WorldSize: 1, PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runs.OpenSteps(dir, 0, runs.Worker{WorldSize: 1, PID: 2}); !errors.Is(err, runs.ErrStepsInUse) {
		t.Fatalf("a second writer: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		time.Sleep(300 * time.Millisecond)
		if err := errors.Join(straggler.AppendStep(runs.Step{Epoch: 2, Step: 10}), straggler.Close()); err != nil {
			t.Error(err)
		}
	})
	cfg.Epochs = 2
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: true}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	parts, _, err := runs.ReadStepParts(dir, 0)
	if err != nil || len(parts) != 3 || parts[1].Worker.PID != 1 || len(parts[1].Steps) != 1 || parts[2].Worker.PID != os.Getpid() {
		t.Errorf("parts %+v, %v", parts, err)
	}
	// A run that is canceled does not wait.
	straggler, err = runs.OpenSteps(dir, 0, runs.Worker{WorldSize: 1, PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tr := &Trainer{group: collective.Single(), options: WorkerOptions{Dir: dir}}
	if _, err := tr.openStepsFile(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, runs.ErrStepsInUse) {
		t.Errorf("canceled: %v", err)
	}
	if err := straggler.Close(); err != nil {
		t.Error(err)
	}
}

// TestDisturbed: the run folder records the load of another process, but not the load of the
// run's own processes.
func TestDisturbed(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if _, err := monitor.NewCPUMeter(os.Getpid()).Sample(); err != nil {
		t.Skipf("this machine does not say what its processes use: %v", err)
	}
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	})
	for _, world := range []int{1, 2} {
		dir, port := filepath.Join(t.TempDir(), "run"), findMasterPort(t)
		var all []*workerProcess
		for rank := range world {
			all = append(all, startTrain(t, rank, world, port, "--run", dir, "--epochs", "30", "--set", "data.count=480")) // more than half a second on any machine, so that it is judged
		}
		for _, p := range all {
			if err := p.Wait(); err != nil {
				t.Fatalf("%v: %s", err, &p.out)
			}
		}
		run, err := runs.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(run.Loads) != 30 || run.Info.Load == nil || !run.Info.Load.Disturbed || run.Info.Load.Epochs != 29 {
			t.Fatalf("world of %d: %d rows, load %+v, want 30 and a disturbed run", world, len(run.Loads), run.Info.Load)
		}
		var own, seconds float64
		for _, l := range run.Loads {
			own += l.OwnSeconds
			seconds += l.Seconds
		}
		if own <= 0 || own > 1.1*seconds*float64(run.Loads[0].Cores)+0.1 {
			t.Errorf("world of %d: it used %g s of CPU time in %g s", world, own, seconds)
		}
	}
}
