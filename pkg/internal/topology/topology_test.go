package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"
)

// shape describes a machine for a test. As in Linux on x86, the first CPUs of all cores have
// the lowest numbers, then the second CPUs of all cores follow.
type shape struct {
	sockets, nodes, cores, smt int    // nodes per socket, cores per node
	offline                    string // list of CPUs
	memoryNodes                int    // nodes without CPUs
	old                        bool   // files of a kernel before Linux 5.3
	without                    string // prefix of files that are missing
}

// files returns the folder /sys/devices/system of the machine.
func (s shape) files() fstest.MapFS {
	all := fstest.MapFS{}
	put := func(name, text string) {
		if s.without == "" || !strings.HasPrefix(name, s.without) {
			all[name] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
	}
	off, err := ParseCPUList(s.offline)
	if err != nil {
		panic(err)
	}
	cores := s.sockets * s.nodes * s.cores
	var online []int
	byNode := map[int][]int{}
	for id := range cores * s.smt {
		if slices.Contains(off, id) {
			put(fmt.Sprintf("cpu/cpu%d/online", id), "0") // an offline CPU has no topology
			continue
		}
		online = append(online, id)
		core := id % cores
		byNode[core/s.cores] = append(byNode[core/s.cores], id)
		var siblings []int
		for t := range s.smt {
			if other := core + t*cores; !slices.Contains(off, other) {
				siblings = append(siblings, other)
			}
		}
		name := "core_cpus_list"
		if s.old {
			name = "thread_siblings_list"
		}
		put(fmt.Sprintf("cpu/cpu%d/topology/%s", id, name), FormatCPUList(siblings))
		put(fmt.Sprintf("cpu/cpu%d/topology/physical_package_id", id), strconv.Itoa(core/s.cores/s.nodes))
		put(fmt.Sprintf("cpu/cpu%d/topology/core_id", id), strconv.Itoa(core%s.cores))
	}
	put("cpu/online", FormatCPUList(online))
	for n := range s.sockets*s.nodes + s.memoryNodes {
		put(fmt.Sprintf("node/node%d/cpulist", n), FormatCPUList(byNode[n]))
	}
	put("node/has_cpu", "0")
	put("node/online", "0")
	return all
}

func (s shape) read(t *testing.T) Machine {
	t.Helper()
	m, err := ReadMachine(s.files())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func list(t *testing.T, text string) []int {
	t.Helper()
	cpus, err := ParseCPUList(text)
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

// large is a machine with 2 sockets × 2 nodes × 32 cores × 2 SMT siblings: 256 CPUs.
var large = shape{sockets: 2, nodes: 2, cores: 32, smt: 2}

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    shape
		want HardwareCounts
		cpu  CPU // one of the machine's
	}{
		{"two sockets", large, HardwareCounts{2, 4, 128, 256}, CPU{ID: 200, Core: 72, Package: 1, Node: 2}},
		{"before Linux 5.3", shape{sockets: 1, nodes: 2, cores: 4, smt: 2, old: true}, HardwareCounts{1, 2, 8, 16}, CPU{15, 7, 0, 1}},
		{"one core", shape{sockets: 1, nodes: 1, cores: 1, smt: 1}, HardwareCounts{1, 1, 1, 1}, CPU{}},
		{"four SMT siblings", shape{sockets: 1, nodes: 1, cores: 4, smt: 4}, HardwareCounts{1, 1, 4, 16}, CPU{14, 2, 0, 0}},
		{"a node with only memory", shape{sockets: 1, nodes: 1, cores: 4, smt: 1, memoryNodes: 2}, HardwareCounts{1, 1, 4, 4}, CPU{3, 3, 0, 0}},
		{"first sibling is offline", shape{sockets: 1, nodes: 1, cores: 4, smt: 2, offline: "1"}, HardwareCounts{1, 1, 4, 7}, CPU{5, 5, 0, 0}},
		{"a core is offline", shape{sockets: 1, nodes: 1, cores: 4, smt: 2, offline: "1,5"}, HardwareCounts{1, 1, 3, 6}, CPU{6, 2, 0, 0}},
		{"no nodes", shape{sockets: 2, nodes: 1, cores: 4, smt: 2, without: "node"}, HardwareCounts{2, 1, 8, 16}, CPU{13, 5, 1, 0}},
		{"no topology", shape{sockets: 2, nodes: 1, cores: 4, smt: 2, without: "cpu/cpu"}, HardwareCounts{1, 2, 16, 16}, CPU{13, 13, 0, 1}},
		{"a node is missing", shape{sockets: 2, nodes: 1, cores: 4, smt: 1, without: "node/node1/"}, HardwareCounts{2, 2, 8, 8}, CPU{6, 6, 1, -1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.s.read(t)
			if got := m.CountHardware(); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if !slices.Contains(m.CPUs, tt.cpu) {
				t.Errorf("no CPU is %+v; all: %+v", tt.cpu, m.CPUs)
			}
		})
	}
	if _, err := ReadMachine(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a system without the files gives %v", err)
	}
	wrong := large.files()
	wrong["node/node1/cpulist"] = &fstest.MapFile{Data: []byte("many\n")}
	if _, err := ReadMachine(wrong); err == nil || !strings.Contains(err.Error(), `node/node1/cpulist: parse list of CPUs "many"`) {
		t.Errorf("a node with a wrong list gives %v", err)
	}
}

func TestList(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []int
		form string
	}{
		{"", nil, ""},
		{"\n", nil, ""},
		{"0", []int{0}, "0"},
		{"0-3,8\n", []int{0, 1, 2, 3, 8}, "0-3,8"},
		{"8,0-1,1-2", []int{0, 1, 2, 8}, "0-2,8"},
		{"4-4", []int{4}, "4"},
	} {
		got, err := ParseCPUList(tt.text)
		if err != nil || !slices.Equal(got, tt.want) || FormatCPUList(got) != tt.form {
			t.Errorf("%q: got %v (%s), %v; want %v", tt.text, got, FormatCPUList(got), err, tt.want)
		}
	}
	for _, wrong := range []string{"a", "1-", "-1", "3-1", "1,,2", "0-99999999999", "0-99999999"} {
		if got, err := ParseCPUList(wrong); err == nil {
			t.Errorf("%q gives %v and no error", wrong, got)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		cpus := rapid.SliceOfNDistinct(rapid.IntRange(0, 300), 0, 100, rapid.ID[int]).Draw(rt, "cpus")
		slices.Sort(cpus)
		if got, err := ParseCPUList(FormatCPUList(cpus)); err != nil || !slices.Equal(got, cpus) {
			rt.Fatalf("%v is written as %s and read as %v, %v", cpus, FormatCPUList(cpus), got, err)
		}
	})
}

