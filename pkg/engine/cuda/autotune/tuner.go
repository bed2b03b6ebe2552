// Package autotune chooses the fastest cuDNN plan for each convolution, by timing the plans
// on the GPU, and stores the choices in a file.
//
// The package does not depend on the engine's memory and streams: the engine implements
// Runner, which times a plan and reads its result.
package autotune

import (
	"errors"
	"fmt"
	"time"

	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
)

// MaxTuningTime is the time after which no further candidate of a convolution is timed.
const MaxTuningTime = 20 * time.Second

// MaxWorkspaceBytes is the largest workspace of a plan that is timed.
const MaxWorkspaceBytes = 4 << 30

// slowCandidateFactor limits the time of a candidate's first timed run, as a multiple of the
// best time so far. A slower candidate is timed only once.
const slowCandidateFactor = 3

// Convolution describes a convolution for which a Tuner chooses a plan.
type Convolution struct {
	Key    string             // name in the tuning file; contains everything that affects which plan is fastest
	Graphs [][]cudnn.Op       // alternative graphs that compute the convolution
	Type   device.ElementType // type of the operands
	// Confirm requires that a plan's result agrees with the result of another cuDNN engine.
	Confirm bool
}

// Candidate is a plan from which the tuner chooses.
type Candidate struct {
	Plan  *cudnn.Plan
	Graph int // index in Convolution.Graphs
}

// Selection is the candidate that the tuner has chosen for a convolution.
type Selection struct {
	Candidate
	Milliseconds float64 // measured when it was chosen; 0: not timed
}

// Runner runs the candidates of one convolution on the GPU.
type Runner interface {
	// Time returns the shortest time of a candidate's runs in milliseconds. If limit is not
	// 0, it may stop after the first run that takes longer than limit milliseconds.
	Time(c Candidate, limit float64) (milliseconds float64, err error)
	// FillOperandsWithNoise fills the operands of the convolution with random numbers.
	FillOperandsWithNoise() error
	// Result runs a candidate and returns parts of its result.
	Result(c Candidate) ([]float32, error)
	// IsLost reports whether the GPU can no longer be used.
	IsLost() bool
}

// Tuner chooses plans for convolutions.
type Tuner struct {
	Library   *cudnn.Library
	Handle    cudnn.Handle
	Cache     *Cache
	Budget    time.Duration     // like MaxTuningTime
	Heuristic bool              // use cuDNN's first suggestion without timing
	TF32      bool              // fp32 convolutions may round their inputs
	Notice    func(text string) // receives notices for the user
}

// Choose returns the plan for c. If t.Heuristic is set, that is cuDNN's first suggestion.
// Otherwise it is the plan in the cache or, if there is none, the fastest of the plans that
// cuDNN's heuristics suggest. If no plan is deterministic, Choose returns the first
// nondeterministic plan, with a notice.
func (t *Tuner) Choose(c Convolution, r Runner) (Selection, error) {
	pick, err := t.chooseDeterministic(c, r)
	if !errors.Is(err, errNoPlan) {
		return pick, err
	}
	first, again := t.createFirstCandidate(c, true)
	if again != nil {
		return Selection{}, err
	}
	t.Notice(fmt.Sprintf("cuDNN has no algorithm for the convolution %s that gives the same bits every time: runs with equal seeds will differ in the last digits", c.Key))
	return Selection{Candidate: first}, nil
}

// chooseDeterministic is like Choose, but considers only plans that give bit-identical
// results in every run. If no plan does, it returns an error.
func (t *Tuner) chooseDeterministic(c Convolution, r Runner) (Selection, error) {
	if t.Heuristic {
		first, err := t.createFirstCandidate(c, false)
		return Selection{Candidate: first}, err
	}
	if known, ok := t.Cache.Get(c.Key); ok && known.Variant >= 0 && known.Variant < len(c.Graphs) {
		// cuDNN rejects plans of other versions and damaged plans: tune again.
		if p, err := t.restorePlan(known, c.Graphs[known.Variant]); err == nil {
			return Selection{Candidate{p, known.Variant}, known.Milliseconds}, nil
		}
	}
	all, missing, err := t.NewCandidates(c)
	if err != nil {
		return Selection{}, err
	}
	best, times, err := t.findFastest(all, r)
	if err == nil && c.Confirm {
		best, err = t.confirmFastest(c, all, best, times, r)
	}
	if err != nil {
		return Selection{}, errors.Join(fmt.Errorf("tune convolution %s: %w", c.Key, err), ClosePlans(all))
	}
	pick := Selection{all[best], times[best]}
	t.storeChoice(c.Key, pick, times, missing)
	others := append(all[:best:best], all[best+1:]...)
	return pick, ClosePlans(others)
}

// storeChoice stores the chosen plan in the cache. It does not store a plan that cuDNN can
// neither serialize nor identify by engine and knobs; the next process then tunes the
// convolution again.
func (t *Tuner) storeChoice(key string, pick Selection, times []float64, missing error) {
	p := pick.Plan
	text, err := p.JSON()
	if err != nil {
		text = "" // cuDNN can serialize the plans of some engines only
	}
	if text == "" && p.Choices == "" {
		return
	}
	known := Choice{
		Plan: text, Choices: p.Choices, Variant: pick.Graph, Engine: p.Engine, Mode: p.Mode.String(),
		Workspace: p.Workspace, Milliseconds: pick.Milliseconds,
	}
	if missing != nil {
		known.Missing = missing.Error()
	}
	for _, ms := range times {
		if ms > 0 {
			known.Candidates++
		}
	}
	t.Cache.Put(key, known)
}

// restorePlan creates the plan of a cached choice from the serialized plan. If cuDNN could not
// serialize the plan, restorePlan uses its engine and knobs.
func (t *Tuner) restorePlan(known Choice, ops []cudnn.Op) (*cudnn.Plan, error) {
	if known.Plan != "" {
		return t.Library.PlanFromJSON(t.Handle, known.Plan)
	}
	graph, err := t.Library.NewGraph(t.Handle, ops...)
	if err != nil {
		return nil, err
	}
	p, err := graph.PlanFromChoices(known.Choices)
	if err != nil {
		return nil, errors.Join(err, graph.Close())
	}
	return p, graph.Close()
}

// ClosePlans closes the plans of all candidates. It returns all errors, joined.
func ClosePlans(all []Candidate) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Plan.Close())
	}
	return errors.Join(errs...)
}

// findFastest times the candidates and returns the index of the fastest one. times contains the
// time of each candidate in milliseconds, or 0 if the candidate was not timed.
func (t *Tuner) findFastest(all []Candidate, r Runner) (best int, times []float64, err error) {
	best, times = -1, make([]float64, len(all))
	var failures []error
	begin := time.Now()
	for i, c := range all {
		if best >= 0 && time.Since(begin) > t.Budget {
			break
		}
		if c.Plan.Workspace > MaxWorkspaceBytes {
			continue
		}
		limit := 0.0
		if best >= 0 {
			limit = slowCandidateFactor * times[best]
		}
		took, err := r.Time(c, limit)
		if err != nil {
			if r.IsLost() {
				return 0, nil, err
			}
			failures = append(failures, err) // another candidate may need less memory
			continue
		}
		times[i] = took
		if best < 0 || took < times[best] {
			best = i
		}
	}
	if best < 0 {
		return 0, nil, errors.Join(append(failures, errors.New("all algorithms of cuDNN failed or need too large a workspace"))...)
	}
	return best, times, nil
}
