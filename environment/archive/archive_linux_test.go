// Package archive_test tests the archives that environment/release makes.
package archive_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const platform = "linux-amd64"

// command runs a program in dir with additional environment variables and returns its output.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// checkout returns the folder of this checkout.
func checkout(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// python returns the Python interpreter that has Jupyter.
func python(t *testing.T) string {
	t.Helper()
	interpreter := os.Getenv("LOCKSTEP_PYTHON")
	if interpreter == "" {
		interpreter = "/usr/bin/python3"
	}
	if exec.CommandContext(t.Context(), interpreter, "-c", "import nbconvert, jupyter_client").Run() != nil {
		t.Skip("no Jupyter on this machine: nbconvert and jupyter_client are not installed")
	}
	return interpreter
}

// release makes the archives of the checkout in root and returns their folder.
func release(t *testing.T, root string) string {
	t.Helper()
	out := t.TempDir()
	command(t, root, []string{"SOURCE_DATE_EPOCH=1700000000"}, filepath.Join(root, "environment", "release"), "--out", out, "--platforms", platform)
	return out
}

// TestArchive makes the archive twice, from two checkouts in different folders, and compares the
// bits. Then it installs the archive and works with it in a mount namespace that has neither Go
// nor a checkout, and in a network namespace that has only the loopback interface.
func TestArchive(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the archive with the kernel is made on linux-amd64 alone")
	}
	interpreter := python(t)
	for _, name := range []string{"git", "ip", "unshare"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s on this machine", name)
		}
	}
	namespaces := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		namespaces = append(namespaces, "--user", "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(namespaces, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces can be created here: %s", bytes.TrimSpace(out))
	}
	root := checkout(t)
	if exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse").Run() != nil {
		t.Skip("the checkout is not git's, so that the files of an archive are unknown")
	}
	first := release(t, root)

	other := filepath.Join(t.TempDir(), "lockstep")
	command(t, root, nil, "sh", "-c", `mkdir "$1" && git ls-files -z | tar -c --null --files-from=- | tar -x -C "$1" && git -C "$1" init -q && git -C "$1" add -A`, "sh", other)
	second := release(t, other)
	name, err := filepath.Glob(filepath.Join(first, "*.tar.gz"))
	if err != nil || len(name) != 1 {
		t.Fatalf("found the archives %q, %v", name, err)
	}
	sums := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if sums(first) != sums(second) {
		t.Errorf("two checkouts of the same sources give different archives:\n%s%s", sums(first), sums(second))
	}
	command(t, first, nil, "sha256sum", "--check", "SHA256SUMS")

	unpacked := t.TempDir()
	command(t, unpacked, nil, "tar", "-xzf", name[0], "--strip-components=1")
	t.Run("files", func(t *testing.T) { checkFiles(t, unpacked) })
	t.Run("refusals", func(t *testing.T) { checkRefusals(t, unpacked) })
	t.Run("without Go", func(t *testing.T) {
		notebook := filepath.Join(t.TempDir(), "first.ipynb")
		writeFirstCells(t, unpacked, notebook)
		script, err := os.ReadFile(filepath.Join("testdata", "without-go.sh"))
		if err != nil {
			t.Fatal(err)
		}
		goFolders := strings.Fields(command(t, root, nil, "go", "env", "GOROOT", "GOMODCACHE", "GOCACHE"))
		args := append(namespaces, "bash", "-c", string(script), "bash", unpacked, notebook, interpreter)
		out := command(t, unpacked, []string{"HOME=" + t.TempDir(), "LOCKSTEP_LOGS=", "JUPYTER_DATA_DIR=", "JUPYTER_PATH=", "XDG_DATA_HOME=", "XDG_CACHE_HOME=", "XDG_STATE_HOME=", "LOCKSTEP_BIN="},
			"unshare", append(append(args, goFolders...), filepath.Join(root, "pkg"), filepath.Join(root, "kernels"), filepath.Join(root, "notebooks"), filepath.Join(root, "logs"))...)
		for _, want := range []string{"installed the kernel", "speedup.png", "a running kernel continues"} {
			if !strings.Contains(out, want) {
				t.Errorf("the output has no %q:\n%s", want, out)
			}
		}
		t.Log(out)
	})
}

