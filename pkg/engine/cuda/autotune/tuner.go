// Package autotune chooses the fastest of cuDNN's plans for each convolution, by timing
// them on the GPU, and keeps the choices in a file.
//
// It knows nothing of the engine's memory and streams: a Runner times a candidate and reads
// its result.
package autotune

import (
	"errors"
	"fmt"
	"time"

	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
)

// Budget is the time after which no further candidate of a convolution is timed.
const Budget = 20 * time.Second

// WorkspaceLimit is the most memory, in bytes, that a plan may ask for beside its operands.
const WorkspaceLimit = 4 << 30

// slowFactor ends the timing of a candidate whose first timed run takes so many times
// the best one's.
const slowFactor = 3

// Convolution is a convolution to choose a plan for.
type Convolution struct {
	Key    string       // all that decides which plan is fastest
	Graphs [][]cudnn.Op // alternative ways to compute it
	Type   device.Type  // of its operands
	// Confirm asks for a plan whose result another of cuDNN's engines confirms.
	Confirm bool
}

// Candidate is a plan that may be chosen.
type Candidate struct {
	Plan  *cudnn.Plan
	Graph int // index in Convolution.Graphs
}

// Pick is the chosen plan.
type Pick struct {
	Candidate
	Milliseconds float64 // measured when it was chosen; 0: not timed
}

// Runner runs the candidates of one convolution on the GPU.
type Runner interface {
	// Time returns the least time of a candidate, in milliseconds. It may stop at the first
	// run that takes longer than limit (0: none).
	Time(c Candidate, limit float64) (milliseconds float64, err error)
	// Disturb fills what the convolution reads with noise.
	Disturb() error
	// Result runs a candidate and returns parts of what it wrote.
	Result(c Candidate) ([]float32, error)
	// Lost reports whether the GPU can no longer be used.
	Lost() bool
}

// Tuner chooses plans.
type Tuner struct {
	Library   *cudnn.Library
	Handle    cudnn.Handle
	Cache     *Cache
	Budget    time.Duration     // see the constant
	Heuristic bool              // take cuDNN's first suggestion; time nothing
	TF32      bool              // fp32 convolutions may round their inputs
	Notice    func(text string) // receives what the user should know
}

// Choose returns the plan of c: the cache's, else the fastest of those that cuDNN suggests
// first, or its first suggestion if t.Heuristic. If no plan gives the same bits every
// time, Choose takes the first that does not, with a notice.
func (t *Tuner) Choose(c Convolution, r Runner) (Pick, error) {
	pick, err := t.Pick(c, r)
	if !errors.Is(err, errNoPlan) {
		return pick, err
	}
	first, again := t.suggested(c, true)
	if again != nil {
		return Pick{}, err
	}
	t.Notice(fmt.Sprintf("cuDNN has no algorithm for the convolution %s that gives the same bits every time: runs with equal seeds will differ in the last digits", c.Key))
	return Pick{Candidate: first}, nil
}

// Pick is Choose among the plans that give the same bits every time.
func (t *Tuner) Pick(c Convolution, r Runner) (Pick, error) {
	if t.Heuristic {
		first, err := t.suggested(c, false)
		return Pick{Candidate: first}, err
	}
	if known, ok := t.Cache.Get(c.Key); ok && known.Variant >= 0 && known.Variant < len(c.Graphs) {
		// What cuDNN refuses is of another version, or damaged: tune anew.
		if p, err := t.recall(known, c.Graphs[known.Variant]); err == nil {
			return Pick{Candidate{p, known.Variant}, known.Milliseconds}, nil
		}
	}
	all, missing, err := t.Candidates(c)
	if err != nil {
		return Pick{}, err
	}
	best, times, err := t.fastest(all, r)
	if err == nil && c.Confirm {
		best, err = t.confirmed(c, all, best, times, r)
	}
	if err != nil {
		return Pick{}, errors.Join(fmt.Errorf("tune convolution %s: %w", c.Key, err), Close(all))
	}
	pick := Pick{all[best], times[best]}
	t.remember(c.Key, pick, times, missing)
	others := append(all[:best:best], all[best+1:]...)
	return pick, Close(others)
}

// remember puts a choice into the cache, unless its plan can be named in no way: that is
// tuned again in the next process.
func (t *Tuner) remember(key string, pick Pick, times []float64, missing error) {
	p := pick.Plan
	text, err := p.JSON()
	if err != nil {
		text = "" // cuDNN writes the plans of some engines only
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

// recall makes a plan that the cache knows: of its text, or, where cuDNN could not write
// it, of its engine and knobs.
func (t *Tuner) recall(known Choice, ops []cudnn.Op) (*cudnn.Plan, error) {
	if known.Plan != "" {
		return t.Library.PlanFromJSON(t.Handle, known.Plan)
	}
	graph, err := t.Library.NewGraph(t.Handle, ops...)
	if err != nil {
		return nil, err
	}
	p, err := graph.PlanOf(known.Choices)
	if err != nil {
		return nil, errors.Join(err, graph.Close())
	}
	return p, graph.Close()
}

// Close closes the plans of candidates.
func Close(all []Candidate) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Plan.Close())
	}
	return errors.Join(errs...)
}

// fastest times the candidates on the memory that they will use. times has the
// milliseconds of each candidate, 0 for one that was not timed.
func (t *Tuner) fastest(all []Candidate, r Runner) (best int, times []float64, err error) {
	best, times = -1, make([]float64, len(all))
	var failures []error
	begin := time.Now()
	for i, c := range all {
		if best >= 0 && time.Since(begin) > t.Budget {
			break
		}
		if c.Plan.Workspace > WorkspaceLimit {
			continue
		}
		limit := 0.0
		if best >= 0 {
			limit = slowFactor * times[best]
		}
		took, err := r.Time(c, limit)
		if err != nil {
			if r.Lost() {
				return 0, nil, err
			}
			failures = append(failures, err) // another one may need less memory
			continue
		}
		times[i] = took
		if best < 0 || took < times[best] {
			best = i
		}
	}
	if best < 0 {
		return 0, nil, errors.Join(append(failures, errors.New("no algorithm of cuDNN's runs"))...)
	}
	return best, times, nil
}
