package monitor

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeProcess is a process in a simulated /proc; its times are in ticks.
type fakeProcess struct {
	parent, start          int
	user, system           int // its own
	childUser, childSystem int // of children that it waited for
	name                   string
	threads                int // 0: 1; the children are those of the last thread
}

// fakeProc writes a simulated /proc with the given processes and a machine of two
// cores with the given ticks: user, nice, system, idle, iowait, irq, softirq, steal,
// guest and guest_nice, as in proc(5).
func fakeProc(t *testing.T, dir string, cpu [10]int, processes map[int]fakeProcess) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	line := strings.Trim(fmt.Sprint(cpu), "[]")
	write("stat", "cpu  "+line+"\ncpu0 "+line+"\ncpu1 "+line+"\nintr 5\n")
	for pid, p := range processes {
		write(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194560 1 2 3 4 %d %d %d %d 20 0 1 0 %d 1000 5\n",
			pid, p.name, p.parent, p.user, p.system, p.childUser, p.childSystem, p.start))
		threads := max(1, p.threads)
		for i := range threads {
			var children []string
			for child, c := range processes {
				if c.parent == pid && i == threads-1 {
					children = append(children, strconv.Itoa(child))
				}
			}
			write(fmt.Sprintf("%d/task/%d/children", pid, pid+i), strings.Join(children, " "))
		}
	}
}

