package runs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// logsVariable names the folder of all logs.
const logsVariable = "LOCKSTEP_LOGS"

var errNoLogs = errors.New("no folder of logs")

// ResolveLogs says where a log path lies; nothing needs to exist there.
//
//   - An absolute path stays as it is.
//   - A path that begins with ./ or ../ is relative to the working directory.
//   - Any other is taken inside the folder of logs: $LOCKSTEP_LOGS, else the
//     folder logs of the nearest parent (the working directory first) that
//     has one. Its own first element "logs" means that folder, so that
//     logs/demo and demo are the same place.
func ResolveLogs(path string) (string, error) {
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	first, rest, _ := strings.Cut(filepath.ToSlash(path), "/")
	if first == "." || first == ".." {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", fmt.Errorf("resolve log path %q: %w", path, err)
		}
		return abs, nil
	}
	if first != "logs" {
		rest = path
	}
	if root := os.Getenv(logsVariable); root != "" {
		abs, err := filepath.Abs(filepath.Join(root, rest))
		if err != nil {
			return "", fmt.Errorf("resolve log path %q: %w", path, err)
		}
		return abs, nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("resolve log path %q: %w", path, err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		logs := filepath.Join(dir, "logs")
		if s, err := os.Stat(logs); err == nil && s.IsDir() {
			return filepath.Join(logs, rest), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("resolve log path %q: %w: $%s is not set, and neither %s nor a folder above it holds logs/; set %s, make the folder logs, or give the path with ./ or / in front",
				path, errNoLogs, logsVariable, wd, logsVariable)
		}
	}
}

// MakeLogs is ResolveLogs for a path that is about to be written: where there is no
// folder of logs, it makes logs in the working directory and says so to w.
func MakeLogs(path string, w io.Writer) (string, error) {
	place, err := ResolveLogs(path)
	if !errors.Is(err, errNoLogs) {
		return place, err
	}
	dir, err := filepath.Abs("logs")
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process may make it too
		return "", fmt.Errorf("make folder of logs: %w", err)
	}
	fmt.Fprintf(w, "made %s, the folder of all runs\n", dir)
	return ResolveLogs(path)
}

// LocateLogs says where the logs of path are: where ResolveLogs says, or else
// in the working directory. Nothing in either place is an error.
func LocateLogs(path string) (string, error) {
	place, err := ResolveLogs(path)
	if err == nil {
		if _, e := os.Stat(place); e == nil {
			return place, nil
		}
	}
	here, absErr := filepath.Abs(path)
	if absErr != nil {
		return "", fmt.Errorf("locate %q: %w", path, absErr)
	}
	if _, e := os.Stat(here); e == nil {
		return here, nil
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("there is nothing at %s; %w", here, err)
	case place == here:
		return "", fmt.Errorf("there is nothing at %s; train first, or name another folder of logs", here)
	}
	return "", fmt.Errorf("there is nothing at %s, nor at %s; train first, or name another folder of logs", place, here)
}

// CollectHost describes this machine, as far as it tells: the processor's name
// and the memory come from /proc where that exists.
func CollectHost() Host {
	h := Host{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	if name, err := os.Hostname(); err == nil {
		h.Name = name
	}
	h.CPU = procField("/proc/cpuinfo", "model name")
	if fields := strings.Fields(procField("/proc/meminfo", "MemTotal")); len(fields) == 2 && fields[1] == "kB" {
		if kib, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			h.MemoryBytes = kib << 10
		}
	}
	return h
}

// procField is the value of the first "key : value" line of a file of /proc.
func procField(path, key string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "" // not Linux
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// procLine reads the only line of a file of /proc; it is empty if there is no
// such file.
func procLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "" // not Linux
	}
	return strings.TrimSpace(string(text))
}
