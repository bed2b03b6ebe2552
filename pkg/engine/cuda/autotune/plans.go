package autotune

import (
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
)

// Limits on the number of plans that are created for a graph per cuDNN heuristic.
const (
	timedPlans = 10  // for timing, if the graph contains only the convolution
	timedFused = 4   // for timing, if the graph contains further operations, since cuDNN compiles such plans one by one
	maxPlans   = 128 // for the search for the first allowed plan
)

// errNoPlan is wrapped by errors about convolutions for which cuDNN has no allowed plan.
var errNoPlan = errors.New("no algorithm computes this convolution")

// isPlanAllowed reports whether a plan has at least the requested precision and, unless
// allowNondeterministic is set, gives bit-identical results in every run.
func (t *Tuner) isPlanAllowed(p *cudnn.Plan, typ device.ElementType, allowNondeterministic bool) bool {
	if typ == device.F32 && !t.TF32 && (slices.Contains(p.Numerical, cudnn.NoteTensorCore) || slices.Contains(p.Numerical, cudnn.NoteDownConvert)) {
		return false
	}
	return allowNondeterministic || p.IsDeterministic()
}

// createFirstCandidate creates the first allowed plan of the first graph of c that has one. If
// no graph has an allowed plan, the error wraps errNoPlan.
func (t *Tuner) createFirstCandidate(c Convolution, allowNondeterministic bool) (Candidate, error) {
	var first error
	for i, ops := range c.Graphs {
		graph, err := t.Library.NewGraph(t.Handle, ops...)
		if err != nil {
			first = errors.Join(first, err)
			continue
		}
		p, err := t.createFirstPlan(c, graph, allowNondeterministic)
		first = errors.Join(first, err)
		if err := graph.Close(); err != nil {
			return Candidate{}, err
		}
		if p != nil {
			return Candidate{p, i}, nil
		}
	}
	if first == nil {
		first = errors.New("all algorithms of cuDNN round their inputs or are nondeterministic")
	}
	return Candidate{}, fmt.Errorf("%w (%s): %w", errNoPlan, c.Key, first)
}

// createFirstPlan creates the first allowed plan of a graph. If there is no such plan, it
// returns nil and cuDNN's last error, which may be nil.
func (t *Tuner) createFirstPlan(c Convolution, graph *cudnn.Graph, allowNondeterministic bool) (*cudnn.Plan, error) {
	var why error
	for _, mode := range []cudnn.HeurMode{cudnn.HeurA, cudnn.HeurFallback} {
		for _, most := range []int{1, 8, maxPlans} {
			plans, _, err := graph.CreatePlansAtMost(most, mode)
			if err != nil {
				why = err
				continue
			}
			at := slices.IndexFunc(plans, func(p *cudnn.Plan) bool { return t.isPlanAllowed(p, c.Type, allowNondeterministic) })
			for i, p := range plans {
				if i != at {
					if err := p.Close(); err != nil {
						return nil, err
					}
				}
			}
			if at >= 0 {
				return plans[at], nil
			}
		}
	}
	return nil, why
}

// NewCandidates creates the allowed plans of all graphs of c. If some graphs have no plan,
// missing is the reason.
func (t *Tuner) NewCandidates(c Convolution) (all []Candidate, missing error, err error) {
	modes := []cudnn.HeurMode{cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback}
	var first error
	for i, ops := range c.Graphs {
		graph, err := t.Library.NewGraph(t.Handle, ops...)
		if err != nil {
			first = errors.Join(first, err)
			continue
		}
		most, asked := timedPlans, modes
		if len(ops) > 1 {
			most, asked = timedFused, modes[:1]
		}
		plans, _, err := graph.CreatePlansAtMost(most, asked...)
		if err != nil {
			first = errors.Join(first, err)
		}
		for _, p := range plans {
			if t.isPlanAllowed(p, c.Type, false) {
				all = append(all, Candidate{p, i})
			} else if err := p.Close(); err != nil {
				return all, nil, err
			}
		}
		if err := graph.Close(); err != nil {
			return all, nil, err
		}
	}
	if len(all) == 0 {
		only, err := t.createFirstCandidate(c, false)
		return []Candidate{only}, first, err
	}
	return all, first, nil
}
