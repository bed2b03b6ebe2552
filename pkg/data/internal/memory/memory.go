// Package memory checks that a data set fits into the available memory.
package memory

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CheckFits returns an error if count items of bytesEach bytes do not fit into the available
// memory. what is the setting for the error message, such as "data.count is 3".
func CheckFits(what string, count int, bytesEach float64) error {
	need := float64(count) * bytesEach
	if available := AvailableBytes(); need > available {
		return fmt.Errorf("%s, which needs %s of memory, but %s are available: use fewer or smaller samples", what, FormatGiB(need), FormatGiB(available))
	}
	return nil
}

// FormatGiB formats a number of bytes as in "1.5 GiB".
func FormatGiB(bytes float64) string { return strconv.FormatFloat(bytes/(1<<30), 'f', 1, 64) + " GiB" }

// AvailableBytes returns how many bytes this process can still allocate according to /proc/meminfo
// and the limits of its control groups, or +Inf if neither can be read.
func AvailableBytes() float64 {
	available := math.Inf(1)
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" && f[2] == "kB" {
				if kib, err := strconv.ParseFloat(f[1], 64); err == nil {
					available = kib * 1024
				}
			}
		}
	}
	group, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return available
	}
	// cgroups(7), version 2: one line "0::/path". The limits of all parent groups also apply.
	_, path, ok := strings.Cut(strings.TrimSpace(string(group)), "0::")
	for ok && path != "" {
		dir := filepath.Join("/sys/fs/cgroup", path)
		if most, err := readNumberFile(filepath.Join(dir, "memory.max")); err == nil {
			if used, err := readNumberFile(filepath.Join(dir, "memory.current")); err == nil {
				available = min(available, max(0, most-used))
			}
		}
		if path == "/" {
			break
		}
		path = filepath.Dir(path)
	}
	return available
}

func readNumberFile(path string) (float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
}
