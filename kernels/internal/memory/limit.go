// Package memory prevents a kernel from using all memory of its machine or container. At
// a limit the running cell is interrupted; if memory use still grows, the kernel exits.
package memory

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"lockstep/pkg/runs"
)

// EnvVariable sets the limit. Its value is a size, such as 8GiB, or off.
const EnvVariable = "LOCKSTEP_MEMORY"

// A Limit is the amount of memory that the kernel may use.
type Limit struct {
	Bytes    int64 // 0 if there is no limit
	Capacity int64 // memory of the machine or of the container; 0 if unknown
	Set      bool  // the environment variable sets the limit
}

// NewLimit parses the environment variable's value. "" means 80 percent of the memory of the machine or container.
func NewLimit(setting string) (Limit, error) {
	l := Limit{Capacity: memoryCapacity("/", runs.DescribeHost().MemoryBytes), Set: setting != ""}
	switch setting {
	case "":
		l.Bytes = l.Capacity / 10 * 8
	case "off":
	default:
		n, err := humanize.ParseBytes(setting)
		if err != nil || n < 1 || n > math.MaxInt64 {
			return Limit{}, fmt.Errorf("read %s: invalid size %q: want a number with MiB, GiB, MB or GB, such as 8GiB, or off", EnvVariable, setting)
		}
		l.Bytes = int64(n)
	}
	return l, nil
}

// String describes the limit for an error.
func (l Limit) String() string {
	if l.Set {
		return fmt.Sprintf("%s, set by %s", formatBytes(l.Bytes), EnvVariable)
	}
	return fmt.Sprintf("%s, 80 %% of the available memory; set %s to change it", formatBytes(l.Bytes), EnvVariable)
}

func formatBytes(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// memoryCapacity returns the bytes that this process can use: the least of machine, the machine's memory,
// and the limits of the process's control groups. root is the folder that contains proc and sys.
func memoryCapacity(root string, machine int64) int64 {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return machine // not Linux
	}
	limit := machine
	for line := range strings.Lines(string(groups)) {
		// format: number:controllers:path; controllers is empty in version 2
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		folder, file := "sys/fs/cgroup", "memory.max"
		if part[1] != "" {
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if !strings.Contains(","+part[1]+",", ",memory,") {
				continue
			}
		}
		// The parents' limits apply too. In a container, the path may be the machine's, while its own group
		// is the root.
		for dir := filepath.Join("/", part[2]); ; dir = filepath.Dir(dir) {
			b, err := os.ReadFile(filepath.Join(root, folder, dir, file))
			if n, parseErr := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && parseErr == nil && n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// UsedBytes returns the resident memory of this process, or 0 without /proc/self/statm.
func UsedBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64) // 0 if it cannot be read
	return pages * int64(os.Getpagesize())
}
