// Package topology describes the processors of this machine (sockets, NUMA nodes, cores and
// hardware threads), finds those that this process may use, and divides them among workers.
//
// As in Linux, a CPU is a hardware thread with a number. A core has one or more CPUs, which
// are called SMT siblings. A node is a part of the machine with its own memory.
package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// CPU is one hardware thread.
type CPU struct {
	ID      int
	Core    int // the smallest ID among the core's CPUs
	Package int // number of the socket
	Node    int // number of the NUMA node; −1 if no node lists the CPU
}

// Machine contains the CPUs that are online, sorted by node, core and ID.
type Machine struct{ CPUs []CPU }

// ReadMachine reads the CPUs of a machine from the folder /sys/devices/system of Linux:
//
//	cpu/online                          CPUs that are in use
//	cpu/cpuN/topology/core_cpus_list    CPUs of the core (before Linux 5.3 thread_siblings_list)
//	cpu/cpuN/topology/physical_package_id
//	node/nodeN/cpulist                  empty for a node that has only memory
//
// A CPU without its topology folder counts as a core of package 0, and a machine without
// the folder node as one node.
func ReadMachine(system fs.FS) (Machine, error) {
	online, err := readCPUList(system, "cpu/online")
	if err != nil {
		return Machine{}, fmt.Errorf("read topology: %w", err)
	}
	nodes, err := readNUMANodes(system)
	if err != nil {
		return Machine{}, fmt.Errorf("read topology: %w", err)
	}
	var m Machine
	for _, id := range online {
		c := CPU{ID: id, Core: id, Node: -1}
		folder := fmt.Sprintf("cpu/cpu%d/topology/", id)
		for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
			if siblings, err := readCPUList(system, folder+name); err == nil && slices.Contains(siblings, id) {
				c.Core = siblings[0]
				break
			}
		}
		if text, err := fs.ReadFile(system, folder+"physical_package_id"); err == nil {
			if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && n >= 0 { // −1 if unknown
				c.Package = n
			}
		}
		if n, ok := nodes[id]; ok {
			c.Node = n
		} else if len(nodes) == 0 {
			c.Node = 0
		}
		m.CPUs = append(m.CPUs, c)
	}
	m.sortCPUs()
	return m, nil
}

// NewFlatMachine returns a machine with one node, on which each of the given CPUs is a separate
// core. It is for machines whose topology cannot be read.
func NewFlatMachine(cpus []int) Machine {
	var m Machine
	for _, id := range cpus {
		m.CPUs = append(m.CPUs, CPU{ID: id, Core: id})
	}
	m.sortCPUs()
	return m
}

func (m *Machine) sortCPUs() {
	slices.SortFunc(m.CPUs, func(a, b CPU) int {
		return slices.Compare([]int{a.Node, a.Core, a.ID}, []int{b.Node, b.Core, b.ID})
	})
}

func readNUMANodes(system fs.FS) (map[int]int, error) {
	entries, err := fs.ReadDir(system, "node")
	if errors.Is(err, fs.ErrNotExist) { // a kernel without NUMA
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes := map[int]int{}
	for _, e := range entries {
		n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "node"))
		if err != nil {
			continue // another file
		}
		cpus, err := readCPUList(system, path.Join("node", e.Name(), "cpulist"))
		if err != nil {
			return nil, err
		}
		for _, id := range cpus {
			nodes[id] = n
		}
	}
	return nodes, nil
}

func readCPUList(system fs.FS, name string) ([]int, error) {
	text, err := fs.ReadFile(system, name)
	if err != nil {
		return nil, err
	}
	cpus, err := ParseCPUList(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return cpus, nil
}

// maxCPUID is the largest number that ParseCPUList accepts. Linux supports 8192 CPUs.
const maxCPUID = 1<<16 - 1

// ParseCPUList parses a list of CPUs as Linux writes it, such as "0-3,8". It returns the
// numbers in ascending order, or nil for an empty list.
func ParseCPUList(text string) ([]int, error) {
	var cpus []int
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		lo, err := strconv.Atoi(first)
		hi := lo
		if isRange && err == nil {
			hi, err = strconv.Atoi(last)
		}
		if err != nil || lo < 0 || hi < lo || hi > maxCPUID {
			return nil, fmt.Errorf("parse list of CPUs %q: got %q, want a number or a range such as 0-3", text, part)
		}
		for id := lo; id <= hi; id++ {
			cpus = append(cpus, id)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// FormatCPUList formats a list of CPUs, which must be in ascending order, in the form that
// ParseCPUList parses.
func FormatCPUList(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		part := strconv.Itoa(cpus[i])
		if end > i {
			part += "-" + strconv.Itoa(cpus[end])
		}
		parts = append(parts, part)
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// RestrictToCPUs returns the machine with only the given CPUs. cpus must be in ascending order. A CPU
// that the machine does not list is omitted.
func (m Machine) RestrictToCPUs(cpus []int) Machine {
	var r Machine
	for _, c := range m.CPUs {
		if _, ok := slices.BinarySearch(cpus, c.ID); ok {
			r.CPUs = append(r.CPUs, c)
		}
	}
	return r
}

// WithoutCores returns the machine without the cores to which the given CPUs belong.
func (m Machine) WithoutCores(cpus []int) Machine {
	cores := map[int]bool{}
	for _, c := range m.CPUs {
		if slices.Contains(cpus, c.ID) {
			cores[c.Core] = true
		}
	}
	return Machine{slices.DeleteFunc(slices.Clone(m.CPUs), func(c CPU) bool { return cores[c.Core] })}
}

// HardwareCounts contains the numbers of packages, nodes, cores and CPUs of a machine.
type HardwareCounts struct{ Packages, Nodes, Cores, CPUs int }

// CountHardware counts the parts of the machine. It counts only nodes that have CPUs.
func (m Machine) CountHardware() HardwareCounts {
	packages, nodes, cores := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, c := range m.CPUs {
		packages[c.Package], nodes[c.Node], cores[c.Core] = true, true, true
	}
	return HardwareCounts{len(packages), len(nodes), len(cores), len(m.CPUs)}
}

// CPUIDs returns the numbers of the machine's CPUs in ascending order.
func (m Machine) CPUIDs() []int {
	ids := make([]int, len(m.CPUs))
	for i, c := range m.CPUs {
		ids[i] = c.ID
	}
	slices.Sort(ids)
	return ids
}
