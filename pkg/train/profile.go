package train

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/engine/cpu"
	"lockstep/pkg/engine/cuda"
)

// Profile selects the steps of a run that are profiled; see cuda.Profile and cpu.Profile.
type Profile struct {
	First, Steps int  // first step, counted from 1, and number of steps; 0 steps: no profile
	Epoch        int  // epoch in which First counts, from 1; 0: First counts from the start of the run
	Trace        bool // write the time of every kernel to trace-<rank>.json; implied on the CPU and with Epoch
}

// ParseProfile parses "FIRST:STEPS", such as "10:5" for steps 10 to 14 of the run, or
// "epoch=1,steps=0-59" for the first 60 steps of epoch 1. An empty string means no profile.
func ParseProfile(s string) (Profile, error) {
	if s == "" {
		return Profile{}, nil
	}
	if strings.Contains(s, "=") {
		var epoch, first, last int
		if n, err := fmt.Sscanf(s+";", "epoch=%d,steps=%d-%d;", &epoch, &first, &last); err != nil || n != 3 || epoch < 1 || first < 0 || last < first {
			return Profile{}, fmt.Errorf("parse profile %q: expected an epoch from 1 and its steps from 0, as in epoch=1,steps=0-59", s)
		}
		return Profile{Epoch: epoch, First: first + 1, Steps: last - first + 1}, nil
	}
	first, steps, ok := strings.Cut(s, ":")
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(steps)
	if err := errors.Join(err1, err2); !ok || err != nil || a < 1 || b < 1 {
		return Profile{}, fmt.Errorf("parse profile %q: expected the first step and how many, as in 10:5, or epoch=1,steps=0-59", s)
	}
	return Profile{First: a, Steps: b}, nil
}

// profile starts the profile of WorkerOptions.Profile, if there is one. The engine counts
// the batches of this process, so profile subtracts those before a resumed run.
func (t *Trainer) profile() error {
	p := t.options.Profile
	if p.Steps == 0 {
		return nil
	}
	first, last, err := p.window(t.sampler.Steps(), t.cfg.Epochs)
	if err != nil {
		return err
	}
	if done := t.epoch*t.sampler.Steps() + t.begun.steps*t.cfg.parts(); first > done {
		first, last = first-done, last-done
	} else {
		return fmt.Errorf("profile step %d: the run that is resumed has done %d: name a later one, or train anew", first, done)
	}
	trace := filepath.Join(t.options.Dir, fmt.Sprintf("trace-%d.json", t.group.Rank()))
	switch e := t.engine.(type) {
	case *cuda.Engine:
		window := cuda.Profile{First: first, Steps: last - first + 1}
		if p.Trace || p.Epoch > 0 {
			if t.options.Dir == "" {
				return errNoTrace
			}
			window.Trace = trace
		}
		return e.Profile(window)
	case *cpu.Engine:
		if t.options.Dir == "" {
			return errNoTrace
		}
		return e.Profile(cpu.Profile{First: first, Steps: last - first + 1, Trace: trace, Rank: t.group.Rank(), World: t.group.Size()})
	}
	return fmt.Errorf("profile steps %d to %d: the engine %s has no profile: use --device cpu or cuda; the steps files of a run have the times of its parts", first, last, t.engine.Name())
}

// window returns the first and the last step to profile, counted from the start of the run,
// from 1. It returns an error if the run does not have these steps, because the trace would
// then never be written.
func (p Profile) window(steps, epochs int) (first, last int, err error) {
	if p.Epoch == 0 {
		first, last = p.First, p.First+p.Steps-1
		if last > steps*epochs {
			err = fmt.Errorf("profile steps %d to %d: the run has %d (%d epochs of %d batches)", first, last, steps*epochs, epochs, steps)
		}
		return first, last, err
	}
	switch end := p.First + p.Steps - 1; {
	case p.Epoch > epochs:
		return 0, 0, fmt.Errorf("profile epoch %d: the run has %d: count from 1", p.Epoch, epochs)
	case end > steps:
		return 0, 0, fmt.Errorf("profile steps %d to %d of epoch %d: an epoch has %d batches: use steps=0-%d at most", p.First-1, end-1, p.Epoch, steps, steps-1)
	}
	first = p.First + (p.Epoch-1)*steps
	return first, first + p.Steps - 1, nil
}

// waited records in the profile that the next step has waited for its batch since the given
// time.
func (t *Trainer) waited(since time.Time) {
	if e, ok := t.engine.(*cpu.Engine); ok && t.options.Profile.Steps > 0 {
		e.RecordWait("load batch", since)
	}
}

var errNoTrace = errors.New("trace a profile: there is no run folder for it")
