package kernelspec

import (
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/notebook"
)

// program writes a shell script that stands for a binary.
func program(t *testing.T, path, body string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil { // the file may have been there
		t.Fatal(err)
	}
	return path
}

func TestInstallWritesAKernelspec(t *testing.T) {
	src, prefix := t.TempDir(), t.TempDir()
	kernel := program(t, filepath.Join(src, "lockstep-kernel"), "echo kernel")
	command := program(t, filepath.Join(src, "lockstep"), "echo command")
	var dir string
	for range 2 { // the second run replaces the first
		var err error
		if dir, err = Install(Options{Prefix: prefix, Kernel: kernel, Command: command}); err != nil {
			t.Fatal(err)
		}
	}
	if want := filepath.Join(prefix, "share", "jupyter", "kernels", "lockstep"); dir != want {
		t.Errorf("installed in %s, want %s", dir, want)
	}
	doc, err := os.ReadFile(filepath.Join(dir, "kernel.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s kernelJSON
	if err := json.Unmarshal(doc, &s); err != nil {
		t.Fatal(err)
	}
	if s.DisplayName != "Go (Lockstep)" || s.Language != "go" || s.Name != "lockstep" || s.InterruptMode != "signal" {
		t.Errorf("kernel.json is %s", doc)
	}
	if len(s.Argv) != 2 || s.Argv[0] != filepath.Join(dir, "lockstep-kernel") || s.Argv[1] != "{connection_file}" {
		t.Errorf("argv is %q", s.Argv)
	}
	if s.Env["LOCKSTEP_BIN"] != filepath.Join(dir, "lockstep") {
		t.Errorf("env is %q", s.Env)
	}
	for _, pair := range [][2]string{{kernel, s.Argv[0]}, {command, s.Env["LOCKSTEP_BIN"]}} {
		want, err := os.ReadFile(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not a copy of %s", pair[1], pair[0])
		}
		if info, err := os.Stat(pair[1]); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %v (%v), want 0755", pair[1], info.Mode(), err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 6 {
		t.Errorf("the folder holds %v, want six files and nothing half-written", entries)
	}
	// The sizes are those that Jupyter's documentation of kernelspecs names.
	for name, size := range map[string]int{"logo-32x32.png": 32, "logo-64x64.png": 64} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if c, err := png.DecodeConfig(f); err != nil || c.Width != size || c.Height != size {
			t.Errorf("%s has %d×%d pixels (%v), want %d×%[5]d", name, c.Width, c.Height, err, size)
		}
	}
}

// The order is jupyter_core's: paths.jupyter_data_dir.
func TestDirFollowsJupyter(t *testing.T) {
	t.Setenv("HOME", "/home/ada")
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("JUPYTER_DATA_DIR", "")
	check := func(o Options, want string) {
		t.Helper()
		got, err := Dir(o)
		if err != nil || got != want {
			t.Errorf("Dir(%+v) = %q, %v, want %q", o, got, err, want)
		}
	}
	check(Options{}, "/home/ada/.local/share/jupyter/kernels/lockstep")
	check(Options{User: true}, "/home/ada/.local/share/jupyter/kernels/lockstep")
	check(Options{Sys: true}, "/usr/local/share/jupyter/kernels/lockstep")
	check(Options{Prefix: "/opt/venv"}, "/opt/venv/share/jupyter/kernels/lockstep")
	t.Setenv("XDG_DATA_HOME", "/data")
	check(Options{}, "/data/jupyter/kernels/lockstep")
	t.Setenv("JUPYTER_DATA_DIR", "/jupyter")
	check(Options{}, "/jupyter/kernels/lockstep")
	if _, err := Dir(Options{User: true, Sys: true}); err == nil || !strings.Contains(err.Error(), "choose one of them") {
		t.Errorf("two places give %v", err)
	}
}

func TestInstallSaysHowToBuild(t *testing.T) {
	src, prefix := t.TempDir(), t.TempDir()
	command := program(t, filepath.Join(src, "lockstep"), "")
	install := func(o Options, want ...string) {
		t.Helper()
		o.Prefix = prefix
		_, err := Install(o)
		if err == nil {
			t.Fatalf("Install(%+v) gives no error", o)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error is %q, want %q in it", err, w)
			}
		}
	}
	install(Options{Command: command}, filepath.Join(src, "lockstep-kernel"), "go run ./kernels/build")

	kernel := filepath.Join(src, "lockstep-kernel")
	if err := os.WriteFile(kernel, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	install(Options{Command: command}, "is not a program", "go run ./kernels/build")

	// Without Command the running program, this test, is the command.
	program(t, kernel, "echo lockstep-kernel 0123456789abcdef")
	install(Options{Kernel: kernel}, "has build id 0123456789abcdef but this command has build id "+notebook.BuildID())
	program(t, kernel, "echo something else")
	install(Options{Kernel: kernel}, "--version printed")
	program(t, kernel, "exit 1")
	install(Options{Kernel: kernel}, "get version of "+kernel)
	if _, err := os.Stat(filepath.Join(prefix, "share")); !os.IsNotExist(err) {
		t.Errorf("a failed Install left %s behind: %v", filepath.Join(prefix, "share"), err)
	}
	program(t, kernel, "echo lockstep-kernel "+notebook.BuildID())
	if _, err := Install(Options{Kernel: kernel, Prefix: prefix}); err != nil {
		t.Error(err)
	}
}
