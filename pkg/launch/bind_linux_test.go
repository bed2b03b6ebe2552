package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/internal/topology"
	"lockstep/pkg/launch/internal/binding"
)

// printCPUs is a script that prints the CPUs on which its process may run, then those of a
// child process.
const printCPUs = `grep Cpus_allowed_list /proc/$$/status | tr -d '\t' | sed 's/^.*:/own /'
sh -c 'grep Cpus_allowed_list /proc/self/status' | tr -d '\t' | sed 's/^.*:/child /'`

// TestWorkersAreBound launches two workers and compares the CPUs of their processes with the
// plan, for each mode.
func TestWorkersAreBound(t *testing.T) {
	ownQueue(t)
	allowed, err := topology.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{BindCores, BindNUMA, BindNone} {
		t.Run(mode, func(t *testing.T) {
			s, out := shell(t, printCPUs, 2)
			s.Bind = mode
			j, err := launch(t, s)
			if err != nil {
				t.Fatal(err)
			}
			b := read(t, filepath.Join(j.Dir(), "script-n2-s1")).Info.Binding
			if b == nil || b.Mode != mode || b.Reason != "" || b.Allowed != topology.FormatCPUList(allowed) {
				t.Fatalf("run.json has the binding %+v", b)
			}
			if log := file(t, j.Dir(), "script-n2-s1", "out.log"); !strings.Contains(log, b.String()) {
				t.Errorf("out.log has no %q:\n%s", b, log)
			}
			if got := j.Status()[0].Binding; got == nil || got.Mode != mode {
				t.Errorf("the job's status has the binding %+v", got)
			}
			want := []string{topology.FormatCPUList(allowed), topology.FormatCPUList(allowed)}
			if mode != BindNone {
				want = b.CPUs
			}
			if mode == BindCores && len(allowed) > 1 && want[0] == want[1] {
				t.Errorf("both workers are bound to %s, although there are CPUs %v", want[0], allowed)
			}
			for rank, list := range want {
				cpus, err := topology.ParseCPUList(list)
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range cpus {
					if !slices.Contains(allowed, id) {
						t.Errorf("rank %d may run on CPU %d, which this process must not use", rank, id)
					}
				}
				for _, who := range []string{"own", "child"} {
					line := fmt.Sprintf("rank %d] %s %s\n", rank, who, list)
					if !strings.Contains(out.String(), line) {
						t.Errorf("no line %q in\n%s", line, out)
					}
				}
			}
		})
	}
	if now, err := topology.AllowedCPUs(); err != nil || !slices.Equal(now, allowed) {
		t.Errorf("afterwards this process may use CPUs %v (%v), want %v", now, err, allowed)
	}
}

// TestThreadsAreBound launches two Go programs and reads the CPUs of every thread while they
// run. The Go runtime has as many processors as the mask has CPUs, unless it is told otherwise.
func TestThreadsAreBound(t *testing.T) {
	ownQueue(t)
	s, out := own(t, "threads", 2)
	s.Bind = BindCores
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := read(t, filepath.Join(j.Dir(), "ddp-n2-s1")).Info.Binding
	if b == nil || len(b.CPUs) != 2 {
		t.Fatalf("run.json has the binding %+v; output:\n%s", b, out)
	}
	found := regexp.MustCompile(`rank (\d)\] (\d+) threads on CPUs (\S+), GOMAXPROCS (\d+)`).FindAllStringSubmatch(out.String(), -1)
	if len(found) != 2 {
		t.Fatalf("want a line of each worker in\n%s", out)
	}
	for _, m := range found {
		rank := int(m[1][0] - '0')
		cpus, err := topology.ParseCPUList(b.CPUs[rank])
		if err != nil {
			t.Fatal(err)
		}
		if m[3] != b.CPUs[rank] || m[4] != fmt.Sprint(len(cpus)) || m[2] == "1" {
			t.Errorf("rank %s has %s threads on CPUs %s and GOMAXPROCS %s, but the plan is %s", m[1], m[2], m[3], m[4], b.CPUs[rank])
		}
	}
}

// TestSecondSweepLeavesBoundCoresAlone launches a sweep while another one is bound to all
// cores: by default the second is not bound.
func TestSecondSweepLeavesBoundCoresAlone(t *testing.T) {
	ownQueue(t)
	allowed, err := topology.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	first, out := shell(t, "echo started; sleep 600", len(allowed))
	first.Bind = BindCores
	j, err := Local(context.Background(), first)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = j.Kill()
		_ = j.Wait(context.Background()) // it was canceled
	}()
	soon(t, "all workers started", func() bool { return strings.Count(out.String(), "started") == len(allowed) })
	s := Sweep{Config: "c", Workers: []int{len(allowed)}}
	b, err := s.PlanBinding(len(allowed))
	if err != nil {
		t.Fatal(err)
	}
	if len(allowed) == 1 { // a process on the only CPU is not told from one that is not bound
		if b.Mode != BindCores && b.Reason == "" {
			t.Errorf("on one CPU the second sweep gets %+v", b)
		}
		return
	}
	if b.Mode != BindNone || b.Reason == "" {
		t.Errorf("the second sweep gets %+v, want none", b)
	}
	if state := binding.ReadCPUState(); !state.HasUnseenProcesses && !strings.Contains(b.Reason, "bound to CPUs "+topology.FormatCPUList(allowed)) && state.Quota >= float64(len(allowed)) && state.JobCPUs == 0 {
		t.Errorf("the reason is %q, want the CPUs %v", b.Reason, allowed)
	}
}

// TestMaskOfLauncher starts a launcher that may use only one CPU, as a cpuset or Slurm restricts
// it: its workers get no other CPU, whatever the topology in /sys has.
func TestMaskOfLauncher(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := topology.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	last := before[len(before)-1:]
	c := exec.Command(self, "launch", t.TempDir(), printCPUs)
	c.Env = append(os.Environ(), "LOCKSTEP_LOCKS="+t.TempDir())
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err = binding.Binding{Lists: [][]int{last}}.WithThreadBinder(func(bind func(int) error) error { return errors.Join(bind(0), c.Start()) })
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // this launcher always ends with 1
	for rank := range 2 {
		if want := fmt.Sprintf("rank %d] own %s\n", rank, topology.FormatCPUList(last)); !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
}

// TestBindingOnAnotherMachine checks that a plan with a CPU that this process may not use is
// refused before a worker starts, and that the thread keeps its CPUs.
func TestBindingOnAnotherMachine(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := topology.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, binding.Binding{Lists: [][]int{before, {1023}}}.CheckApplicable(), "bind to CPUs 1023")
	if now, err := topology.AllowedCPUs(); err != nil || !slices.Equal(now, before) {
		t.Errorf("afterwards the thread may use %v (%v), want %v", now, err, before)
	}
}
