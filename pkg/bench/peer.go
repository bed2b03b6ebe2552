package bench

import (
	"context"
	"strconv"

	"lockstep/pkg/bench/internal/comparison"
)

const torchScript = "torch_cpu.py"

// stepsPerMemoryFormat is the number of timed steps in each memory format, before the faster format is chosen.
const stepsPerMemoryFormat = 2

// startFastestTorch measures some steps of PyTorch in each memory format, and leaves the faster one running.
func startFastestTorch(ctx context.Context, torch []string, shape Shape, s workerSetting, precision string, logf func(string, ...any)) (best *comparison.Side, err error) {
	fastest := 0.0
	for _, format := range []string{"contiguous", "channels_last"} {
		argv := append(append([]string{}, torch...), "--threads", strconv.Itoa(s.threads), "--format", format, "--precision", precision)
		one, err := comparison.StartPeer(ctx, comparison.Program{Argv: append(argv, shape.commonFlags()...), Workers: s.workers})
		if err != nil {
			best.Close()
			return nil, err
		}
		seconds, err := measureWarmSteps(one)
		if err != nil {
			best.Close()
			one.Close()
			return nil, err
		}
		logf("%s, %s: %.3f s per step", one.About.Name, s, seconds)
		if best == nil || seconds < fastest {
			best.Close()
			best, fastest = one, seconds
		} else {
			one.Close()
		}
	}
	return best, nil
}

// measureWarmSteps returns the median seconds of stepsPerMemoryFormat steps, after one that is not counted.
func measureWarmSteps(s *comparison.Side) (float64, error) {
	seconds, err := measureInTurns([]*comparison.Side{s}, comparison.RequestStep, 1+stepsPerMemoryFormat)
	if err != nil {
		return 0, err
	}
	return comparison.Median(seconds[0][1:]), nil
}
