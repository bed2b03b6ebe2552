package autotune

import (
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
)

// The most plans of each heuristic that are made: to be timed, of a convolution alone and
// of a graph with more operations; and where the first may not be used.
const (
	timedPlans = 10
	timedFused = 4
	maxPlans   = 128
)

// errNoPlan is wrapped by the error of a convolution without a plan that may be used.
var errNoPlan = errors.New("no algorithm computes this convolution")

// allowed reports whether a plan keeps to the precision asked for, and gives the same bits
// every time (anyOrder: or not).
func (t *Tuner) allowed(p *cudnn.Plan, typ device.Type, anyOrder bool) bool {
	if typ == device.F32 && !t.TF32 && (slices.Contains(p.Numerical, cudnn.NoteTensorCore) || slices.Contains(p.Numerical, cudnn.NoteDownConvert)) {
		return false
	}
	return anyOrder || p.Deterministic()
}

// suggested returns the first plan that may be used, of the first graph that has one. No
// more plans are made than that takes.
func (t *Tuner) suggested(c Convolution, anyOrder bool) (Candidate, error) {
	var first error
	for i, ops := range c.Graphs {
		graph, err := t.Library.NewGraph(t.Handle, ops...)
		if err != nil {
			first = errors.Join(first, err)
			continue
		}
		p, err := t.suggestedOf(c, graph, anyOrder)
		first = errors.Join(first, err)
		if err := graph.Close(); err != nil {
			return Candidate{}, err
		}
		if p != nil {
			return Candidate{p, i}, nil
		}
	}
	if first == nil {
		first = errors.New("cuDNN has only algorithms that round their inputs or give other bits from run to run")
	}
	return Candidate{}, fmt.Errorf("%w (%s): %w", errNoPlan, c.Key, first)
}

// suggestedOf returns the first plan of a graph that may be used, or nil and why there is
// none.
func (t *Tuner) suggestedOf(c Convolution, graph *cudnn.Graph, anyOrder bool) (*cudnn.Plan, error) {
	var why error
	for _, mode := range []cudnn.HeurMode{cudnn.HeurA, cudnn.HeurFallback} {
		for _, most := range []int{1, 8, maxPlans} {
			plans, _, err := graph.PlansAtMost(most, mode)
			if err != nil {
				why = err
				continue
			}
			at := slices.IndexFunc(plans, func(p *cudnn.Plan) bool { return t.allowed(p, c.Type, anyOrder) })
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

// Candidates makes the plans of all graphs of c that may be used. missing says why a graph
// has none.
func (t *Tuner) Candidates(c Convolution) (all []Candidate, missing error, err error) {
	modes := []cudnn.HeurMode{cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback}
	var first error
	for i, ops := range c.Graphs {
		graph, err := t.Library.NewGraph(t.Handle, ops...)
		if err != nil {
			first = errors.Join(first, err)
			continue
		}
		most, asked := timedPlans, modes
		if len(ops) > 1 { // compiled one by one when they are made
			most, asked = timedFused, modes[:1]
		}
		plans, _, err := graph.PlansAtMost(most, asked...)
		if err != nil {
			first = errors.Join(first, err)
		}
		for _, p := range plans {
			if t.allowed(p, c.Type, false) {
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
		only, err := t.suggested(c, false)
		return []Candidate{only}, first, err
	}
	return all, first, nil
}
