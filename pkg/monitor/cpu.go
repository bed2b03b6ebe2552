package monitor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ticksPerSecond is the unit of the CPU times in /proc (USER_HZ, proc(5)).
const ticksPerSecond = 100

// CPUTimes contains CPU times in seconds since boot, and the memory of the watched process trees.
type CPUTimes struct {
	Busy  float64 // of all processes, including kernel threads but not interrupts
	Steal float64 // time that the hypervisor gave to other virtual machines
	Total float64 // of all cores, including idle time
	Tree  float64 // of the watched process trees
	Cores int

	// TreeMemory is the resident memory in bytes of the running processes in the trees. A page that
	// several processes share is counted once for each.
	TreeMemory int64
}

// CPUMeter reads the CPU times of this machine and of process trees: each root with all its
// descendants, including those that have ended. Only one goroutine may use it at a time.
type CPUMeter struct {
	proc  string // path of the proc file system
	roots []int
	known map[int]processSnapshot // processes of the trees at the last sample, by pid
	ended float64                 // seconds of ended processes for which no process of a tree has waited
}

type processSnapshot struct {
	start    uint64 // start time in ticks since the start of the machine; with the pid it identifies the process
	parent   int
	seconds  float64 // CPU time of the process and of those children for which it has waited
	memory   int64   // resident memory in bytes
	orphaned bool    // whether its parent has ended
}

// NewCPUMeter returns a CPUMeter for the process trees with the given roots. If they overlap, each
// process counts once.
func NewCPUMeter(roots ...int) *CPUMeter { return &CPUMeter{proc: "/proc", roots: roots} }

// Sample reads the current times. It returns an error if it cannot, for example because there is no
// /proc or a root has ended.
func (c *CPUMeter) Sample() (CPUTimes, error) {
	now, err := c.readMachineTimes()
	if err != nil {
		return CPUTimes{}, fmt.Errorf("sample CPU times: %w", err)
	}
	seen := map[int]processSnapshot{}
	for _, root := range c.roots {
		before, again := c.known[root]
		if err := c.addProcessTree(root, seen); err != nil {
			return CPUTimes{}, fmt.Errorf("sample CPU times of process %d: %w", root, err)
		}
		if again && before.start != seen[root].start {
			return CPUTimes{}, fmt.Errorf("sample CPU times of process %d: process has ended", root)
		}
	}
	c.addOrphans(seen)
	c.known = seen
	now.Tree = c.ended
	for _, p := range seen {
		now.Tree += p.seconds
		now.TreeMemory += p.memory
	}
	return now, nil
}

// addOrphans adds processes whose parent has ended since the last sample: running ones to seen, and
// the CPU time of ended ones to c.ended. No process of the tree calls wait(2) for them, so their
// time is in no other process's times.
func (c *CPUMeter) addOrphans(seen map[int]processSnapshot) {
	for pid, before := range c.known {
		if _, ok := seen[pid]; ok {
			continue
		}
		p, err := c.readProcess(pid)
		if err != nil || p.start != before.start {
			if before.orphaned {
				c.ended += before.seconds
			}
			continue // if it was no orphan, its time is now part of its parent's
		}
		if c.addProcessTree(pid, seen) != nil {
			continue // it has ended since the call of readProcess
		}
		p = seen[pid]
		_, p.orphaned = seen[p.parent]
		p.orphaned = !p.orphaned
		seen[pid] = p
	}
}

func (c *CPUMeter) readMachineTimes() (CPUTimes, error) {
	path := filepath.Join(c.proc, "stat")
	text, err := os.ReadFile(path)
	if err != nil {
		return CPUTimes{}, err
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	// cpu user nice system idle iowait irq softirq steal guest guest_nice; user and nice include
	// guest and guest_nice.
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return CPUTimes{}, fmt.Errorf("%s: invalid first line %.80q: want cpu and at least 8 numbers", path, line)
	}
	var t [8]float64
	var all CPUTimes
	for i := range t {
		ticks, err := strconv.ParseUint(fields[i+1], 10, 64)
		if err != nil {
			return CPUTimes{}, fmt.Errorf("%s: %w", path, err)
		}
		t[i] = float64(ticks) / ticksPerSecond
		all.Total += t[i]
	}
	all.Busy, all.Steal = t[0]+t[1]+t[2], t[7]
	for line := range strings.Lines(rest) {
		if strings.HasPrefix(line, "cpu") {
			all.Cores++
		}
	}
	if all.Cores == 0 {
		return CPUTimes{}, fmt.Errorf("%s: no line for a core, such as cpu0", path)
	}
	return all, nil
}

// addProcessTree adds the process pid and its descendants to seen. It reads a process after its
// children. If a child ends in between, its time counts twice in this sample; in the other order
// it would count for other programs.
func (c *CPUMeter) addProcessTree(pid int, seen map[int]processSnapshot) error {
	if _, ok := seen[pid]; ok {
		return nil
	}
	children, err := c.readChildren(pid)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := c.addProcessTree(child, seen); err != nil && !isProcessGone(err) {
			return err
		}
	}
	p, err := c.readProcess(pid)
	if err != nil {
		return err
	}
	seen[pid] = p
	return nil
}

// readChildren returns the pids of the children of all threads of pid.
func (c *CPUMeter) readChildren(pid int) ([]int, error) {
	tasks := filepath.Join(c.proc, strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil, err
	}
	var pids []int
	for i, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		if err != nil {
			if i > 0 && isProcessGone(err) { // the thread has ended; for i = 0 the kernel may not support this file
				continue
			}
			return nil, err
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("read children of process %d: %w", pid, err)
			}
			pids = append(pids, child)
		}
	}
	return pids, nil
}

func (c *CPUMeter) readProcess(pid int) (processSnapshot, error) {
	path := filepath.Join(c.proc, strconv.Itoa(pid), "stat")
	text, err := os.ReadFile(path)
	if err != nil {
		return processSnapshot{}, err
	}
	// pid (name) state ppid …: the name may contain spaces and parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 22 {
		return processSnapshot{}, fmt.Errorf("%s: got %d fields after the process name, want at least 22", path, len(fields))
	}
	parent, err := strconv.Atoi(fields[1])
	start, startErr := strconv.ParseUint(fields[19], 10, 64)
	ticks := int64(0)
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, e := strconv.ParseInt(field, 10, 64)
		ticks, err = ticks+n, errors.Join(err, e)
	}
	pages, pagesErr := strconv.ParseInt(fields[21], 10, 64) // rss
	if err = errors.Join(err, startErr, pagesErr); err != nil {
		return processSnapshot{}, fmt.Errorf("%s: %w", path, err)
	}
	return processSnapshot{start: start, parent: parent, seconds: float64(ticks) / ticksPerSecond, memory: pages * int64(os.Getpagesize())}, nil
}

func isProcessGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
