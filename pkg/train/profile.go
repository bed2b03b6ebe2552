package train

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"lockstep/pkg/engine/cuda"
)

// Profile is a window of a run's steps that is looked into; see cuda.Profile.
type Profile struct {
	First, Steps int  // steps from 1; no Steps: no profile
	Trace        bool // the time of every kernel into trace-<rank>.json of the run folder
}

// ParseProfile reads "FIRST:STEPS", such as "10:5", or nothing.
func ParseProfile(s string) (Profile, error) {
	if s == "" {
		return Profile{}, nil
	}
	first, steps, ok := strings.Cut(s, ":")
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(steps)
	if err := errors.Join(err1, err2); !ok || err != nil || a < 1 || b < 1 {
		return Profile{}, fmt.Errorf("parse profile %q: expected the first step and how many, as in 10:5", s)
	}
	return Profile{First: a, Steps: b}, nil
}

// profile sets the window, where one is asked for.
func (t *Trainer) profile() error {
	p := t.place.Profile
	if p.Steps == 0 {
		return nil
	}
	e, ok := t.engine.(*cuda.Engine)
	if !ok {
		return fmt.Errorf("profile steps %d to %d: the engine is %s: profiles are a GPU's (--device cuda); the steps files of a run have the times of its parts", p.First, p.First+p.Steps-1, t.engine.Name())
	}
	window := cuda.Profile{First: p.First, Steps: p.Steps}
	if p.Trace {
		if t.place.Dir == "" {
			return errors.New("trace a profile: there is no run folder for it")
		}
		window.Trace = filepath.Join(t.place.Dir, fmt.Sprintf("trace-%d.json", t.group.Rank()))
	}
	return e.Profile(window)
}