// TestDivide checks divisions that were written by hand.
func TestDivide(t *testing.T) {
	small := shape{sockets: 1, nodes: 1, cores: 2, smt: 1}
	for _, tt := range []struct {
		name             string
		s                shape
		mask             string // "" for all
		workers, threads int
		cores, numa      string // by worker; "" for none
	}{
		{"one core", shape{sockets: 1, nodes: 1, cores: 1, smt: 1}, "", 1, 1, "0", "0"},
		{"two cores, one worker", small, "", 1, 1, "0-1", "0-1"},
		{"two cores, two workers", small, "", 2, 1, "0 | 1", "0-1 | 0-1"},
		{"two cores, too many threads", small, "", 3, 1, "0 | 1 | 0", "0-1 | 0-1 | 0-1"},
		{"two cores, threads of all workers too many", small, "", 1, 3, "0-1", ""},
		{"a container that may use two of 256 CPUs", large, "7,140", 2, 1, "7 | 140", "7,140 | 7,140"},
		{"a container with the siblings of a core", large, "7,135", 2, 1, "7 | 135", "7,135 | 7,135"},
		// Cores of 128 CPUs, the siblings from 128 on. One spare core for each of 4 × 7 in a node of 32.
		{
			"spare cores", large, "", 16, 7,
			"0-7,128-135 | 8-15,136-143 | 16-23,144-151 | 24-31,152-159 | 32-39,160-167 | 40-47,168-175 | 48-55,176-183 | 56-63,184-191 | " +
				"64-71,192-199 | 72-79,200-207 | 80-87,208-215 | 88-95,216-223 | 96-103,224-231 | 104-111,232-239 | 112-119,240-247 | 120-127,248-255",
			"0-31,128-159 | 0-31,128-159 | 0-31,128-159 | 0-31,128-159 | 32-63,160-191 | 32-63,160-191 | 32-63,160-191 | 32-63,160-191 | " +
				"64-95,192-223 | 64-95,192-223 | 64-95,192-223 | 64-95,192-223 | 96-127,224-255 | 96-127,224-255 | 96-127,224-255 | 96-127,224-255",
		},
		{"nodes share the workers", large, "", 4, 32, "0-31,128-159 | 32-63,160-191 | 64-95,192-223 | 96-127,224-255", "0-31,128-159 | 32-63,160-191 | 64-95,192-223 | 96-127,224-255"},
		{"one worker of all cores", large, "", 1, 128, "0-255", ""},
		{"a thread per CPU", large, "", 4, 64, "0-31,128-159 | 32-63,160-191 | 64-95,192-223 | 96-127,224-255", "0-31,128-159 | 32-63,160-191 | 64-95,192-223 | 96-127,224-255"},
		{"a mask with holes", large, "1,3,5,33,35,97,129", 2, 2, "1,3,129 | 33,35", "1,3,5,129 | 33,35"},
		{"split", shape{sockets: 2, nodes: 1, cores: 3, smt: 1}, "", 3, 2, "0-1 | 3-4 | 2,5", "0-2 | 0-2 | 3-5"},
		{"more room on one node", large, "0-2,32-63", 3, 8, "32-41 | 42-51 | 52-61", "32-63 | 32-63 | 32-63"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.s.read(t)
			if tt.mask != "" {
				m = m.RestrictToCPUs(list(t, tt.mask))
			}
			if got := formatParts(m.DivideCores(tt.workers, tt.threads)); got != tt.cores {
				t.Errorf("cores:\n got %s\nwant %s", got, tt.cores)
			}
			if got := formatParts(m.AssignNUMANodes(tt.workers, tt.threads)); got != tt.numa {
				t.Errorf("nodes:\n got %s\nwant %s", got, tt.numa)
			}
		})
	}
	if got := (Machine{}).DivideCores(1, 1); got != nil {
		t.Errorf("a machine without CPUs is divided into %v", got)
	}
}