// TestCPUTree: ended children count once, whichever process waited for them.
func TestCPUTree(t *testing.T) {
	dir := t.TempDir()
	c := NewCPUMeter(10, 12) // 12 descends from 10
	c.proc = dir
	sample := func(cpu [10]int, processes map[int]fakeProcess) CPUTimes {
		t.Helper()
		fakeProc(t, dir, cpu, processes)
		got, err := c.Sample()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := func(got CPUTimes, busy, steal, tree float64) {
		t.Helper()
		if math.Abs(got.Busy-busy) > 1e-9 || math.Abs(got.Steal-steal) > 1e-9 || math.Abs(got.Tree-tree) > 1e-9 || got.Cores != 2 {
			t.Errorf("got %+v, want %g s busy, %g s stolen, %g s of the tree, 2 cores", got, busy, steal, tree)
		}
	}
	launcher := fakeProcess{parent: 1, start: 100, user: 10, childUser: 300, childSystem: 100} // 4 s of an earlier run
	worker := fakeProcess{parent: 10, start: 200, user: 50, system: 50, threads: 3, name: "a (b) c"}
	other := fakeProcess{parent: 1, start: 50, user: 9999, name: "other"}
	loader := fakeProcess{parent: 12, start: 210, user: 200}
	// (20 + 1 + 10 s busy; irq, softirq and the guests' times are not added)
	got := sample([10]int{2000, 100, 1000, 5000, 50, 7, 8, 30, 400, 0}, map[int]fakeProcess{10: launcher, 12: worker, 20: loader, 30: other})
	want(got, 31, 0.3, 4.1+1+2)
	if math.Abs(got.Total-81.95) > 1e-9 { // without the guests'
		t.Errorf("%g s in total", got.Total)
	}

	// The loader has used 1 s more and has ended; the worker has waited for it.
	worker.childUser = 300
	want(sample([10]int{2200}, map[int]fakeProcess{10: launcher, 12: worker, 30: other}), 22, 0, 4.1+1+3)

	// The worker starts a child, ends, and so does not wait for it: init adopts
	// it. The launcher has waited for the worker: a second process of that number
	// is not its, and root 12 is gone.
	c = NewCPUMeter(10)
	c.proc = dir
	left := fakeProcess{parent: 12, start: 400, user: 500}
	want(sample([10]int{2300}, map[int]fakeProcess{10: launcher, 12: worker, 40: left, 30: other}), 23, 0, 4.1+1+3+5)
	launcher.childUser += 400 // the worker's 1 s and its child's 3 s
	left.parent, left.user = 1, 700
	want(sample([10]int{2400}, map[int]fakeProcess{10: launcher, 12: {parent: 1, start: 450, user: 800}, 40: left, 30: other}), 24, 0, 8.1+7)
	// The adopted child ends: its time does not vanish.
	want(sample([10]int{2500}, map[int]fakeProcess{10: launcher, 30: other}), 25, 0, 8.1+7)
	// … and another process may get its number.
	want(sample([10]int{2600}, map[int]fakeProcess{10: launcher, 30: other, 40: {parent: 1, start: 900, user: 50}}), 26, 0, 8.1+7)
}

func TestCPUUnknown(t *testing.T) {
	dir := t.TempDir()
	root := fakeProcess{parent: 1, start: 100}
	for name, c := range map[string]struct {
		damage func()
		want   string
	}{
		"no proc":         {func() { _ = os.RemoveAll(dir) }, "no such file"},
		"another stat":    {func() { write(t, dir, "stat", "disk 1 2\n") }, "want cpu and at least 8 numbers"},
		"not a number":    {func() { write(t, dir, "stat", "cpu a b c d e f g h\n") }, `parsing "a"`},
		"no cores":        {func() { write(t, dir, "stat", "cpu 1 2 3 4 5 6 7 8\n") }, "no line for a core"},
		"no process":      {func() { _ = os.RemoveAll(filepath.Join(dir, "10")) }, "process 10"},
		"no children":     {func() { _ = os.Remove(filepath.Join(dir, "10/task/10/children")) }, "children: no such file"},
		"a short process": {func() { write(t, dir, "10/stat", "10 (a) S 1\n") }, "fields after the process name"},
		"another process": {func() { fakeProc(t, dir, [10]int{1}, map[int]fakeProcess{10: {parent: 1, start: 101}}) }, "process has ended"},
	} {
		fakeProc(t, dir, [10]int{1}, map[int]fakeProcess{10: root})
		cpu := NewCPUMeter(10)
		cpu.proc = dir
		if _, err := cpu.Sample(); err != nil {
			t.Fatal(err)
		}
		c.damage()
		if _, err := cpu.Sample(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		m := &LoadMeter{cpu: cpu}
		m.Begin()
		if l, ok := m.End(1); ok {
			t.Errorf("%s: load %+v is claimed", name, l)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLoadMeter: all CPU time that the tree has not used counts as that of other processes.
func TestLoadMeter(t *testing.T) {
	dir := t.TempDir()
	m := NewLoadMeter(10)
	m.cpu.proc = dir
	fakeProc(t, dir, [10]int{1000, 0, 0, 0, 0, 0, 0, 40}, map[int]fakeProcess{10: {start: 1, user: 100}})
	m.Begin()
	fakeProc(t, dir, [10]int{1500, 100, 0, 0, 0, 0, 0, 50}, map[int]fakeProcess{10: {start: 1, user: 450}})
	l, ok := m.End(3)
	if !ok || l.Epoch != 3 || l.Cores != 2 || l.OwnSeconds != 3.5 || math.Abs(l.OtherSeconds-2.5) > 1e-9 || math.Abs(l.StealSeconds-0.1) > 1e-9 || l.Seconds <= 0 {
		t.Errorf("load %+v, %v", l, ok)
	}
}

// TestCPUOfThisMachine: a child that has ended counts in its parent's tree; a process that
// is not watched does not count.
func TestCPUOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc of Linux")
	}
	watched, rest := NewCPUMeter(os.Getpid()), exec.Command("sleep", "60")
	if err := rest.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = rest.Process.Kill()
		_ = rest.Wait()
	})
	outside := NewCPUMeter(rest.Process.Pid)
	before, err := watched.Sample()
	if err != nil {
		t.Skipf("this kernel does not list children: %v", err)
	}
	idle, err := outside.Sample()
	if err != nil {
		t.Fatal(err)
	}
	busy := exec.Command("sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done")
	if err := busy.Run(); err != nil {
		t.Fatal(err)
	}
	used := (busy.ProcessState.UserTime() + busy.ProcessState.SystemTime()).Seconds()
	after, err := watched.Sample()
	if err != nil {
		t.Fatal(err)
	}
	still, err := outside.Sample()
	if err != nil {
		t.Fatal(err)
	}
	const rounding = 0.05 // 5 ticks: of two processes, user and system, at both ends
	if got := after.Tree - before.Tree; got < used-rounding {
		t.Errorf("the tree used %g s, its child alone %g s", got, used)
	}
	if got := still.Tree - idle.Tree; got > rounding {
		t.Errorf("a sleeping process used %g s", got)
	}
	if after.Total <= before.Total || after.Cores < 1 {
		t.Errorf("from %+v to %+v", before, after)
	}
}

// BenchmarkCPUSample measures one sample with four children. Each epoch takes two samples.
func BenchmarkCPUSample(b *testing.B) {
	for range 4 {
		child := exec.Command("sleep", "600")
		if err := child.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = child.Process.Kill()
			_ = child.Wait()
		})
	}
	c := NewCPUMeter(os.Getpid())
	time.Sleep(10 * time.Millisecond)
	for b.Loop() {
		if _, err := c.Sample(); err != nil {
			b.Fatal(err)
		}
	}
}
