package bench

import (
	"context"
	"errors"
	"fmt"
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
	f := fastestPeer{ctx: ctx, workers: s.workers, measure: measureWarmSteps, logf: logf}
	f.describe = func(seconds float64) string { return fmt.Sprintf("%s: %.3f s per step", s, seconds) }
	flags := append([]string{"--threads", strconv.Itoa(s.threads), "--precision", precision}, shape.commonFlags()...)
	for _, torch := range versions {
		for _, format := range []string{"contiguous", "channels_last"} {
			f.try(slices.Concat(torch, flags, []string{"--format", format}))
		}
	}
	if f.side != nil {
		f.quiet = true // versions before 2 never can
		f.try(append(f.argv, "--compile"))
	}
	return f.finish()
}

// fastestPeer finds the fastest of several programs, or of several modes of a program.
type fastestPeer struct {
	ctx     context.Context
	workers int
	measure func(*comparison.Side) (seconds float64, err error)
	// describe formats the result of measure, for the log.
	describe func(seconds float64) string
	logf     func(string, ...any)
	quiet    bool // do not log that a program cannot run here

	side    *comparison.Side // the fastest so far; nil if there is none
	argv    []string         // of side
	seconds float64          // of side
	missing error            // why a program cannot run here
	err     error            // the first other error, after which nothing is tried any more
}

// try starts a program, and keeps it running if it is faster than those before it.
func (f *fastestPeer) try(argv []string) {
	if f.err != nil {
		return
	}
	side, err := comparison.StartPeer(f.ctx, comparison.Program{Argv: argv, Workers: f.workers})
	if errors.Is(err, comparison.ErrPeerMissing) {
		if f.missing = err; !f.quiet {
			f.logf("left out: %v", err)
		}
		return
	}
	if err != nil {
		f.err = err
		return
	}
	seconds, err := f.measure(side)
	if err != nil {
		side.Close()
		f.err = err
		return
	}
	f.logf("%s, %s", side.About.Name, f.describe(seconds))
	if f.side != nil && seconds >= f.seconds {
		side.Close()
		return
	}
	f.side.Close()
	f.side, f.argv, f.seconds = side, argv, seconds
}

// finish returns the fastest program, or an error if one has failed or none can run.
func (f *fastestPeer) finish() (*comparison.Side, error) {
	if f.err != nil {
		f.side.Close()
		return nil, f.err
	}
	if f.side == nil {
		return nil, f.missing
	}
	return f.side, nil
}

// measureWarmSteps returns the median seconds of stepsPerMode steps, after one that is not counted.
func measureWarmSteps(s *comparison.Side) (float64, error) {
	seconds, err := measureInTurns([]*comparison.Side{s}, comparison.RequestStep, 1+stepsPerMode)
	if err != nil {
		return 0, err
	}
	return comparison.Median(seconds[0][1:]), nil
}
