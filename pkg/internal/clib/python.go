package clib

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pythonTimeout limits how long python3 may take to print its folders.
const pythonTimeout = 10 * time.Second

// listSitePackagesScript prints the folders in which pip installs.
const listSitePackagesScript = `import site, sys
for p in sys.path + site.getsitepackages() + [site.getusersitepackages()]:
    if p.endswith(("site-packages", "dist-packages")):
        print(p)`

func findSitePackages(ctx context.Context) ([]string, error) {
	path, err := exec.LookPath("python3")
	if err != nil {
		return nil, fmt.Errorf("python3 is not on the PATH")
	}
	ctx, cancel := context.WithTimeout(ctx, pythonTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-c", listSitePackagesScript)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("run %s: no answer within %s", path, pythonTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("list package folders of %s: %w (it printed %q)", path, err, strings.TrimSpace(stderr.String()))
	}
	var dirs []string
	for line := range strings.Lines(string(out)) {
		if dir := strings.TrimSpace(line); dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// findPythonFolders returns the site-packages folders of VIRTUAL_ENV and of python3. note is what
// to report if these folders do not contain a library.
func (s *Search) findPythonFolders() (dirs []string, note string) {
	note = "they contain no CUDA libraries"
	if venv := s.env.Getenv("VIRTUAL_ENV"); venv != "" {
		found, err := filepath.Glob(filepath.Join(escapeGlob(venv), "lib", "python3*", "site-packages"))
		if err == nil {
			dirs = append(dirs, found...)
		}
	}
	more, err := s.env.Python(context.Background())
	if err != nil {
		return dirs, err.Error()
	}
	for _, dir := range more {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil, "python3 has none"
	}
	return dirs, note + ": " + strings.Join(dirs, ", ")
}
