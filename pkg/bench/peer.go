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

// trialRepeats is how often a program is measured to choose the fastest of several, after once that does not count.
const trialRepeats = 3

// startFastestTorch measures some steps of each version of PyTorch in each memory format, and of the fastest
// of them compiled, and leaves the fastest one running.
func startFastestTorch(ctx context.Context, versions [][]string, shape Shape, s workerSetting, precision string, logf func(string, ...any)) (*comparison.Side, error) {
	f := fastestPeer{ctx: ctx, workers: s.workers, request: comparison.RequestStep, logf: logf}
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

// fastestPeer finds the fastest of several programs, or of several modes of a program. Each is measured in
// turns with the fastest of those before it.
type fastestPeer struct {
	ctx     context.Context
	workers int
	request string // what is measured
	// describe formats the median of the seconds of the request, for the log.
	describe func(seconds float64) string
	logf     func(string, ...any)
	quiet    bool // do not log that a program cannot run here

	side    *comparison.Side // the fastest so far; nil if there is none
	argv    []string         // of side
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
	if len(seconds) == 1 {
		f.logf("%s, %s", side.About.Name, f.describe(seconds[0]))
	} else {
		f.logf("%s, %s; %s, %s", side.About.Name, f.describe(seconds[0]), f.side.About.Name, f.describe(seconds[1]))
		if seconds[0] >= seconds[1] {
			side.Close()
			return
		}
	}
	f.side.Close()
	f.side, f.argv = side, argv
}

// measure returns the median seconds of the request of side, and of the fastest program so far, if there is one.
func (f *fastestPeer) measure(side *comparison.Side) ([]float64, error) {
	sides := []*comparison.Side{side}
	if f.side != nil {
		sides = append(sides, f.side)
	}
	all, err := measureInTurns(sides, f.request, 1+trialRepeats)
	if err != nil {
		return nil, err
	}
	var medians []float64
	for _, seconds := range all {
		medians = append(medians, comparison.Median(seconds[1:]))
	}
	return medians, nil
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
