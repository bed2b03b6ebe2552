package launch

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/internal/topology"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/runs"
)

// madeUp returns a machine with sockets of cores with 2 SMT siblings each. As on x86, the first
// CPUs of all cores have the lowest numbers.
func madeUp(sockets, cores int) topology.Machine {
	var m topology.Machine
	for s := range sockets {
		for c := range cores {
			core := s*cores + c
			m.CPUs = append(m.CPUs,
				topology.CPU{ID: core, Core: core, Package: s, Node: s},
				topology.CPU{ID: core + sockets*cores, Core: core, Package: s, Node: s})
		}
	}
	return m
}

func cpus(t *testing.T, text string) []int {
	t.Helper()
	list, err := topology.ParseCPUList(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestPlanBinding checks the choice of the mode, its reason and the CPUs of each worker.
func TestPlanBinding(t *testing.T) {
	two := topology.NewFlatMachine([]int{0, 1})
	for _, tt := range []struct {
		name    string
		machine topology.Machine
		change  func(*binding.CPUState)
		sweep   Sweep
		workers int
		device  string
		mode    string
		list    string
		reason  string // part of it
	}{
		{"fits", two, nil, Sweep{Workers: []int{1, 2}}, 2, "cpu", "cores", "0 | 1", ""},
		{"fewer workers of the same sweep", two, nil, Sweep{Workers: []int{1, 2}}, 1, "cpu", "cores", "0-1", ""},
		{
			"two sockets", madeUp(2, 64), nil,
			Sweep{Workers: []int{8}, Threads: 16},
			8, "cpu", "cores",
			"0-15,128-143 | 16-31,144-159 | 32-47,160-175 | 48-63,176-191 | 64-79,192-207 | 80-95,208-223 | 96-111,224-239 | 112-127,240-255", "",
		},
		{"nodes", madeUp(2, 64), nil, Sweep{Workers: []int{2}, Threads: 16, Bind: "numa"}, 2, "cpu", "numa", "0-63,128-191 | 64-127,192-255", ""},
		{"asked for none", two, nil, Sweep{Workers: []int{2}, Bind: "none"}, 2, "cpu", "none", "", ""},
		{"the largest run does not fit", two, nil, Sweep{Workers: []int{1, 4}, Oversubscribe: true}, 1, "cpu", "none", "", "4 workers × 1 thread do not fit on 2 CPUs"},
		{"asked for cores that do not fit", two, nil, Sweep{Workers: []int{4}, Oversubscribe: true, Bind: "cores"}, 4, "cpu", "cores", "0 | 1 | 0 | 1", ""},
		{"another program", two, nil, Sweep{Workers: []int{2}, Command: []string{"python"}}, 2, "", "none", "", "python may start processes and threads of its own"},
		{"another program, asked for cores", two, nil, Sweep{Workers: []int{2}, Command: []string{"python"}, Bind: "cores"}, 2, "", "cores", "0 | 1", ""},
		{"GPU", two, nil, Sweep{Workers: []int{2}}, 2, "cuda", "none", "", "feed a GPU"},
		{"GPU, asked for nodes", madeUp(2, 2), nil, Sweep{Workers: []int{2}, Bind: "numa"}, 2, "cuda:0", "numa", "0-1,4-5 | 2-3,6-7", ""},
		{"quota", madeUp(1, 8), func(c *binding.CPUState) { c.Quota = 2.5 }, Sweep{Workers: []int{2}}, 2, "cpu", "none", "", "a quota of 2.5 CPUs"},
		{"quota of all CPUs", two, func(c *binding.CPUState) { c.Quota = 2 }, Sweep{Workers: []int{2}}, 2, "cpu", "cores", "0 | 1", ""},
		{"part of a node without a mask", madeUp(1, 8), func(c *binding.CPUState) { c.JobCPUs = 4 }, Sweep{Workers: []int{2}}, 2, "cpu", "none", "", "the Slurm job has 4 of 16 CPUs"},
		{"all of a node", two, func(c *binding.CPUState) { c.JobCPUs = 2 }, Sweep{Workers: []int{2}}, 2, "cpu", "cores", "0 | 1", ""},
		{"container without CPUs of its own", two, func(c *binding.CPUState) { c.HasUnseenProcesses = true }, Sweep{Workers: []int{2}}, 2, "cpu", "none", "", "shares all CPUs"},
		{"container, asked for cores", two, func(c *binding.CPUState) { c.HasUnseenProcesses = true }, Sweep{Workers: []int{2}, Bind: "cores"}, 2, "cpu", "cores", "0 | 1", ""},
		{"another sweep is bound to some cores", madeUp(1, 8), func(c *binding.CPUState) { c.Taken = cpus(t, "0-2,8-10") }, Sweep{Workers: []int{2}, Threads: 2}, 2, "cpu", "cores", "3-4,11-12 | 5-6,13-14", ""},
		{"one CPU of a core is taken", madeUp(1, 4), func(c *binding.CPUState) { c.Taken = []int{6} }, Sweep{Workers: []int{3}}, 3, "cpu", "cores", "0,4 | 1,5 | 3,7", ""},
		{"another sweep is bound to too many cores", madeUp(1, 2), func(c *binding.CPUState) { c.Taken = []int{0, 2} }, Sweep{Workers: []int{3}}, 3, "cpu", "none", "", "other processes are bound to CPUs 0,2, and 3 workers × 1 thread do not fit on the rest"},
		{"asked for cores that others are bound to", two, func(c *binding.CPUState) { c.Taken = []int{0} }, Sweep{Workers: []int{2}, Bind: "cores"}, 2, "cpu", "cores", "0 | 1", ""},
		{"asked for nodes that others are bound to", madeUp(2, 2), func(c *binding.CPUState) { c.Taken = []int{0, 2} }, Sweep{Workers: []int{1}, Threads: 4, Bind: "numa"}, 1, "cpu", "numa", "0-1,4-5", ""},
		{"claimed cores", madeUp(1, 8), func(c *binding.CPUState) { c.Claimed = cpus(t, "4-5,12-13") }, Sweep{Workers: []int{2}}, 2, "cpu", "cores", "4,12 | 5,13", ""},
		{"claimed cores, asked for nodes", madeUp(1, 2), func(c *binding.CPUState) { c.Claimed = cpus(t, "1,3") }, Sweep{Workers: []int{1}, Bind: "numa"}, 1, "cpu", "numa", "0-3", ""},
		{"without its cores", two, func(c *binding.CPUState) { c.Disturbed = "others have them" }, Sweep{Workers: []int{1}}, 1, "cpu", "none", "", "others have them"},
		{"not Linux", topology.Machine{}, func(c *binding.CPUState) { c.Problem = "only Linux can bind" }, Sweep{Workers: []int{2}}, 2, "cpu", "none", "", "only Linux"},
		{"not Linux, asked for cores", topology.Machine{}, func(c *binding.CPUState) { c.Problem = "only Linux can bind" }, Sweep{Workers: []int{2}, Bind: "cores"}, 2, "cpu", "none", "", "only Linux"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := binding.CPUState{Machine: tt.machine, Quota: math.Inf(1)}
			if tt.change != nil {
				tt.change(&c)
			}
			s := tt.sweep.withDefaults()
			b, err := s.planBinding(c, tt.workers, tt.device)
			if err != nil {
				t.Fatal(err)
			}
			if b.Mode != tt.mode || strings.Join(b.CPUs, " | ") != tt.list {
				t.Errorf("got %s %s, want %s %s", b.Mode, strings.Join(b.CPUs, " | "), tt.mode, tt.list)
			}
			if !strings.Contains(b.Reason, tt.reason) || (b.Reason == "") != (tt.reason == "") {
				t.Errorf("got reason %q, want %q", b.Reason, tt.reason)
			}
			if len(b.Lists) != len(b.CPUs) {
				t.Errorf("%d lists, but %d texts", len(b.Lists), len(b.CPUs))
			}
		})
	}
	s := Sweep{Config: "c", Workers: []int{1}, Threads: 5, Oversubscribe: true, Bind: "numa"}.withDefaults()
	_, err := s.planBinding(binding.CPUState{Machine: madeUp(2, 2), Quota: math.Inf(1)}, 1, "cpu")
	wantError(t, err, "bind to NUMA nodes: 5 threads do not fit on one node", "--bind cores")
	s.Bind = "core"
	wantError(t, s.Validate(), `unknown binding "core": use cores, numa or none`)
	_, err = s.PlanBinding(1)
	wantError(t, err, `plan binding: unknown binding "core"`)
	_, err = Sweep{}.PlanBinding(0)
	wantError(t, err, "0 workers")
}

// TestManySweepsShareNoCore starts simulated sweeps one after another on one machine: each
// sees the CPUs that the others are bound to.
func TestManySweepsShareNoCore(t *testing.T) {
	m := madeUp(2, 8)
	c := binding.CPUState{Machine: m, Quota: math.Inf(1)}
	owner := map[int]string{} // by CPU
	bound := 0
	for i := range 8 {
		s := Sweep{Config: "c", Workers: []int{2}, Threads: 2}.withDefaults()
		b, err := s.planBinding(c, 2, "cpu")
		if err != nil {
			t.Fatal(err)
		}
		if b.Mode == BindNone {
			if !strings.Contains(b.Reason, "other processes are bound to CPUs") {
				t.Errorf("sweep %d is not bound: %s", i, b.Reason)
			}
			continue
		}
		bound++
		for rank, list := range b.Lists {
			for _, id := range list {
				if owner[id] != "" {
					t.Errorf("CPU %d belongs to %s and to rank %d of sweep %d", id, owner[id], rank, i)
				}
				owner[id] = fmt.Sprintf("rank %d of sweep %d", rank, i)
				c.Taken = append(c.Taken, id)
			}
		}
		slices.Sort(c.Taken)
	}
	if bound < 2 || bound == 8 {
		t.Errorf("%d of 8 sweeps are bound to cores of their own", bound)
	}
}

func TestBindingText(t *testing.T) {
	for _, tt := range []struct {
		b    runs.Binding
		want string
	}{
		{runs.Binding{Mode: "cores", CPUs: []string{"0-1", "2-3"}}, "workers bound to cores; CPUs by rank: 0-1 | 2-3"},
		{runs.Binding{Mode: "numa", CPUs: []string{"0-63"}}, "workers bound to NUMA nodes; CPUs by rank: 0-63"},
		{runs.Binding{Mode: "none"}, "workers not bound to CPUs"},
		{runs.Binding{Mode: "none", Reason: "why"}, "workers not bound to CPUs: why"},
		{runs.Binding{Mode: "cores", CPUs: strings.Split("0123456789", "")}, "workers bound to cores; CPUs by rank: 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 and 2 more"},
	} {
		if got := tt.b.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
