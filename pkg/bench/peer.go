package bench

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"lockstep/pkg/bench/internal/comparison"
)

const torchScript = "torch_cpu.py"

// stepsPerMode is the number of timed steps by which the mode of PyTorch is chosen.
const stepsPerMode = 2

// startFastestTorch measures some steps of each version of PyTorch in each memory format, and of the fastest
// of them compiled, and leaves the fastest one running.
func startFastestTorch(ctx context.Context, versions [][]string, shape Shape, s workerSetting, precision string, logf func(string, ...any)) (*comparison.Side, error) {
	f := fastestTorch{ctx: ctx, setting: s, logf: logf}
	flags := append([]string{"--threads", strconv.Itoa(s.threads), "--precision", precision}, shape.commonFlags()...)
	for _, torch := range versions {
		for _, format := range []string{"contiguous", "channels_last"} {
			if err := f.try(slices.Concat(torch, flags, []string{"--format", format})); err != nil {
				f.side.Close()
				return nil, err
			}
		}
	}
	err := f.try(append(f.argv, "--compile"))
	if err != nil && !errors.Is(err, comparison.ErrPeerMissing) { // an old version, or no compiler
		f.side.Close()
		return nil, err
	}
	return f.side, nil
}

// fastestTorch is the fastest of the modes of PyTorch that were tried.
type fastestTorch struct {
	ctx     context.Context
	setting workerSetting
	logf    func(string, ...any)

	side    *comparison.Side // nil until a mode was tried
	argv    []string
	seconds float64 // of a step
}

// try starts PyTorch by argv, and keeps it if it is faster than the modes before it.
func (f *fastestTorch) try(argv []string) error {
	side, err := comparison.StartPeer(f.ctx, comparison.Program{Argv: argv, Workers: f.setting.workers})
	if err != nil {
		return err
	}
	seconds, err := measureWarmSteps(side)
	if err != nil {
		side.Close()
		return err
	}
	f.logf("%s, %s: %.3f s per step", side.About.Name, f.setting, seconds)
	if f.side != nil && seconds >= f.seconds {
		side.Close()
		return nil
	}
	f.side.Close()
	f.side, f.argv, f.seconds = side, argv, seconds
	return nil
}

// measureWarmSteps returns the median seconds of stepsPerMode steps, after one that is not counted.
func measureWarmSteps(s *comparison.Side) (float64, error) {
	seconds, err := measureInTurns([]*comparison.Side{s}, comparison.RequestStep, 1+stepsPerMode)
	if err != nil {
		return 0, err
	}
	return comparison.Median(seconds[0][1:]), nil
}