// writeFirstCells writes a notebook with the cells of the README's section "The first cell", and
// with fewer epochs.
func writeFirstCells(t *testing.T, dir, file string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## The first cell\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(section, -1)
	if len(blocks) == 0 || strings.Count(section, "Resume: true") != 1 {
		t.Fatalf("the README has %d first cells", len(blocks))
	}
	type cell struct {
		Type     string         `json:"cell_type"`
		Source   string         `json:"source"`
		Metadata map[string]any `json:"metadata"`
		Count    *int           `json:"execution_count"`
		Outputs  []any          `json:"outputs"`
	}
	var cells []cell
	for _, b := range blocks {
		cells = append(cells, cell{"code", strings.Replace(b[1], "Resume: true", "Resume: true, Epochs: 1", 1), map[string]any{}, nil, []any{}})
	}
	text, err := json.Marshal(map[string]any{
		"nbformat": 4, "nbformat_minor": 4, "cells": cells,
		"metadata": map[string]any{"kernelspec": map[string]any{"name": "lockstep", "display_name": "Go (Lockstep)", "language": "go"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkFiles checks that the links of the documents in the unpacked archive lead to files and headings, and
// that the license of each module is there.
func checkFiles(t *testing.T, dir string) {
	link := regexp.MustCompile(`\]\(([^)\s#:]*)(?:#([^)\s]*))?\)`)
	pages := 0
	err := filepath.WalkDir(dir, func(page string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		pages++
		text, err := os.ReadFile(page)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if m[2] != "" && !slices.Contains(headings(t, target), m[2]) {
				t.Errorf("%s: %s has no heading %s", page, target, m[2])
			}
		}
		return err
	})
	if err != nil || pages < 10 {
		t.Errorf("read %d documents, %v", pages, err)
	}
	list, err := os.ReadFile(filepath.Join(dir, "licenses", "MODULES"))
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Split(strings.TrimSpace(string(list)), "\n")
	for _, module := range append(modules, "go") {
		if files, err := os.ReadDir(filepath.Join(dir, "licenses", strings.Fields(module)[0])); err != nil || len(files) == 0 {
			t.Errorf("module %s has no license: %v", module, err)
		}
	}
	for _, want := range []string{"gorgonia.org/gorgonia ", "github.com/gopherdata/gophernotes ", "github.com/cosmos72/gomacro "} {
		if !strings.Contains("\n"+string(list), "\n"+want) {
			t.Errorf("licenses/MODULES has no %s", want)
		}
	}
}

// headings returns the anchors of a document's headings: in lower case, blanks as hyphens, without punctuation.
func headings(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(anchor, " ", "-"))
	}
	return list
}

// checkRefusals checks what ./install says where the archive cannot be installed.
func checkRefusals(t *testing.T, dir string) {
	fake := func(t *testing.T, name, body string) string {
		t.Helper()
		bin := t.TempDir()
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return "PATH=" + bin + ":" + os.Getenv("PATH")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	machine := func(system, processor string) string {
		return fake(t, "uname", `case $1 in -s) echo `+system+` ;; -m) echo `+processor+` ;; esac`)
	}
	for _, c := range []struct {
		name string
		env  string
		args []string
		code int
		want string
	}{
		{"arm64", machine("Linux", "aarch64"), nil, 3, "this archive is for linux-amd64, but this machine is linux-arm64: get lockstep-*-linux-arm64.tar.gz"},
		{"macOS", machine("Darwin", "arm64"), nil, 3, "get lockstep-*-darwin-arm64.tar.gz"},
		{"RISC-V", machine("Linux", "riscv64"), nil, 3, "for which there is no archive"},
		{"musl", fake(t, "getconf", "exit 1"), nil, 3, "this system has no glibc"},
		{"two places", "", []string{"--user", "--sys"}, 2, "choose one of"},
		{"no folder", "", []string{"--prefix"}, 2, "--prefix needs a folder"},
		{"empty folder", "", []string{"--prefix="}, 2, "--prefix needs a folder"},
		{"unknown", "", []string{"--global"}, 2, `unknown argument "--global"`},
		{"a file", "", []string{"--prefix", file}, 1, "choose a folder that you can write to"},
		{"below a file", "", []string{"--prefix", filepath.Join(file, "x")}, 1, "choose a folder that you can write to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "install"), c.args...)
			cmd.Env = append(os.Environ(), "HOME="+home)
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.want) {
				t.Errorf("exit code %d, want %d, with %q:\n%s", code, c.code, c.want, out)
			}
			if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
				t.Errorf("a refused installation left %v, %v", left, err)
			}
		})
	}
	t.Run("checkout", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), "./install").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "go run ./kernels/build") {
			t.Errorf("in a checkout: %v\n%s", err, out)
		}
	})
}