func formatParts(parts [][]int) string {
	text := make([]string, len(parts))
	for i, p := range parts {
		text[i] = FormatCPUList(p)
	}
	return strings.Join(text, " | ")
}

// TestDivideProperty checks the contract of DivideCores and AssignNUMANodes on random machines
// and masks.
func TestDivideProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shape{
			sockets: rapid.IntRange(1, 2).Draw(rt, "sockets"), nodes: rapid.IntRange(1, 3).Draw(rt, "nodes"),
			cores: rapid.IntRange(1, 6).Draw(rt, "cores"), smt: rapid.IntRange(1, 3).Draw(rt, "smt"),
		}
		all, err := ReadMachine(s.files())
		if err != nil {
			rt.Fatal(err)
		}
		mask := rapid.SliceOfNDistinct(rapid.SampledFrom(all.CPUIDs()), 1, -1, rapid.ID[int]).Draw(rt, "mask")
		slices.Sort(mask)
		m := all.RestrictToCPUs(mask)
		workers, threads := rapid.IntRange(1, 9).Draw(rt, "workers"), rapid.IntRange(1, 9).Draw(rt, "threads")
		cpu := map[int]CPU{}
		cores, cpus := map[int]map[int]bool{}, map[int]int{} // by node: its cores, and the number of its CPUs
		for _, c := range m.CPUs {
			cpu[c.ID] = c
			if cores[c.Node] == nil {
				cores[c.Node] = map[int]bool{}
			}
			cores[c.Node][c.Core] = true
			cpus[c.Node]++
		}
		wholeByCore, wholeByCPU := 0, 0 // workers that fit on the cores, or on the CPUs, of one node each
		for n := range cpus {
			wholeByCore += len(cores[n]) / threads
			wholeByCPU += cpus[n] / threads
		}
		need, coreCount := workers*threads, m.CountHardware().Cores

		parts := m.DivideCores(workers, threads)
		if len(parts) != workers {
			rt.Fatalf("%d parts for %d workers", len(parts), workers)
		}
		load, coreLoad := map[int]int{}, map[int]int{}
		for w, part := range parts {
			nodes, own := map[int]bool{}, map[int]bool{}
			for i, id := range part {
				if _, ok := cpu[id]; !ok {
					rt.Fatalf("worker %d gets CPU %d outside of the mask %v", w, id, mask)
				}
				if i > 0 && id <= part[i-1] {
					rt.Fatalf("the CPUs of worker %d are not in ascending order: %v", w, part)
				}
				load[id]++
				nodes[cpu[id].Node], own[cpu[id].Core] = true, true
			}
			for core := range own {
				coreLoad[core]++
			}
			switch {
			case need > len(mask):
				if len(part) != min(threads, len(mask)) {
					rt.Fatalf("worker %d gets %d CPUs for %d threads", w, len(part), threads)
				}
				continue
			case need <= coreCount && (len(own) < threads || len(own) > threads+maxSpareCores):
				rt.Fatalf("worker %d gets %d cores for %d threads", w, len(own), threads)
			case len(part) < threads:
				rt.Fatalf("worker %d gets %d CPUs for %d threads", w, len(part), threads)
			}
			fits := wholeByCore >= workers || need > coreCount && wholeByCPU >= workers
			if fits && len(nodes) > 1 {
				rt.Fatalf("worker %d is split among nodes %v: %v", w, slices.Collect(maps.Keys(nodes)), parts)
			}
		}
		least := math.MaxInt
		for _, id := range mask {
			least = min(least, load[id])
		}
		for id, n := range load {
			if need <= len(mask) && n > 1 {
				rt.Fatalf("CPU %d belongs to %d workers: %v", id, n, parts)
			}
			if n > least+1 && need > len(mask) {
				rt.Fatalf("CPU %d belongs to %d workers, another to %d: %v", id, n, least, parts)
			}
		}
		for core, n := range coreLoad {
			if need <= coreCount && n > 1 {
				rt.Fatalf("core %d belongs to %d workers, although there is one for each thread: %v", core, n, parts)
			}
		}

		parts = m.AssignNUMANodes(workers, threads)
		if (parts == nil) != (wholeByCPU == 0) {
			rt.Fatalf("division by nodes is %v; %d workers fit", parts, wholeByCPU)
		}
		count := map[int]int{}
		for w, part := range parts {
			node := cpu[part[0]].Node
			if len(part) != cpus[node] || slices.ContainsFunc(part, func(id int) bool { return cpu[id].Node != node || cpu[id].ID != id }) {
				rt.Fatalf("worker %d gets %v, which are not the CPUs of one node", w, part)
			}
			count[node]++
		}
		for node, n := range count {
			if wholeByCPU >= workers && n*threads > cpus[node] {
				rt.Fatalf("node %d with %d CPUs gets %d workers of %d threads", node, cpus[node], n, threads)
			}
		}
	})
}

