package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
	"lockstep/pkg/weights"
)

// tinyConfig is a run of some tens of milliseconds, most of which it writes.
const tinyConfig = `name: tiny
model: {base: 2, depth: 1}
data: {count: 8, height: 16, width: 16, test_images: 2, augment: {flip: true}}
batch: 1
epochs: 8
`

// place is where a test has runs of the lockstep command, and what it must not leave.
type place struct {
	t      *testing.T
	dir    string
	logs   string
	temp   string
	config string
	shared []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	p.logs, p.temp, p.config = filepath.Join(p.dir, "logs"), filepath.Join(p.dir, "tmp"), filepath.Join(p.dir, "tiny.yaml")
	for _, dir := range []string{p.logs, p.temp} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(p.config, []byte(tinyConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	p.shared = sharedFiles(t)
	return p
}

// command is a lockstep command that has its logs and temporary files here.
func (p *place) command(out *bytes.Buffer, args ...string) *exec.Cmd {
	p.t.Helper()
	binary, err := exec.LookPath("lockstep")
	if err != nil {
		p.t.Fatal(err)
	}
	c := exec.Command(binary, args...)
	c.Env = append(os.Environ(), "LOCKSTEP_BIN="+binary, "LOCKSTEP_LOGS="+p.logs, "LOCKSTEP_LOCKS="+p.locks(), "TMPDIR="+p.temp)
	c.Stdout, c.Stderr = out, out
	c.WaitDelay = 20 * time.Second
	return c
}

// locks is the folder in which the sweeps of this place find each other.
func (p *place) locks() string { return filepath.Join(p.dir, "locks") }

// launch is the command that trains one run.
func (p *place) launch(out *bytes.Buffer, workers int, seed int64, more ...string) *exec.Cmd {
	return p.command(out, append([]string{
		"launch", "--config", p.config, "--oversubscribe",
		"--workers", strconv.Itoa(workers), "--seeds", strconv.FormatInt(seed, 10),
	}, more...)...)
}

func (p *place) run(workers int, seed int64) string {
	return filepath.Join(p.logs, "tiny", fmt.Sprintf("ddp-n%d-s%d", workers, seed))
}

// sharedFiles is our files in /dev/shm.
func sharedFiles(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/dev/shm/lockstep-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// processes are those, besides zombies, that have this place in their environment.
func (p *place) processes() (pids []int) {
	p.t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, path := range found {
		env, err := os.ReadFile(path) // empty for a zombie
		if err == nil && bytes.Contains(env, []byte(p.dir)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				p.t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// variable is one of a process's environment.
func variable(pid int, name string) string {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for kv := range strings.SplitSeq(string(env), "\x00") {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// leavesNothing fails where a process, a port, shared memory or a temporary
// file is left.
func (p *place) leavesNothing(ports []string) {
	p.t.Helper()
	// Those that the kernel ends take a moment.
	for range 500 {
		if len(p.processes()) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if left := p.processes(); len(left) > 0 {
		p.t.Errorf("processes %v are left", left)
	}
	for _, port := range ports {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			p.t.Errorf("port %s is still listened on", port)
			_ = c.Close()
		}
	}
	entries, err := os.ReadDir(p.temp)
	if err != nil {
		p.t.Error(err)
	}
	for _, e := range entries {
		p.t.Errorf("temporary file %s is left", e.Name())
	}
	// Another program's may come and go.
	isOurs := func(f string) bool { return !slices.Contains(p.shared, f) }
	for range 200 {
		if !slices.ContainsFunc(sharedFiles(p.t), isOurs) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.t.Errorf("of shared memory %v some is left", sharedFiles(p.t))
}

// released waits until no process holds the lock of a run. A process that was
// killed loses its environment, by which processes finds it, before its files.
func released(t *testing.T, dir string) {
	t.Helper()
	for range 500 {
		_, alive, err := runs.OwnerOf(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !alive {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the lock of %s is still held", dir)
}

// pendingIn are the half-written files in a run folder.
func pendingIn(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if base := filepath.Base(path); strings.HasPrefix(base, ".") && base != ".launch" { // where launch keeps its sweeps
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

// final is what must come out the same: the bits of the last checkpoint, and
// what the epochs and the test measured, times left out.
func final(t *testing.T, dir string) string {
	t.Helper()
	r, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Info.Status != runs.StatusDone || r.Info.Error != "" || len(r.Problems) > 0 || r.Info.Test == nil {
		t.Errorf("%s: status %q, error %q, problems %v", dir, r.Info.Status, r.Info.Error, r.Problems)
		return ""
	}
	var b strings.Builder
	for _, e := range r.Epochs {
		fmt.Fprintln(&b, e.Epoch, e.Samples, e.PaddingSamples, e.TrainLoss, e.ValLoss, e.IoU, e.Dice, e.LearningRate)
	}
	test := *r.Info.Test
	test.Seconds = 0
	fmt.Fprintf(&b, "%+v\n", test)
	for rank := range r.Info.Workers {
		_, steps, problems, err := runs.ReadSteps(dir, rank)
		if err != nil || len(problems) > 0 {
			t.Error(err, problems)
		}
		for _, s := range steps {
			fmt.Fprintln(&b, rank, s.Epoch, s.Step, s.Samples, s.Loss)
		}
	}
	file, err := weights.Read(filepath.Join(dir, test.Checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range file.Tensors {
		fmt.Fprint(&b, w.Name)
		for _, v := range w.Float64s() {
			fmt.Fprintf(&b, " %x", math.Float64bits(v))
		}
	}
	return b.String()
}

// difference is the first line that two texts do not share.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d is %.200q, want %.200q", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

var (
	killCount = flag.Int("kills", 18, "how often TestKilledRunsResume kills a process")
	killSeed  = flag.Uint64("killseed", 5, "seed of the moments at which TestKilledRunsResume kills")
)

// TestKilledRunsResume kills runs at random moments: one of their processes, or
// the launcher, by kill -9. After each kill the folder reads, and no process,
// port or shared memory is left. A run that was killed and resumed ends with the
// bits of one that was left alone. The first run has one worker; the others have
// two, and each another strategy and transport.
func TestKilledRunsResume(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const each = 2 // kills of a run: with 18 kills, there is a run of each kind
	kills := *killCount
	p := newPlace(t)
	kinds := []struct {
		workers, processes int
		strategy           string
	}{
		{1, 1, "ddp"},
		{2, 2, "ddp"},
		{2, 2, "horovod"},
		{2, 1, "mirrored"},
		{2, 1, "{name: multiworker, replicas: 2}"},
		{2, 2, "{name: local_sgd, steps: 2}"},
		{2, 2, "zero1"},
		{2, 2, "paramserver"},
		{2, 2, "pipeline"},
	}
	want, duration := map[int]string{}, map[int]time.Duration{} // by index of kinds
	for i, k := range kinds {
		var out bytes.Buffer
		begin := time.Now()
		name := fmt.Sprint("kind", i)
		if err := p.launch(&out, k.workers, 1, "--study", "whole", "--series", name, "--set", "strategy="+k.strategy).Run(); err != nil {
			t.Fatalf("%s: %v\n%s", k.strategy, err, &out)
		}
		duration[i] = time.Since(begin)
		want[i] = final(t, filepath.Join(p.logs, "whole", fmt.Sprintf("%s-n%d-s1", name, k.workers)))
	}
	rng := rand.New(rand.NewPCG(2, *killSeed))
	done, launchers, early, middle := 0, 0, 0, 0
	transports := []string{"shm", "unix", "tcp"}
	for series := 0; done < kills; series++ {
		kind := series % len(kinds)
		k := kinds[kind]
		t.Setenv("LOCKSTEP_COLLECTIVE", transports[series%len(transports)])
		name := fmt.Sprintf("series%d", series)
		steps := fmt.Sprintf("checkpoint.every_steps=%d", series%2*2) // none, or every 2 of 6 or 3 an epoch
		dir := filepath.Join(p.logs, "tiny", fmt.Sprintf("%s-n%d-s1", name, k.workers))
		launch := func(out *bytes.Buffer) *exec.Cmd {
			return p.launch(out, k.workers, 1, "--study", "tiny", "--series", name, "--set", "strategy="+k.strategy, "--set", steps, "--resume")
		}
		for killed := 0; killed < each; {
			var out bytes.Buffer
			_, missing := os.Stat(dir)
			c, begin := launch(&out), time.Now()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			if killed%2 == 1 { // in the middle of the run: on a fast machine, most of the time is the start
				awaitEpochOrEnd(dir, ended)
				time.Sleep(time.Duration(rng.Float64() * float64(10*time.Millisecond)))
			} else {
				time.Sleep(time.Duration(rng.Float64() * float64(duration[kind])))
			}
			victim := rng.IntN(k.processes+1) - 1 // a process of the run, or the launcher
			hit, ports := p.kill(c.Process.Pid, victim)
			err := <-ended
			if !hit || err == nil { // it was over, or not yet there
				if err != nil {
					t.Fatalf("undisturbed: %v\n%s", err, &out)
				}
				if missing != nil { // a whole run, which was shorter: the machine was busier before
					duration[kind] = time.Since(begin)
				}
				if r, err := runs.Read(dir); err == nil && r.Info.Status == runs.StatusDone {
					break // this run is done; what is left of its kills goes to the next
				}
				continue
			}
			killed++
			done++
			if victim < 0 {
				launchers++
			}
			p.leavesNothing(ports)
			released(t, dir)
			r, err := runs.Read(dir)
			switch {
			case errors.Is(err, fs.ErrNotExist): // killed before there was a run
				early++
				continue
			case err != nil:
				t.Fatalf("after kill %d: %v\n%s", done, err, &out)
			}
			if victim >= 0 && (r.Info.Status == runs.StatusRunning || r.Info.Status == runs.StatusKilled) {
				t.Errorf("run.json says that the run goes on, after kill %d", done)
			}
			for i, e := range r.Epochs {
				if e.Epoch != i+1 {
					t.Errorf("row %d is of epoch %d, after kill %d", i+1, e.Epoch, done)
				}
			}
			if len(r.Epochs) > 0 {
				middle++
			}
			if _, err := scaling.Read(dir); err != nil {
				t.Errorf("after kill %d: %v", done, err)
			}
			if victim >= 0 {
				if left := pendingIn(t, dir); len(left) > 0 {
					t.Errorf("%v are left, though the launcher lived", left)
				}
			}
		}
		var out bytes.Buffer
		if err := launch(&out).Run(); err != nil {
			t.Fatalf("%s: resume after the kills: %v\n%s", k.strategy, err, &out)
		}
		if got := final(t, dir); got != want[kind] {
			t.Errorf("%s (%s) ended otherwise than a run that was left alone: %s", dir, k.strategy, difference(got, want[kind]))
		}
		if left := pendingIn(t, dir); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
	if _, err := scaling.Read(filepath.Join(p.logs, "tiny")); err != nil {
		t.Error(err)
	}
	p.leavesNothing(nil)
	t.Logf("%d kills: %d of the launcher, %d before there was a run, %d after its first epoch", done, launchers, early, middle)
	if middle < kills/5 {
		t.Errorf("only %d kills in the middle of a run: the moments are badly chosen", middle)
	}
}

// awaitEpochOrEnd waits until the run in dir has one more epoch, or until its launcher has ended.
func awaitEpochOrEnd(dir string, ended <-chan error) {
	lines := func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "epochs.csv")) // absent at first
		return bytes.Count(text, []byte("\n"))
	}
	for before := max(1, lines()); len(ended) == 0 && lines() <= before; { // the first line is the head
		time.Sleep(time.Millisecond)
	}
}

// kill kills rank victim, or the launcher itself where it is negative.
func (p *place) kill(launcher, victim int) (hit bool, ports []string) {
	for _, pid := range p.processes() {
		rank := variable(pid, "RANK")
		if rank != "" {
			ports = append(ports, variable(pid, "MASTER_PORT"))
		}
		if pid == launcher && victim < 0 || pid != launcher && rank == strconv.Itoa(victim) {
			hit = syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	return hit, ports
}
