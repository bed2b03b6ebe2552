package runs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"lockstep/logs/published"
	"lockstep/logs/recorded"
	"lockstep/pkg/internal/nearest"
)

const logsFolderVariable = "LOCKSTEP_LOGS"

var errNoLogs = errors.New("no logs folder")

// logsMarkerName is the file that Lockstep creates in its logs folders.
const logsMarkerName = ".lockstep"

// logsMarkerText explains the marker to people.
const logsMarkerText = "Lockstep keeps the folders of its runs here. With this file, it also writes new runs here if it is started in a folder below.\n"

// ResolveLogs returns the absolute path of a log path, which need not exist.
//
//   - An absolute path stays as it is.
//   - A path that begins with ./ or ../ is relative to the working directory.
//   - Any other path is relative to the logs folder: $LOCKSTEP_LOGS, else the folder
//     logs in the working directory or in its nearest parent that has one. A first
//     element "logs" is dropped: logs/demo and demo are the same path.
func ResolveLogs(path string) (string, error) {
	return resolveLogs(path, func(string) bool { return true })
}

// resolveLogs implements ResolveLogs. It takes a parent's folder logs only if accept returns true.
func resolveLogs(path string, accept func(logs string) bool) (string, error) {
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	first, _, _ := strings.Cut(filepath.ToSlash(path), "/")
	if first == "." || first == ".." {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", fmt.Errorf("resolve log path %q: %w", path, err)
		}
		return abs, nil
	}
	rest := trimLogsPrefix(path)
	if root := os.Getenv(logsFolderVariable); root != "" {
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
		if s, err := os.Stat(logs); err == nil && s.IsDir() && (dir == wd || accept(logs)) {
			return filepath.Join(logs, rest), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("resolve log path %q: %w: $%s is not set, and neither %s nor a folder above it contains logs/; set %s, create the folder logs, or start the path with ./ or /",
				path, errNoLogs, logsFolderVariable, wd, logsFolderVariable)
		}
	}
}

func trimLogsPrefix(path string) string {
	if first, rest, _ := strings.Cut(filepath.ToSlash(path), "/"); first == "logs" {
		return rest
	}
	return path
}

// isLockstepLogs reports whether a folder logs is for Lockstep's runs: Lockstep created it, it has a run of
// Lockstep, or it belongs to Lockstep's sources. Other programs use this name too.
func isLockstepLogs(logs string) bool {
	if _, err := os.Stat(filepath.Join(logs, logsMarkerName)); err == nil {
		return true
	}
	for _, pattern := range []string{"*/*/" + infoFile, "*/" + infoFile} {
		files, _ := fs.Glob(os.DirFS(logs), pattern) // the pattern is valid
		for _, file := range files {
			if run, err := Read(filepath.Join(logs, filepath.Dir(file))); err == nil && run.Info.Schema > 0 {
				return true
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(logs), "go.mod"))
	return err == nil && bytes.HasPrefix(text, []byte("module lockstep\n"))
}

// ResolveOrCreateLogs returns the absolute path of a log path to be written to. It is like
// ResolveLogs, but takes a parent's folder logs only if Lockstep has created it, it has a run of
// Lockstep, or it belongs to Lockstep's sources. Otherwise it creates the folder logs in the
// working directory and writes a message about it to w.
func ResolveOrCreateLogs(path string, w io.Writer) (string, error) {
	place, err := resolveLogs(path, isLockstepLogs)
	if !errors.Is(err, errNoLogs) {
		return place, err
	}
	dir, err := filepath.Abs("logs")
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, logsMarkerName), []byte(logsMarkerText), 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process may create it too
		return "", fmt.Errorf("create logs folder: %w", err)
	}
	fmt.Fprintf(w, "created %s, the folder of all runs\n", dir)
	return filepath.Join(dir, trimLogsPrefix(path)), nil
}

// PlanLogs returns the path that ResolveOrCreateLogs would return. It creates nothing.
func PlanLogs(path string) (string, error) {
	place, err := resolveLogs(path, isLockstepLogs)
	if !errors.Is(err, errNoLogs) {
		return place, err
	}
	return filepath.Abs(filepath.Join("logs", trimLogsPrefix(path)))
}

// LocateLogs returns the absolute path of existing logs. It tries the path from ResolveLogs first,
// and then path relative to the working directory. For ShippedLogs and the folders published and
// recorded, it finally uses the copy that extractShippedLogs makes.
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
	below := filepath.ToSlash(trimLogsPrefix(path))
	if folder, _, _ := strings.Cut(below, "/"); shippedLogs()[folder] != nil {
		return extractShippedLogs(below)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("locate logs: %s does not exist; %w", here, err)
	case place == here:
		return "", fmt.Errorf("locate logs: %s does not exist; train first, or name another folder", here)
	}
	return "", fmt.Errorf("locate logs: neither %s nor %s exists; train first, or name another folder", place, here)
}

// shippedLogs returns the logs that are part of this program, by folder name.
func shippedLogs() map[string]fs.FS {
	return map[string]fs.FS{"published": published.Files, "recorded": recorded.Files}
}

// ShippedLogs returns the names of the tables and studies that are part of this program, such as
// "published/unet2d-v100.csv" and "recorded/unet2d-cells", by which LocateLogs finds them.
func ShippedLogs() []string {
	var names []string
	for _, folder := range []string{"published", "recorded"} {
		entries, _ := fs.ReadDir(shippedLogs()[folder], ".") // in memory
		for _, e := range entries {
			names = append(names, folder+"/"+e.Name())
		}
	}
	return names
}

// extractShippedLogs returns the absolute path of name, which is a folder of the shipped logs or a
// path in it such as published/NAME.csv. It first writes the folder to the user's cache directory,
// unless it is already there.
func extractShippedLogs(name string) (string, error) {
	folder, below, _ := strings.Cut(name, "/")
	files := shippedLogs()[folder]
	if _, err := fs.Stat(files, cmp.Or(below, ".")); err != nil {
		names := slices.DeleteFunc(ShippedLogs(), func(n string) bool { return !strings.HasPrefix(n, folder+"/") })
		return "", fmt.Errorf("locate %s: Lockstep has no such logs%s; it has %s", name, nearest.Hint(name, names), strings.Join(names, ", "))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("locate %s: find a folder to copy the logs to: %w", name, err)
	}
	dir := filepath.Join(cache, "lockstep", folder)
	err = fs.WalkDir(files, ".", func(file string, d fs.DirEntry, err error) error {
		path := filepath.Join(dir, filepath.FromSlash(file))
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(path, 0o755)
		}
		want, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
			return nil
		}
		return renameio.WriteFile(path, want, 0o644)
	})
	if err != nil {
		return "", fmt.Errorf("locate %s: copy the logs to the cache folder: %w; set XDG_CACHE_HOME to a folder that you can write to", name, err)
	}
	return filepath.Join(dir, filepath.FromSlash(below)), nil
}

// DescribeHost describes this machine. Without /proc, the processor's name is empty and the memory size 0.
func DescribeHost() Host {
	h := Host{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	if name, err := os.Hostname(); err == nil {
		h.Name = name
	}
	h.CPU = readProcField("/proc/cpuinfo", "model name")
	if fields := strings.Fields(readProcField("/proc/meminfo", "MemTotal")); len(fields) == 2 && fields[1] == "kB" {
		if kib, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			h.MemoryBytes = kib << 10
		}
	}
	return h
}

// readProcField returns the value of the first "key : value" line in a file of /proc, or "".
func readProcField(path, key string) string {
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
