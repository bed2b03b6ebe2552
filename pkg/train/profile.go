package train

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"lockstep/pkg/engine"
)

// Profile selects the steps of a run that are profiled; see engine.Profile.
type Profile struct {
	First, Steps int  // first step, counted from 1, and number of steps; 0 steps: no profile
	Epoch        int  // the epoch, from 1, whose steps First counts; 0: First counts the steps of the run
	Trace        bool // write the time of every kernel to trace-<rank>.json; implied on the CPU and with Epoch
}

// ParseProfile parses "FIRST:STEPS", such as "10:5" for steps 10 to 14 of the run, or
// "epoch=1,steps=0-59" for the first 60 steps of epoch 1. "" means no profile.
func ParseProfile(s string) (Profile, error) {
	if s == "" {
		return Profile{}, nil
	}
	if strings.Contains(s, "=") {
		var epoch, first, last int
		if n, err := fmt.Sscanf(s+";", "epoch=%d,steps=%d-%d;", &epoch, &first, &last); err != nil || n != 3 || epoch < 1 || first < 0 || last < first {
			return Profile{}, fmt.Errorf("parse profile %q: want an epoch counted from 1 and a range of its steps counted from 0, such as epoch=1,steps=0-59", s)
		}
		return Profile{Epoch: epoch, First: first + 1, Steps: last - first + 1}, nil
	}
	first, steps, ok := strings.Cut(s, ":")
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(steps)
	if err := errors.Join(err1, err2); !ok || err != nil || a < 1 || b < 1 {
		return Profile{}, fmt.Errorf("parse profile %q: want the first step and the number of steps, such as 10:5, or epoch=1,steps=0-59", s)
	}
	return Profile{First: a, Steps: b}, nil
}

// startProfile makes the engine profile the steps of WorkerOptions.Profile, if any. The engine
// counts only the batches of this process, so the batches before the checkpoint of a resumed run
// are subtracted.
func (t *Trainer) startProfile() error {
	p := t.options.Profile
	if p.Steps == 0 {
		return nil
	}
	first, last, err := p.stepRange(t.sampler.Steps(), t.cfg.Epochs)
	if err != nil {
		return err
	}
	if done := t.epoch*t.sampler.Steps() + t.progress.steps*t.cfg.batchesPerStep(); first > done {
		first, last = first-done, last-done
	} else {
		return fmt.Errorf("profile step %d: the resumed run has done %d steps already: choose a later step, or start a new run", first, done)
	}
	trace := filepath.Join(t.options.Dir, fmt.Sprintf("trace-%d.json", t.group.Rank()))
	if t.can.Profile != nil {
		window := engine.Profile{First: first, Steps: last - first + 1, Rank: t.group.Rank(), World: t.group.Size()}
		if onCPU := t.can.Accelerator == nil; onCPU || p.Trace || p.Epoch > 0 {
			if t.options.Dir == "" {
				return errors.New("write trace of profile: the worker has no run folder")
			}
			window.Trace = trace
		}
		return t.can.Profile(window)
	}
	return fmt.Errorf("profile steps %d to %d: the engine %s has no profiler: use --device cpu or cuda; the steps-<rank>.jsonl files of the run folder contain the time of each phase", first, last, t.engine.Name())
}

// stepRange returns the first and the last step to profile, counted from 1 at the start of the run.
// steps is the number of steps per epoch. It returns an error if the run does not have these steps,
// because the trace would then never be written.
func (p Profile) stepRange(steps, epochs int) (first, last int, err error) {
	if p.Epoch == 0 {
		first, last = p.First, p.First+p.Steps-1
		if last > steps*epochs {
			err = fmt.Errorf("profile steps %d to %d: the run has only %d steps (%d epochs of %d batches)", first, last, steps*epochs, epochs, steps)
		}
		return first, last, err
	}
	switch end := p.First + p.Steps - 1; {
	case p.Epoch > epochs:
		return 0, 0, fmt.Errorf("profile epoch %d: the run has the epochs 1 to %d", p.Epoch, epochs)
	case end > steps:
		return 0, 0, fmt.Errorf("profile steps %d to %d of epoch %d: an epoch has %d batches: use steps within 0-%d", p.First-1, end-1, p.Epoch, steps, steps-1)
	}
	first = p.First + (p.Epoch-1)*steps
	return first, first + p.Steps - 1, nil
}
