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

// ticksPerSecond is the unit of CPU times in /proc (USER_HZ, proc(5)).
const ticksPerSecond = 100

// CPUTimes are CPU times in seconds since the machine was started.
type CPUTimes struct {
	Busy  float64 // of all processes, kernel threads included; not of interrupts
	Steal float64 // that the hypervisor gave to other virtual machines
	Total float64 // of all cores, idle time included
	Tree  float64 // of the trees of processes that are watched
	Cores int
}

// CPU reads the CPU time of this machine, and of trees of processes: the roots
// and all that descend from them, those that have ended included. It is for one
// goroutine at a time.
type CPU struct {
	proc  string
	roots []int
	known map[int]process // at the last sample
	ended float64         // seconds of processes that ended and that no process of a tree waited for
}

// process is what is known of a process.
type process struct {
	start    uint64 // ticks since the machine's; with the pid it names a process
	parent   int
	seconds  float64 // its own, and those of its children that it waited for
	orphaned bool    // its parent ended before it
}

// NewCPU prepares to watch the trees of the processes roots. One tree may hold
// another: its processes count once.
func NewCPU(roots ...int) *CPU { return &CPU{proc: "/proc", roots: roots} }

// Sample reads the times as they are now. An error means that nothing is known,
// such as where there is no /proc, or a root has ended.
func (c *CPU) Sample() (CPUTimes, error) {
	now, err := c.machine()
	if err != nil {
		return CPUTimes{}, fmt.Errorf("sample CPU times: %w", err)
	}
	seen := map[int]process{}
	for _, root := range c.roots {
		before, again := c.known[root]
		if err := c.walk(root, seen); err != nil {
			return CPUTimes{}, fmt.Errorf("sample CPU times of process %d: %w", root, err)
		}
		if again && before.start != seen[root].start {
			return CPUTimes{}, fmt.Errorf("sample CPU times of process %d: it has ended", root)
		}
	}
	c.addOrphans(seen)
	c.known = seen
	now.Tree = c.ended
	for _, p := range seen {
		now.Tree += p.seconds
	}
	return now, nil
}

// addOrphans adds to seen the processes that were in a tree and whose parent has
// ended since, and to c.ended those of them that have ended themselves: whoever
// adopted them waits for them outside the tree.
func (c *CPU) addOrphans(seen map[int]process) {
	for pid, before := range c.known {
		if _, ok := seen[pid]; ok {
			continue
		}
		p, err := c.process(pid)
		if err != nil || p.start != before.start {
			if before.orphaned {
				c.ended += before.seconds
			}
			continue // else its time is its parent's now
		}
		if c.walk(pid, seen) != nil {
			continue // it has ended just now
		}
		p = seen[pid]
		_, p.orphaned = seen[p.parent]
		p.orphaned = !p.orphaned
		seen[pid] = p
	}
}

// machine reads the first line of /proc/stat.
func (c *CPU) machine() (CPUTimes, error) {
	path := filepath.Join(c.proc, "stat")
	text, err := os.ReadFile(path)
	if err != nil {
		return CPUTimes{}, err
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	// cpu user nice system idle iowait irq softirq steal guest guest_nice; the
	// guests' times are in user and nice too.
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return CPUTimes{}, fmt.Errorf("%s: its first line is %.80q, expected cpu and 8 numbers or more", path, line)
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
		return CPUTimes{}, fmt.Errorf("%s: it names no core", path)
	}
	return all, nil
}

// walk adds the process pid and its descendants to seen. A process is read after
// its children: if one ends in between, its time counts twice for once, and is
// not taken for that of another program.
func (c *CPU) walk(pid int, seen map[int]process) error {
	if _, ok := seen[pid]; ok {
		return nil
	}
	children, err := c.children(pid)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := c.walk(child, seen); err != nil && !gone(err) {
			return err
		}
	}
	p, err := c.process(pid)
	if err != nil {
		return err
	}
	seen[pid] = p
	return nil
}

// children lists the children of all threads of pid.
func (c *CPU) children(pid int) ([]int, error) {
	tasks := filepath.Join(c.proc, strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil, err
	}
	var pids []int
	for i, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		if err != nil {
			if i > 0 && gone(err) { // of a thread, not of a kernel without this file
				continue
			}
			return nil, err
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("children of process %d: %w", pid, err)
			}
			pids = append(pids, child)
		}
	}
	return pids, nil
}

// process reads /proc/<pid>/stat.
func (c *CPU) process(pid int) (process, error) {
	path := filepath.Join(c.proc, strconv.Itoa(pid), "stat")
	text, err := os.ReadFile(path)
	if err != nil {
		return process{}, err
	}
	// pid (name) state ppid …: a name may hold spaces and parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("%s: %d fields after the name, expected 20 or more", path, len(fields))
	}
	parent, err := strconv.Atoi(fields[1])
	start, startErr := strconv.ParseUint(fields[19], 10, 64)
	ticks := int64(0)
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, e := strconv.ParseInt(field, 10, 64)
		ticks, err = ticks+n, errors.Join(err, e)
	}
	if err = errors.Join(err, startErr); err != nil {
		return process{}, fmt.Errorf("%s: %w", path, err)
	}
	return process{start: start, parent: parent, seconds: float64(ticks) / ticksPerSecond}, nil
}

// gone reports whether err means that a process has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
