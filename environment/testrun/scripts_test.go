package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScriptsOnMacOS checks what the set-up of environment/lib.sh does on macOS. Programs
// that come first in PATH replace uname and those that may be missing there.
func TestScriptsOnMacOS(t *testing.T) {
	const (
		works = "#!/bin/sh\nexit 0\n"
		fails = "#!/bin/sh\nexit 1\n"
	)
	for _, tt := range []struct {
		name     string
		programs map[string]string // source of each program
		script   string            // after lib.sh was read
		exit     int
		output   []string
		not      []string
	}{
		{
			"Go is missing", nil, "GO_NEEDED=99.0; use_go", 3,
			[]string{"Go 99.0 or newer is needed", "brew install go", "https://go.dev/dl/", "then run this again"},
			[]string{"linux"},
		},
		{
			"Jupyter is missing",
			map[string]string{"python3": fails, "apt-get": works},
			"install_missing certificates jupyter", 3,
			[]string{"brew install jupyterlab", "pip install notebook", "then run this again"},
			[]string{"apt", "nothing to install"},
		},
		{
			"Apple's python3 is not started without the developer tools",
			map[string]string{"xcode-select": fails, "python3": fails},
			"install_missing jupyter", 3,
			[]string{"brew install jupyterlab"},
			nil,
		},
		{
			"Jupyter is there",
			map[string]string{"python3": works},
			"install_missing certificates jupyter; echo goes on", 0,
			[]string{"nothing to install", "Jupyter by ", "/python3", "goes on"},
			[]string{"brew"},
		},
		{
			"Jupyter has a folder of its own",
			map[string]string{"python3": fails, "jupyter": "#!{bin}/python-of-jupyter\n", "python-of-jupyter": works},
			"install_missing jupyter", 0,
			[]string{"Jupyter by ", "/python-of-jupyter"},
			nil,
		},
		{
			"no compiler",
			map[string]string{"python3": works, "xcode-select": fails},
			// The first command hides a browser of the machine that runs the test.
			`command() { case $2 in chromium) return 1 ;; *) builtin command "$@" ;; esac; }; install_missing gcc g++ network chromium`, 3,
			[]string{"xcode-select --install", "brew install --cask google-chrome"},
			[]string{"jupyter", "iproute2"},
		},
		// The bash of macOS has no EPOCHREALTIME, and nproc comes from Linux.
		{
			"old bash",
			map[string]string{"nproc": fails},
			`unset EPOCHREALTIME; begin=$(now); case $begin in *[!0-9]* | "") exit 1 ;; *000000) ;; *) exit 1 ;; esac; case $(processors) in [1-9]*) ;; *) exit 1 ;; esac; seconds_since "$begin"`,
			0,
			[]string{"."},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bin := t.TempDir()
			programs := map[string]string{"uname": "#!/bin/sh\necho Darwin\n"}
			for name, text := range tt.programs {
				programs[name] = strings.ReplaceAll(text, "{bin}", bin)
			}
			for name, text := range programs {
				if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.CommandContext(t.Context(), "bash", "-c", `set -euo pipefail; ROOT=$PWD; . environment/lib.sh; `+tt.script)
			c.Dir = filepath.Join("..", "..")
			c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
			out, err := c.CombinedOutput()
			exit := 0
			var x *exec.ExitError
			if errors.As(err, &x) {
				exit = x.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if exit != tt.exit {
				t.Errorf("exit code %d, want %d; output:\n%s", exit, tt.exit, out)
			}
			for _, want := range tt.output {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output has no %q:\n%s", want, out)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(string(out), not) {
					t.Errorf("the output has %q:\n%s", not, out)
				}
			}
		})
	}
}
