package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// capSysResource is the number of CAP_SYS_RESOURCE. A process with this capability ignores the
// limit on the number of processes of its user (capabilities(7)).
const capSysResource = 24

// CheckThreadLimit returns an error if this process may not start the given number of additional
// processes and threads, because of its user's limit (ulimit -u) or its container's limit.
// Without this check, starting a thread fails, and the program crashes with the stacks of all its
// threads. Existing threads are counted in proc, which is "/proc" except in tests.
func CheckThreadLimit(proc string, more int) error {
	for _, l := range []func(proc string) (limit, used int, name string){userThreadLimit, cgroupThreadLimit} {
		if limit, used, name := l(proc); limit >= 0 && used+more > limit {
			return fmt.Errorf("%s allows %d processes and threads, %d exist, and %d more are needed: end other programs, or raise the limit", name, limit, used, more)
		}
	}
	return nil
}

// maxCountedThreads is the largest limit for which threads are counted. Higher limits are not
// reached in practice, and reading all of /proc takes time.
const maxCountedThreads = 5_000

// userThreadLimit returns the limit on the number of this user's threads, the number of existing
// threads, and the limit's name for messages. limit is -1 if there is no limit.
func userThreadLimit(proc string) (limit, used int, name string) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &r); err != nil || r.Cur > maxCountedThreads {
		return -1, 0, ""
	}
	if caps, err := strconv.ParseUint(readStatusField(filepath.Join(proc, "self/status"), "CapEff"), 16, 64); err != nil || caps>>capSysResource&1 == 1 {
		return -1, 0, ""
	}
	uid := strconv.Itoa(os.Getuid())
	all, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "status")) // only a bad pattern is an error
	for _, path := range all {
		if owner, _, _ := strings.Cut(readStatusField(path, "Uid"), "\t"); owner != uid {
			continue
		}
		if n, err := strconv.Atoi(readStatusField(path, "Threads")); err == nil {
			used += n
		}
	}
	return int(r.Cur), used, "the limit on your processes (ulimit -u)"
}

// readStatusField returns a field of a status file in /proc, or "" if the file cannot be read.
func readStatusField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		if value, ok := strings.CutPrefix(string(line), name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// cgroupThreadLimit returns the limit that leaves this process the fewest threads, among the
// limits of its control groups (version 2). used is the number of threads in that group, and name
// is the limit's name for messages. limit is -1 if there is no limit.
func cgroupThreadLimit(proc string) (limit, used int, name string) {
	limit, name = -1, "the limit of this container or job (pids.max)"
	text, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return limit, 0, name
	}
	_, place, _ := strings.Cut(string(text), "0::")
	place, _, _ = strings.Cut(place, "\n")
	const root = "/sys/fs/cgroup"
	for dir := filepath.Join(root, filepath.Clean("/"+place)); len(dir) >= len(root); dir = filepath.Dir(dir) {
		most, ok := readIntFile(filepath.Join(dir, "pids.max"))
		now, known := readIntFile(filepath.Join(dir, "pids.current"))
		if ok && known && (limit < 0 || most-now < limit-used) {
			limit, used = most, now
		}
	}
	return limit, used, name
}

func readIntFile(path string) (n int, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}
