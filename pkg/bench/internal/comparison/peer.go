package comparison

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// InstallCommand installs the peers, the programs that Lockstep is compared with.
const InstallCommand = "environment/peers/install"

// ErrPeerMissing is wrapped by the error of a comparison if the program to compare with,
// such as PyTorch, is not installed.
var ErrPeerMissing = errors.New("the peer of this benchmark is missing")

// PeerOptions describes how to find the peers, which are Python programs.
type PeerOptions struct {
	Scripts string // folder with the peers' scripts; empty: environment/peers of the checkout
	Python  string // interpreter; empty: the first of /usr/bin/python3 and the python3 in PATH that has the modules
}

// peerMissingExitCode is the exit code of a peer's script without a library that it needs.
const peerMissingExitCode = 3

// ScriptCommand returns a command line, without the script's arguments, that runs a peer's script
// with the first python3 that has the modules. what names the modules in the error.
func (o PeerOptions) ScriptCommand(ctx context.Context, script, what string, modules ...string) ([]string, error) {
	path, err := o.findScript(script)
	if err != nil {
		return nil, err
	}
	if o.Python != "" {
		return []string{o.Python, path}, nil
	}
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		// Finding a module takes a moment, importing it may take seconds.
		find := exec.CommandContext(ctx, python, append([]string{"-c", "import importlib.util as u, sys; sys.exit(None in [u.find_spec(m) for m in sys.argv[1:]])"}, modules...)...)
		if find.Run() == nil {
			return []string{python, path}, nil
		}
	}
	it := "it"
	if len(modules) > 1 {
		it = "them"
	}
	return nil, fmt.Errorf("%w: found no python3 with %s: install %s with %s", ErrPeerMissing, what, it, InstallCommand)
}

// TorchCommands returns the command lines of a script that needs PyTorch, one for each version: by o.Python,
// or else by the first python3 that has PyTorch, and by the versions that InstallCommand has made with --torch.
func (o PeerOptions) TorchCommands(ctx context.Context, script string) ([][]string, error) {
	path, err := o.findScript(script)
	if err != nil {
		return nil, err
	}
	var all [][]string
	first, err := o.ScriptCommand(ctx, script, "PyTorch", "torch")
	if err == nil {
		all = append(all, first)
	}
	if o.Python == "" {
		made, globErr := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(path)), ".cache", "torch-*", "python3"))
		if globErr != nil {
			return nil, globErr
		}
		for _, python := range made {
			all = append(all, []string{python, path})
		}
	}
	if len(all) > 0 {
		err = nil
	}
	return all, err
}

// OpenMPICommand returns a command line that starts the given number of processes on this machine
// with Open MPI. The caller must append the program and its arguments.
func OpenMPICommand(ctx context.Context, processes int) ([]string, error) {
	for _, name := range []string{"mpirun.openmpi", "mpirun"} {
		version, err := exec.CommandContext(ctx, name, "--version").Output()
		if err != nil || !strings.Contains(string(version), "Open MPI") {
			continue
		}
		argv := []string{name, "-n", strconv.Itoa(processes), "--oversubscribe"}
		if os.Geteuid() == 0 {
			argv = append(argv, "--allow-run-as-root")
		}
		return argv, nil
	}
	return nil, fmt.Errorf("%w: found no mpirun of Open MPI: install openmpi-bin with %s", ErrPeerMissing, InstallCommand)
}

// findScript returns the path of a peer's script. It searches o.Scripts or, if that is empty,
// environment/peers in the working directory, the folder of this program, and their parent folders.
func (o PeerOptions) findScript(name string) (string, error) {
	if o.Scripts != "" {
		path := filepath.Join(o.Scripts, name)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%w: %w: use the folder environment/peers of the checkout", ErrPeerMissing, err)
		}
		return path, nil
	}
	var from []string
	if dir, err := os.Getwd(); err == nil {
		from = append(from, dir)
	}
	if self, err := os.Executable(); err == nil {
		from = append(from, filepath.Dir(self))
	}
	for _, dir := range from {
		for ; ; dir = filepath.Dir(dir) {
			path := filepath.Join(dir, "environment", "peers", name)
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("%w: found no environment/peers/%s in the parent folders of %v: run this in the checkout, which contains %s, or set --peers to that folder", ErrPeerMissing, name, from, InstallCommand)
}

// StartPeer starts a peer. If it lacks a library, the error says how to install it.
func StartPeer(ctx context.Context, p Program) (*Side, error) {
	s, err := Start(ctx, p)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == peerMissingExitCode {
		return nil, fmt.Errorf("%w: %w: install it with %s", ErrPeerMissing, err, InstallCommand)
	}
	return s, err
}
