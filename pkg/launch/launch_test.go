package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// transcript is an Output that a test reads while it grows.
type transcript struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// await waits until the transcript contains n matches of text.
func (t *transcript) await(tb testing.TB, text string, n int) {
	tb.Helper()
	for range 2000 {
		if strings.Count(t.String(), text) >= n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	tb.Fatalf("no %d times %q in\n%s", n, text, t)
}

var pidLine = regexp.MustCompile(`pid (\d+)`)

// pids returns the process ids that the workers have printed.
func (t *transcript) pids(tb testing.TB) []int {
	var all []int
	for _, m := range pidLine.FindAllStringSubmatch(t.String(), -1) {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

func gone(tb testing.TB, pids []int) {
	tb.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			tb.Errorf("process %d is still there (%v)", pid, err)
		}
	}
}

// own returns a sweep that runs the test binary as the lockstep command; see TestMain.
func own(t *testing.T, config string, workers ...int) (Sweep, *transcript) {
	t.Helper()
	return sweep(t, Sweep{Config: config, Workers: workers})
}

// shell returns a sweep that runs a shell script.
func shell(t *testing.T, script string, workers ...int) (Sweep, *transcript) {
	t.Helper()
	return sweep(t, Sweep{Command: []string{"/bin/sh", "-c", script}, Workers: workers, Series: "script", Study: "scripts"})
}

func sweep(t *testing.T, s Sweep) (Sweep, *transcript) {
	out := &transcript{}
	s.Logs, s.Output, s.Oversubscribe = t.TempDir(), out, true
	return s, out
}

// parallel lets a test run at the same time as others, and s at the same time as their sweeps.
func parallel(t *testing.T, s *Sweep) {
	t.Parallel()
	s.Now = true
}

// launch runs s to its end.
func launch(t *testing.T, s Sweep) (*Job, error) {
	t.Helper()
	j, err := Local(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return j, j.Wait(context.Background())
}

func wantError(t *testing.T, got error, parts ...string) {
	t.Helper()
	if got == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(got.Error(), p) {
			t.Errorf("error %q does not say %q", got, p)
		}
	}
}

func read(t *testing.T, dir string) runs.Run {
	t.Helper()
	r, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func file(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSweepTrainsEveryRunInTurn(t *testing.T) {
	s, out := own(t, "sums", 1, 2)
	s.Seeds, s.Set = []int64{7, 8}, []string{"batch=4"}
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var names []string
	for _, st := range j.Status() {
		names = append(names, st.Name)
		mean := float64(st.Workers+1) / 2
		if st.State != StateDone || st.Epoch != 2 || st.Epochs != 2 || st.Last.IoU != mean || st.Seconds <= 0 {
			t.Errorf("status %+v, want done after 2 epochs with mean %v", st, mean)
		}
		r := read(t, st.Dir)
		if r.Info.Workers != st.Workers || r.Info.Seed != st.Seed || r.Info.Status != runs.StatusDone {
			t.Errorf("run.json of %s: %+v", st.Name, r.Info)
		}
		if log := file(t, st.Dir, "worker-0.log"); !strings.Contains(log, fmt.Sprintf("seed %d, threads 1, set \"batch=4\"\nepoch 1 mean %v\n", st.Seed, mean)) {
			t.Errorf("worker-0.log of %s:\n%s", st.Name, log)
		}
	}
	// Worker counts within seeds.
	if want := []string{"ddp-n1-s7", "ddp-n2-s7", "ddp-n1-s8", "ddp-n2-s8"}; !slices.Equal(names, want) {
		t.Errorf("runs %v, want %v", names, want)
	}
	// (1+2)/2 on both ranks: the sum really went between two processes.
	for _, line := range []string{"[n1 s7 rank 0] epoch 2 mean 1\n", "[n2 s8 rank 0] epoch 2 mean 1.5\n", "[n2 s8 rank 1] epoch 2 mean 1.5\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	if j.Dir() != filepath.Join(s.Logs, "sums") {
		t.Errorf("folder %s", j.Dir())
	}
	gone(t, out.pids(t))

	// Finished runs are not run again, with Resume or without.
	for _, s.Resume = range []bool{false, true} {
		before := out.String()
		again, err := launch(t, s)
		if err != nil || out.String() != before+"folder of the runs: "+j.Dir()+"\n4 runs done; nothing to do\n" {
			t.Errorf("%v; a finished run was started again:\n%s", err, out.String()[len(before):])
		}
		if st := again.Status(); len(st) != 4 || st[3].State != StateDone || st[3].Epoch != 2 {
			t.Errorf("the finished runs are not shown: %+v", st)
		}
	}
	s.Set = []string{"batch=5"}
	_, err = Local(context.Background(), s)
	wantError(t, err, "launch sums: run ddp-n1-s7: ", "contains a run of another config", "set is batch=4 there, batch=5 in this sweep", "--series")
	s.Set, s.Epochs = []string{"batch=4"}, 3 // more epochs are no other config
	s.Resume = false
	_, err = Local(context.Background(), s)
	wantError(t, err, "already contains an unfinished run: resume it", "Resume, --resume")
}

// TestRunWithRemovedOption: a sweep does not continue a run whose strategy has an option that was
// removed.
func TestRunWithRemovedOption(t *testing.T) {
	recorded := runs.Info{Config: map[string]any{"strategy": map[string]any{"name": "paramserver", "backup_workers": 1}}}
	r := &PlannedRun{Name: "paramserver-n2-s1", Dir: "logs/a", Config: map[string]any{"strategy": "paramserver"}}
	err := (&SweepPlan{}).checkExistingConfig(r, recorded)
	wantError(t, err, "run paramserver-n2-s1: logs/a: ", "strategy.backup_workers=1 was removed from Lockstep")
}

// TestCheckBeforeAnythingStarts: if the workers' command rejects the largest worker count,
// Local returns its error and creates no folder.
func TestCheckBeforeAnythingStarts(t *testing.T) {
	s, _ := own(t, "wrong", 1, 3, 2)
	t.Setenv("RANK", "9") // the check is of no rank
	t.Setenv("WORLD_SIZE", "")
	_, err := Local(context.Background(), s)
	wantError(t, err, "launch wrong: ", "3 workers are wrong")
	var usage *train.UsageError
	if !errors.As(err, &usage) {
		t.Errorf("%v is no usage error", err)
	}
	if left, err := os.ReadDir(s.Logs); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

func TestFailingRankEndsTheRunAndIsNamed(t *testing.T) {
	for _, tt := range []struct {
		config string
		want   []string
	}{
		{"fails", []string{"run ddp-n3-s1: ", "rank 1 ended with exit code 1; its last lines:", "worker: loss is not finite"}},
		{"killed", []string{"run ddp-n3-s1: rank 1 was killed by signal 9 (SIGKILL)", "rank 0 ended with exit code 1", "rank 1 is gone: its process"}},
		{"first-killed", []string{"run ddp-n3-s1: rank 0 was killed by signal 9 (SIGKILL)"}},
	} {
		t.Run(tt.config, func(t *testing.T) {
			s, out := own(t, tt.config, 3, 1)
			parallel(t, &s)
			j, err := launch(t, s)
			wantError(t, err, tt.want...)
			st := j.Status()
			if st[0].State != StateFailed || st[0].Err == nil || st[1].State != StateNotStarted {
				t.Errorf("status %+v, want that the first failed and the second was not started", st)
			}
			r := read(t, st[0].Dir) // it reads, however the run ended
			if r.Info.Status != runs.StatusFailed || r.Info.Error == "" || len(r.Epochs) != 1 {
				t.Errorf("run folder: %+v", r)
			}
			gone(t, out.pids(t))

			// What stopped in the middle can be resumed.
			s.Config, s.Resume, s.Study = "sums", true, tt.config
			if _, err := launch(t, s); err != nil {
				t.Errorf("resume: %v", err)
			}
			if n := len(pidLine.FindAllString(file(t, st[0].Dir, "worker-0.log"), -1)); n != 2 {
				t.Errorf("worker-0.log has %d starts, want both", n)
			}
		})
	}
}

func TestCancelEndsWorkersInOrder(t *testing.T) {
	s, out := own(t, "waits", 2)
	parallel(t, &s)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	j, err := Local(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "epoch 1 mean", 2)

	short, end := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer end()
	wantError(t, j.Wait(short), "wait for waits: context deadline exceeded; the sweep continues")

	cancel()
	err = j.Watch(ctx) // does not return before all have ended
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantError(t, err, "run ddp-n2-s1: context canceled")
	if strings.Count(out.String(), "ends in order") != 2 {
		t.Errorf("workers were not asked:\n%s", out)
	}
	if pids := out.pids(t); len(pids) != 2 {
		t.Errorf("pids %v", pids)
	} else {
		gone(t, pids)
	}
	if st := j.Status()[0]; st.State != StateCanceled {
		t.Errorf("status %+v", st)
	}
}

// TestNoProcessIsLeft: a worker that ignores the request to end is killed, and so is a
// process that it started in the background.
func TestNoProcessIsLeft(t *testing.T) {
	s, out := shell(t, `trap '' TERM; (trap '' TERM; echo pid $$ up; sleep 600) & echo pid $! up; wait; sleep 600`, 2)
	parallel(t, &s)
	s.gracePeriod = 200 * time.Millisecond
	j, err := Local(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "up\n", 4)
	if err := j.Cancel(); err != nil {
		t.Error(err)
	}
	wantError(t, j.Wait(context.Background()), "run script-n2-s1: context canceled")
	pids := out.pids(t)
	// A grandchild is not ours to wait for: its new parent takes a moment.
	for range 200 {
		if !slices.ContainsFunc(pids, running) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if slices.ContainsFunc(pids, running) {
		t.Errorf("of processes %v some still run", pids)
	}
}

// running reports whether a process is running. A zombie is not.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	return !strings.Contains(string(text), ") Z ")
}

func TestForeignCommandGetsRanksFolderAndTiming(t *testing.T) {
	s, out := shell(t, `echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, $MASTER_ADDR:$MASTER_PORT"
echo "threads $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $GOMAXPROCS, seed $LOCKSTEP_SEED, run $LOCKSTEP_RUN" >&2
[ ${#LOCKSTEP_TOKEN} -ge 20 ] && echo "token ok"
printf 'no end of line'`, 2)
	s.Threads, s.Seeds = 3, []int64{5}
	t.Setenv("RANK", "9") // a launcher inside another one
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	st := j.Status()[0]
	for rank := range 2 {
		for _, want := range []string{
			fmt.Sprintf("[n2 s5 rank %d] rank %d of 2, local %d of 2, 127.0.0.1:", rank, rank, rank),
			fmt.Sprintf("[n2 s5 rank %d] threads 3 3 3, seed 5, run %s\n", rank, st.Dir),
			fmt.Sprintf("[n2 s5 rank %d] token ok\n", rank),
			fmt.Sprintf("[n2 s5 rank %d] no end of line\n", rank),
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	}
	r := read(t, st.Dir)
	if r.Info.Series != "script" || r.Info.Study != "scripts" || r.Info.Workers != 2 || r.Info.ThreadsPerWorker != 3 ||
		r.Info.Status != runs.StatusDone || !slices.Equal(r.Info.Command, s.Command) || r.Info.Host.Cores < 1 {
		t.Errorf("run.json: %+v", r.Info)
	}
	if len(r.Epochs) != 0 || !(r.WallSeconds > 0) {
		t.Errorf("%g s of wall time, epochs: %+v", r.WallSeconds, r.Epochs)
	}
	if st.Line != "no end of line" || st.Lines != 4 || st.toRow().Note != "no end of line" {
		t.Errorf("status: %+v", st)
	}
}

func TestForeignFailureIsInTheFolder(t *testing.T) {
	s, _ := shell(t, `echo working; if [ $RANK = 1 ]; then echo no such file >&2; exit 3; fi; sleep 600`, 2)
	parallel(t, &s)
	j, err := launch(t, s)
	wantError(t, err, "run script-n2-s1: rank 1 ended with exit code 3; its last lines:\n    working\n    no such file")
	if strings.Contains(err.Error(), "rank 0") {
		t.Errorf("rank 0 did nothing wrong: %v", err)
	}
	r := read(t, j.Status()[0].Dir)
	if r.Info.Status != runs.StatusFailed || !strings.Contains(r.Info.Error, "exit code 3") || len(r.Epochs) != 0 {
		t.Errorf("run folder: %+v", r)
	}
	s.Resume = true
	_, err = Local(context.Background(), s)
	wantError(t, err, "is unfinished, and only runs of a config can be resumed")
}

// TestStartThatFailsHalfway: rank 1 cannot start, so rank 0 must end.
func TestStartThatFailsHalfway(t *testing.T) {
	s, out := shell(t, `echo pid $$ up; exec sleep 600`, 2)
	parallel(t, &s)
	if err := os.MkdirAll(filepath.Join(s.Logs, "scripts", "script-n2-s1", "worker-1.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := launch(t, s)
	wantError(t, err, "run script-n2-s1: open log of rank 1: ", "is a directory")
	gone(t, out.pids(t))
	if r := read(t, j.Status()[0].Dir); r.Info.Status != runs.StatusFailed {
		t.Errorf("run.json: %+v", r.Info)
	}
}

func TestTimeout(t *testing.T) {
	s, _ := shell(t, `sleep 600`, 1)
	parallel(t, &s)
	s.Timeout = 100 * time.Millisecond
	j, err := launch(t, s)
	wantError(t, err, "run script-n1-s1: time-out of 100ms exceeded")
	if st := j.Status()[0]; st.State != StateFailed {
		t.Errorf("status %+v", st)
	}
}

// TestPortTaken: another process has taken the port of the run before rank 0 listens.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	s, _ := shell(t, fmt.Sprintf(`[ $RANK = 1 ] && sleep 600; MASTER_PORT=%d exec %s train --config sums --run "$LOCKSTEP_RUN/own"`, port, self), 2)
	parallel(t, &s)
	_, err = launch(t, s)
	wantError(t, err, "rank 0 ended with exit code 1", fmt.Sprintf("port %d on 127.0.0.1 is in use", port), "choose another MASTER_PORT")
}

func TestUnusableLogs(t *testing.T) {
	s, _ := own(t, "sums", 1)
	s.Logs = filepath.Join(s.Logs, "file", "logs")
	if err := os.WriteFile(filepath.Dir(s.Logs), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Local(context.Background(), s)
	wantError(t, err, "launch sums: create folder: ", "not a directory; choose a folder that you may write (Logs, --logs, or LOCKSTEP_LOGS)")
}

func TestValidate(t *testing.T) {
	good := Sweep{Config: "c", Workers: []int{1, 2}}
	for _, tt := range []struct {
		name   string
		change func(*Sweep)
		err    string
	}{
		{"good", func(*Sweep) {}, ""},
		{"no workers", func(s *Sweep) { s.Workers = nil }, "no workers: give at least one worker count (Workers, --workers 1,2)"},
		{"zero workers", func(s *Sweep) { s.Workers = []int{1, 0} }, "got 0 workers: use at least 1"},
		{"twice", func(s *Sweep) { s.Workers = []int{1, 1} }, "duplicate worker count 1"},
		{"seeds twice", func(s *Sweep) { s.Seeds = []int64{3, 3} }, "duplicate seed 3"},
		{"too many workers", func(s *Sweep) { s.Workers = []int{4} }, "4 workers × 1 thread = 4, but this machine has 2 cores: use fewer, or allow it with Oversubscribe (--oversubscribe)"},
		{"too many threads", func(s *Sweep) { s.Threads = 2 }, "2 workers × 2 threads = 4, but this machine has 2 cores"},
		{"allowed", func(s *Sweep) { s.Threads, s.Oversubscribe = 2, true }, ""},
		{"negative threads", func(s *Sweep) { s.Threads = -1 }, "-1 threads per worker"},
		{"nothing", func(s *Sweep) { s.Config = "" }, "no config and no command"},
		{"both", func(s *Sweep) { s.Command = []string{"python"} }, "give only one of them"},
		{"set", func(s *Sweep) { s.Set = []string{"batch"} }, `set "batch": expected key=value`},
		{"set seed", func(s *Sweep) { s.Set = []string{"seed=3"} }, "use Seeds (--seeds)"},
		{"global batch", func(s *Sweep) { s.GlobalBatch = 6 }, ""},
		{"negative global batch", func(s *Sweep) { s.GlobalBatch = -2 }, "got a global batch of -2: use at least 1"},
		{"odd global batch", func(s *Sweep) { s.GlobalBatch = 7 }, "a global batch of 7 samples cannot be divided among 2 workers: use a multiple of each worker count"},
		{"small global batch", func(s *Sweep) { s.GlobalBatch = 1 }, "a global batch of 1 sample cannot be divided among 2 workers"},
		{"two batches", func(s *Sweep) { s.GlobalBatch, s.Set = 4, []string{"batch=2"} }, "give only one of them"},
		{"global batch of a command", func(s *Sweep) { s.Config, s.Command, s.GlobalBatch, s.Epochs = "", []string{"x"}, 4, 3 }, "Epochs (--epochs) and GlobalBatch (--global-batch) cannot be used with the command x"},
		{"series", func(s *Sweep) { s.Series = "../x" }, `invalid name "../x" of study or series`},
		{"epochs", func(s *Sweep) { s.Epochs = -1 }, "-1 epochs"},
		{"time-out", func(s *Sweep) { s.Timeout = -1 }, "invalid time-out -1ns"},
		{"data of a command", func(s *Sweep) { s.Config, s.Command, s.Data = "", []string{"x"}, "d" }, "Data (--data) cannot be used with the command x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := good
			tt.change(&s)
			err := s.validateForCores(2)
			if tt.err != "" {
				wantError(t, err, tt.err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	_, err := Local(context.Background(), Sweep{Command: []string{"no-such-program"}, Workers: []int{1}, Logs: t.TempDir()})
	wantError(t, err, "launch no-such-program: ", "not found")
}

func TestDefaults(t *testing.T) {
	s := Sweep{Config: "configs/my unet.yaml"}.withDefaults()
	if s.Study != "my-unet" || s.Series != "ddp" || s.Threads != 1 || !slices.Equal(s.Seeds, []int64{1}) {
		t.Errorf("defaults: %+v", s)
	}
	s = Sweep{Config: "unet2d-cells", Set: []string{"strategy=other"}}.withDefaults()
	if s.Series != "other" {
		t.Errorf("series %q, want the name of the strategy", s.Series)
	}
}
