package launch

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// planTestRuns returns the planned runs of s, which has its defaults.
func planTestRuns(t *testing.T, s Sweep) []PlannedRun {
	t.Helper()
	p := &SweepPlan{On: OnLocal, Dir: "logs", Sweep: s, Binary: "lockstep"}
	if err := p.planRuns(); err != nil {
		t.Fatal(err)
	}
	return p.Runs
}

// newTestPlan returns the plan of a run of unet2d-cells with the given strategy.
func newTestPlan(t *testing.T, workers int, method strategy.Config) (*SweepPlan, *PlannedRun) {
	t.Helper()
	s := Sweep{Config: "unet2d-cells", Workers: []int{workers}, Oversubscribe: true}.withDefaults()
	p := &SweepPlan{On: OnLocal, Dir: "logs", Sweep: s, Runs: planTestRuns(t, s)}
	r := &p.Runs[0]
	err := r.setConfig(map[string]any{
		"engine":   map[string]any{"device": "cpu"},
		"strategy": map[string]any{"name": cmp.Or(method.Name, "ddp"), "replicas": float64(method.Replicas)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// rankOf returns what a worker reads from its environment.
func rankOf(t *testing.T, env []string) rendezvous.Env {
	t.Helper()
	e, err := rendezvous.FromEnv(func(name string) string {
		for _, kv := range slices.Backward(env) { // the last entry counts
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestProcessesOfReplicas: the number of processes of a run, and the rank, source and
// arguments of each.
func TestProcessesOfReplicas(t *testing.T) {
	t.Setenv("OMPI_COMM_WORLD_RANK", "0") // lockstep launch within mpirun
	t.Setenv("OMPI_COMM_WORLD_SIZE", "1")
	t.Setenv("TF_CONFIG", "noise")
	for _, c := range []struct {
		workers int
		method  strategy.Config
		ports   int // one per process
		source  string
		args    string // last arguments
	}{
		{2, strategy.Config{}, 2, rendezvous.SourceExplicit, ""},
		{2, strategy.Config{Name: "mirrored"}, 1, rendezvous.SourceExplicit, "--replicas 2"},
		{1, strategy.Config{Name: "mirrored"}, 1, rendezvous.SourceExplicit, "--replicas 1"},
		{3, strategy.Config{Name: "multiworker"}, 3, rendezvous.SourceTFConfig, ""},
		{4, strategy.Config{Name: "multiworker", Replicas: 2}, 2, rendezvous.SourceTFConfig, ""},
		{2, strategy.Config{Name: "multiworker", Replicas: 2}, 1, rendezvous.SourceTFConfig, ""},
	} {
		p, r := newTestPlan(t, c.workers, c.method)
		if r.Processes != c.ports {
			t.Errorf("%d workers of %s: %d processes, want %d", c.workers, c.method, r.Processes, c.ports)
		}
		ports := []string{"2001", "2002", "2003"}[:c.ports]
		for process := range ports {
			e := rankOf(t, p.workerEnvironment(r, process, ports, "secret"))
			if e.Rank != process || e.World != c.ports || e.LocalRank != process || e.LocalWorld != c.ports || e.Source != c.source {
				t.Errorf("process %d of %s: %+v", process, c.method, e)
			}
			if e.World > 1 && (e.Address() != "127.0.0.1:2001" || e.Token != "secret") {
				t.Errorf("process %d of %s joins at %s", process, c.method, e.Address())
			}
		}
		if args := strings.Join(p.processCommand(r), " "); strings.Contains(args, "--replicas") != (c.args != "") || !strings.HasSuffix(args, c.args) {
			t.Errorf("%s: arguments %s, want %q", c.method, args, c.args)
		}
	}
}

// TestReplicasShareCPUs: the replicas of a process are bound to all CPUs of the process. Runs
// with the same number of workers have the same CPUs, however many processes they have.
func TestReplicasShareCPUs(t *testing.T) {
	for _, c := range []struct {
		method strategy.Config
		want   string
	}{
		{strategy.Config{}, "0-1,8-9 | 2-3,10-11 | 4-5,12-13 | 6-7,14-15"},
		{strategy.Config{Name: "mirrored"}, "0-15 | 0-15 | 0-15 | 0-15"},
		{strategy.Config{Name: "multiworker", Replicas: 2}, "0-3,8-11 | 0-3,8-11 | 4-7,12-15 | 4-7,12-15"},
	} {
		p, r := newTestPlan(t, 4, c.method)
		b, err := p.planBinding(r, binding.CPUState{Machine: madeUp(1, 8), Quota: math.Inf(1)})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(b.CPUs, " | "); got != c.want || b.Mode != BindCores {
			t.Errorf("%s: %s, want %s", c.method, got, c.want)
		}
		for rank := range b.Lists {
			if !slices.Equal(b.Lists[rank], cpus(t, b.CPUs[rank])) {
				t.Errorf("%s: rank %d is bound to %v, not to %s", c.method, rank, b.Lists[rank], b.CPUs[rank])
			}
		}
	}
	p, r := newTestPlan(t, 4, strategy.Config{Name: "mirrored"})
	if b, err := p.planBinding(r, binding.CPUState{Machine: madeUp(1, 1), Quota: math.Inf(1)}); err != nil || b.Mode != BindNone || b.CPUs != nil {
		t.Errorf("4 replicas on 2 CPUs: %+v, %v", b, err)
	}
}

// TestWorkersThatCannotBeDivided: a worker count that the strategy cannot use is found before
// anything starts, although the check of the config tries only the largest one.
func TestWorkersThatCannotBeDivided(t *testing.T) {
	s := Sweep{Config: "unet2d-cells", Workers: []int{1, 3, 4}, Oversubscribe: true}.withDefaults()
	p := &SweepPlan{Sweep: s, Runs: planTestRuns(t, s)}
	configs := map[string]map[string]any{p.Runs[0].Series: {"strategy": map[string]any{"name": "multiworker", "replicas": 2.0}}}
	err := p.setRunConfigs(configs)
	wantError(t, err, "strategy multiworker: 1 worker cannot be divided")
	var usage *train.UsageError
	if !errors.As(err, &usage) {
		t.Errorf("%T, want a *train.UsageError", err)
	}
	p.Runs = p.Runs[2:]
	if err := p.setRunConfigs(configs); err != nil || p.Runs[0].workersPerProcess() != 2 {
		t.Errorf("4 workers: %v, %d replicas in each process", err, p.Runs[0].workersPerProcess())
	}
}