func TestQuota(t *testing.T) {
	inf := math.Inf(1)
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  float64
		group string
	}{
		{"no control groups", nil, inf, ""},
		{"version 2", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n"}, 1.5, "sys/fs/cgroup/a/b"},
		{"a group above", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "400000 100000"}, 4, "sys/fs/cgroup/a"},
		{"the same twice", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n", "sys/fs/cgroup/a/cpu.max": "200000 50000"}, 4, "sys/fs/cgroup/a"},
		{"not limited", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, inf, ""},
		{"in a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5, "sys/fs/cgroup"},
		{"path of the host in a container", map[string]string{"proc/self/cgroup": "0::/docker/4711\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2, "sys/fs/cgroup"},
		{
			"version 1", map[string]string{
				"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/y\n0::/\n",
				"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us":  "300000\n",
				"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":    "-1\n",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":   "100000\n",
			}, 3, "sys/fs/cgroup/cpu,cpuacct/x",
		},
		{"damaged", map[string]string{"proc/self/cgroup": "0::/\nx\n", "sys/fs/cgroup/cpu.max": "much 0\n"}, inf, ""},
	} {
		root := fstest.MapFS{}
		for name, text := range tt.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, group := CPUQuota(root); got != tt.want || group != tt.group {
			t.Errorf("%s: got %v of %q, want %v of %q", tt.name, got, group, tt.want, tt.group)
		}
	}
}

func TestTaken(t *testing.T) {
	status := func(memory bool, cpus string) *fstest.MapFile {
		text := "Name:\tx\nState:\tS (sleeping)\n"
		if memory {
			text += "VmSize:\t  100 kB\n"
		}
		return &fstest.MapFile{Data: []byte(text + "Cpus_allowed:\tff\nCpus_allowed_list:\t" + cpus + "\nMems_allowed_list:\t0\n")}
	}
	proc := fstest.MapFS{
		"1/status":    status(true, "0-63"),
		"17/status":   status(false, "3"), // a thread of the operating system
		"40/status":   status(true, "0"),  // this process
		"41/status":   status(true, "4-5"),
		"42/status":   status(true, "5,9"), // 9 is not allowed here
		"43/status":   status(true, "0-7"),
		"44/status":   status(true, "9-63"),
		"45/status":   status(true, "many"),
		"46/comm":     {Data: []byte("no status")},
		"self/status": status(true, "1"),
		"uptime":      {Data: []byte("1 2")},
	}
	got, err := CPUsBoundByOthers(proc, 40, []int{0, 1, 2, 3, 4, 5, 6, 7})
	if err != nil || FormatCPUList(got) != "4-5" {
		t.Errorf("got %v, %v; want 4-5", got, err)
	}
	if got, err := CPUsBoundByOthers(proc, 40, []int{5}); err != nil || len(got) != 0 {
		t.Errorf("of a single CPU, %v are taken (%v)", got, err)
	}
	for _, tt := range []struct {
		name      string
		proc      fs.FS
		namespace string
		want      bool
	}{
		{"the machine", proc, "pid:[4026531836]", true},
		{"a container", proc, "pid:[4026532171]", false},
		{"hidepid", fstest.MapFS{"40/status": status(true, "0")}, "pid:[4026531836]", false},
		{"not known", proc, "", false},
	} {
		if got := CanSeeAllProcesses(tt.proc, tt.namespace); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}
