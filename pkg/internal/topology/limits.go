package topology

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// CPUQuota returns the number of CPUs, such as 1.5, whose time this process may use, and the
// folder of the control group that sets this quota. The processes in that group share the quota.
// If no group limits the process, CPUQuota returns +Inf and "".
//
// root is the root folder of the file system. CPUQuota reads cpu.max (cgroup version 2) and
// cpu.cfs_quota_us (version 1) of the process's group and of all groups above it. See cgroups(7).
func CPUQuota(root fs.FS) (quota float64, folder string) {
	quota = math.Inf(1)
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return quota, ""
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		if len(fields) != 3 {
			continue
		}
		var mounts []string
		var read func(folder string) (float64, bool)
		switch {
		case fields[1] == "":
			mounts, read = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, func(f string) (float64, bool) { return readCgroupV2Quota(root, f) }
		case slices.Contains(strings.Split(fields[1], ","), "cpu"):
			mounts, read = []string{"sys/fs/cgroup/" + fields[1], "sys/fs/cgroup/cpu"}, func(f string) (float64, bool) { return readCgroupV1Quota(root, f) }
		}
		for _, mount := range mounts {
			// In a container the path may not exist below the mount, but the root group does.
			for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
				if v, ok := read(path.Join(mount, group)); ok && v <= quota { // of equal ones, the group with more processes
					quota, folder = v, path.Join(mount, group)
				}
				if group == "/" {
					break
				}
			}
		}
	}
	return quota, folder
}

// readCgroupV2Quota reads cpu.max of cgroup version 2 and returns the quota in CPUs. The file
// contains a quota and a period in microseconds, such as "150000 100000". ok is false if there
// is no such file or no limit ("max 100000").
func readCgroupV2Quota(root fs.FS, folder string) (cpus float64, ok bool) {
	text, err := fs.ReadFile(root, path.Join(folder, "cpu.max"))
	if err != nil {
		return 0, false
	}
	quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return parseCPUQuota(quota, period)
}

// readCgroupV1Quota reads the quota and the period of cgroup version 1 and returns the quota in
// CPUs. ok is false if there are no such files or no limit (a quota of −1).
func readCgroupV1Quota(root fs.FS, folder string) (cpus float64, ok bool) {
	quota, err := fs.ReadFile(root, path.Join(folder, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, false
	}
	period, err := fs.ReadFile(root, path.Join(folder, "cpu.cfs_period_us"))
	if err != nil {
		return 0, false
	}
	return parseCPUQuota(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period)))
}

// parseCPUQuota returns quota/period. ok is false unless both are positive numbers.
func parseCPUQuota(quota, period string) (v float64, ok bool) {
	q, err := strconv.ParseFloat(quota, 64)
	if err != nil || q <= 0 {
		return 0, false
	}
	p, err := strconv.ParseFloat(period, 64)
	if err != nil || p <= 0 {
		return 0, false
	}
	return q / p, true
}

// initialPIDNamespace identifies the PID namespace in which Linux starts (PROC_PID_INIT_INO
// in linux/proc_ns.h). Containers have other namespaces.
const initialPIDNamespace = "pid:[4026531836]"

// CanSeeAllProcesses reports whether this process can see the other processes of the machine in
// the folder proc. It cannot do so in a container, or if proc is mounted with hidepid.
// namespace is the target of the link /proc/self/ns/pid.
func CanSeeAllProcesses(proc fs.FS, namespace string) bool {
	if namespace != initialPIDNamespace {
		return false
	}
	_, err := fs.ReadFile(proc, "1/status")
	return err == nil
}

// CPUsBoundByOthers returns those of the allowed CPUs to which another process is bound, in ascending
// order. A process counts as bound if it may run on some, but not on all, of the allowed CPUs.
// Threads of the operating system do not count. proc is the folder /proc, and self is the ID of
// this process.
func CPUsBoundByOthers(proc fs.FS, self int, allowed []int) ([]int, error) {
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return nil, err
	}
	taken := map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == self {
			continue
		}
		text, err := fs.ReadFile(proc, path.Join(e.Name(), "status"))
		if err != nil {
			continue // it has ended, or belongs to another user
		}
		var own []int
		for _, id := range parseAllowedCPUs(string(text)) {
			if _, ok := slices.BinarySearch(allowed, id); ok {
				own = append(own, id)
			}
		}
		if len(own) < len(allowed) {
			for _, id := range own {
				taken[id] = true
			}
		}
	}
	var cpus []int
	for _, id := range allowed {
		if taken[id] {
			cpus = append(cpus, id)
		}
	}
	return cpus, nil
}

// parseAllowedCPUs returns the CPUs on which a process may run, from its status file (see
// proc(5)); nil for a thread of the operating system and for a process that has ended.
func parseAllowedCPUs(status string) []int {
	var cpus []int
	hasMemory := false
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "VmSize": // threads of the operating system and zombies have no such line
			hasMemory = true
		case "Cpus_allowed_list":
			var err error
			if cpus, err = ParseCPUList(value); err != nil {
				return nil
			}
		}
	}
	if !hasMemory {
		return nil
	}
	return cpus
}
