//go:build notebook

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cosmos72/gomacro/base"

	"lockstep/kernels/internal/cell"
)

// commandHelp is the output of the command %help.
const commandHelp = `at the start of a cell:
%cd [folder]   change the working folder
%help          show this text
$command       run a command in the shell sh, such as $ls -l ~
`

// runCommands runs the commands at the start of a cell; see cell.Commands. An error or an interrupt ends the
// cell by a panic.
func (k *kernelState) runCommands(code string) {
	for _, c := range cell.Commands(code) {
		var err error
		name, arg, _ := strings.Cut(c.Text, " ")
		switch arg = strings.TrimSpace(arg); {
		case c.Text[0] == '$':
			err = k.runShell(c.Text[1:])
		case name == "%cd":
			err = changeFolder(arg)
		case name == "%help":
			fmt.Fprintf(k.stdout.File(), "%s", commandHelp)
		default:
			err = fmt.Errorf("unknown command %s: the kernel has %%cd and %%help, and runs lines that begin with $ in the shell", name)
		}
		if k.session.Interrupted() {
			panic(base.SigInterrupt)
		}
		if err != nil {
			p := cellPosition{ExecCounter, c.Line, 1}
			panic(&cellError{name: nameError, text: fmt.Sprintf("%v: %v", p, err), err: err, places: []cellPosition{p}})
		}
	}
}

// changeFolder changes the working folder. Path may begin with ~ and contain $NAME or ${NAME}; "" is the
// home folder.
func changeFolder(path string) error {
	dir := os.ExpandEnv(path)
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') || dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("change folder: %w", err)
		}
		dir = filepath.Join(home, rest)
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("change folder: %w", err)
	}
	return nil
}

// interruptGrace is how long a command may continue after an interrupt.
const interruptGrace = 2 * time.Second

// runShell runs a line in the shell. Its processes write into the cell's pipes, so all that they wrote is
// there when the shell ends. An exit code other than 0 is shown, and the cell continues. Without a shell,
// runShell returns an error.
func (k *kernelState) runShell(line string) error {
	c := exec.CommandContext(k.session.Context(), "sh", "-c", line)
	c.Stdout, c.Stderr = k.stdout.File(), k.stderr.File()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	signal := func(s syscall.Signal) error { return syscall.Kill(-c.Process.Pid, s) }
	c.Cancel = func() error { return signal(syscall.SIGINT) }
	c.WaitDelay = interruptGrace
	err := c.Run()
	if c.Process != nil && k.session.Interrupted() {
		_ = signal(syscall.SIGKILL) // usually all processes have ended
	}
	k.stdout.Flush()
	k.stderr.Flush()
	if strings.HasPrefix(strings.TrimSpace(line), "cd ") && !strings.ContainsAny(line, "&|;") {
		fmt.Fprintf(k.stdout.File(), "cd has an effect within its line only; %%cd changes the folder of the notebook\n")
	}
	var failed *exec.ExitError
	switch {
	case err == nil || k.session.Interrupted():
	case !errors.As(err, &failed):
		return fmt.Errorf("run command: %w", err)
	case failed.Exited():
		fmt.Fprintf(k.stdout.File(), "exit code %d\n", failed.ExitCode())
	default:
		fmt.Fprintf(k.stdout.File(), "ended by %v\n", failed)
	}
	return nil
}
