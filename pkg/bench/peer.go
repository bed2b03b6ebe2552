package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Advice is what installs the peers.
const Advice = "environment/peers/install"

// ErrPeerMissing is wrapped by the error of a comparison whose peer is not on
// this machine.
var ErrPeerMissing = errors.New("the peer of this benchmark is missing")

// PeerOptions say where the peers are.
type PeerOptions struct {
	Scripts string // folder of the peers' scripts; empty: environment/peers of the checkout
	Python  string // interpreter; empty: the first of Debian's and PATH's python3 that has PyTorch
}

const torchScript = "torch_cpu.py"

// missingExit is the exit code of a peer's script that lacks its library.
const missingExit = 3

// torch is the command line of the PyTorch peer, without its arguments.
func (o PeerOptions) torch(ctx context.Context) ([]string, error) { return o.pytorch(ctx, torchScript) }

// pytorch is the command line of a script that needs PyTorch.
func (o PeerOptions) pytorch(ctx context.Context, name string) ([]string, error) {
	script, err := o.script(name)
	if err != nil {
		return nil, err
	}
	if o.Python != "" {
		return []string{o.Python, script}, nil
	}
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		// Finding torch takes a moment, importing it seconds.
		find := exec.CommandContext(ctx, python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)")
		if find.Run() == nil {
			return []string{python, script}, nil
		}
	}
	return nil, fmt.Errorf("%w: no python3 here has PyTorch: install it with %s", ErrPeerMissing, Advice)
}

// script finds a peer's script: in the folder that was named, else in
// environment/peers above the working directory or above this program.
func (o PeerOptions) script(name string) (string, error) {
	if o.Scripts != "" {
		path := filepath.Join(o.Scripts, name)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%w: %w: name the folder environment/peers of the checkout", ErrPeerMissing, err)
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
	return "", fmt.Errorf("%w: there is no environment/peers/%s above %v: run this in the checkout, where %s lies too, or name that folder with --peers", ErrPeerMissing, name, from, Advice)
}

// startPeer starts a peer and says what to do where its library is missing.
func startPeer(ctx context.Context, p program) (*side, error) {
	s, err := start(ctx, p)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == missingExit {
		return nil, fmt.Errorf("%w: %w: install it with %s", ErrPeerMissing, err, Advice)
	}
	return s, err
}

// The memory formats of PyTorch, of which the faster is compared with.
func memoryFormats() []string { return []string{"contiguous", "channels_last"} }

// formatSteps are the steps that decide between memory formats, after one that
// does not count.
const formatSteps = 2

// fastestTorch starts PyTorch in each memory format, warms it up, and leaves
// the faster one running.
func fastestTorch(ctx context.Context, torch []string, shape Shape, s setting, say func(string, ...any)) (best *side, err error) {
	fastest := 0.0
	for _, format := range memoryFormats() {
		argv := append(append([]string{}, torch...), "--threads", strconv.Itoa(s.threads), "--format", format)
		one, err := startPeer(ctx, program{argv: append(argv, shape.arguments()...), workers: s.workers})
		if err != nil {
			best.close()
			return nil, err
		}
		seconds, err := warmedUp(one, formatSteps)
		if err != nil {
			best.close()
			one.close()
			return nil, err
		}
		say("%s, %s: %.3f s a step", one.about.Name, s, seconds)
		if best == nil || seconds < fastest {
			best.close()
			best, fastest = one, seconds
		} else {
			one.close()
		}
	}
	return best, nil
}

// warmedUp is the median of some steps after one that does not count.
func warmedUp(s *side, steps int) (float64, error) {
	var seconds []float64
	for i := range 1 + steps {
		v, err := s.seconds(requestStep)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			seconds = append(seconds, v)
		}
	}
	return median(seconds), nil
}
