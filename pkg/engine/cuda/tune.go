package cuda

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"lockstep/pkg/internal/clib/cudnn"
)

// tuneRuns is how often a candidate is timed, after one run that is not, since the
// driver loads its kernels then.
const tuneRuns = 3

// tuneBudget is the time after which no further candidate of a convolution is timed.
const tuneBudget = 20 * time.Second

// tuneLimit is the most memory that an algorithm may ask for beside its operands.
const tuneLimit = 4 << 30

// slowFactor ends the timing of a candidate whose first timed run takes so many times
// the best one's.
const slowFactor = 3

// chosen is a convolution with its algorithm.
type chosen struct {
	plan *cudnn.Plan
	ms   float64 // that it took when it was tuned; 0: not timed
	variant
}

// choose finds the algorithm of a convolution: the tuning cache's, else the
// fastest of those that cuDNN suggests first, or (Convolution "heuristic") its first
// suggestion.
func (x *executable) choose(t task, c convolution) (chosen, error) {
	list, err := x.variants(t, c)
	if err != nil {
		return chosen{}, err
	}
	key := c.key(x.engine.tf32)
	pick, err := x.pick(c, key, list)
	if !errors.Is(err, errNoAlgorithm) {
		return pick, err
	}
	x.anyOrder = true
	first, again := x.suggested(c, list)
	x.anyOrder = false
	if again != nil {
		return chosen{}, err
	}
	x.notices = append(x.notices, fmt.Sprintf("cuDNN has no algorithm for the convolution %s that gives the same bits every time: runs with equal seeds will differ in the last digits", key))
	return first.take(list, 0), nil
}

// pick is choose among a list of variants.
func (x *executable) pick(c convolution, key string, list []variant) (chosen, error) {
	e := x.engine
	if e.options.Convolution == "heuristic" {
		first, err := x.suggested(c, list)
		if err != nil {
			return chosen{}, err
		}
		return first.take(list, 0), nil
	}
	if known, ok := e.cache.get(key); ok && known.Variant >= 0 && known.Variant < len(list) {
		// What cuDNN refuses is of another version, or damaged: tune anew.
		if p, err := x.recall(known, list[known.Variant]); err == nil {
			return candidate{p, known.Variant}.take(list, known.Milliseconds), nil
		}
	}
	all, missing, err := x.candidates(c, list, cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
	if err != nil {
		return chosen{}, err
	}
	best, times, err := x.fastest(all, list)
	if err == nil && len(c.stride) == 3 {
		best, err = x.confirmed(c, key, all, list, best, times)
	}
	if err != nil {
		return chosen{}, errors.Join(fmt.Errorf("tune convolution %s: %w", key, err), closeOthers(all, -1))
	}
	ms, timed := times[best], 0
	for _, v := range times {
		if v > 0 {
			timed++
		}
	}
	p := all[best].plan
	text, err := p.JSON()
	if err != nil {
		text = "" // cuDNN writes the plans of some engines only
	}
	// A plan that cannot be named either is tuned again in the next process.
	if text != "" || p.Choices != "" {
		without := ""
		if missing != nil {
			without = missing.Error()
		}
		e.cache.put(key, choice{
			Missing: without,
			Plan:    text, Choices: p.Choices, Variant: all[best].variant, Engine: p.Engine, Mode: p.Mode.String(),
			Workspace: p.Workspace, Milliseconds: ms, Candidates: timed,
		})
	}
	return all[best].take(list, ms), closeOthers(all, best)
}

// recall makes a plan that the tuning cache knows: of its text, or, where cuDNN could not
// write it, of its engine and knobs.
func (x *executable) recall(known choice, v variant) (*cudnn.Plan, error) {
	if known.Plan != "" {
		return x.gpu.cudnn.PlanFromJSON(x.gpu.dnn, known.Plan)
	}
	graph, err := x.gpu.cudnn.NewGraph(x.gpu.dnn, v.ops...)
	if err != nil {
		return nil, err
	}
	p, err := graph.PlanOf(known.Choices)
	if err != nil {
		return nil, errors.Join(err, graph.Close())
	}
	return p, graph.Close()
}

func (c candidate) take(list []variant, ms float64) chosen {
	v := list[c.variant]
	return chosen{c.plan, ms, v}
}

// closeOthers closes all plans but one.
func closeOthers(all []candidate, but int) error {
	var errs []error
	for i, c := range all {
		if i != but {
			errs = append(errs, c.plan.Close())
		}
	}
	return errors.Join(errs...)
}

// fastest times the candidates on the memory that they will use, whose contents
// are of no account yet: nothing has run, and outputs are thrown away. times has the
// milliseconds of each candidate, 0 of one that was not timed.
func (x *executable) fastest(all []candidate, list []variant) (best int, times []float64, err error) {
	best, times = -1, make([]float64, len(all))
	var failures []error
	begin := time.Now()
	for i, c := range all {
		if best >= 0 && time.Since(begin) > x.engine.tuneBudget {
			break
		}
		if c.plan.Workspace > tuneLimit {
			continue
		}
		if err := x.grow(c.plan.Workspace); err != nil {
			failures = append(failures, err) // another one needs less
			continue
		}
		limit := 0.0
		if best >= 0 {
			limit = slowFactor * times[best]
		}
		took, err := x.time(c, list[c.variant], limit)
		if err != nil {
			if x.gpu.lost != nil {
				return 0, nil, err
			}
			failures = append(failures, err)
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

// time is the least time of a candidate in milliseconds.
func (x *executable) time(c candidate, v variant, limit float64) (float64, error) {
	pack, err := x.gpu.cudnn.NewPack(v.pointers, x.workspace.ptr)
	if err != nil {
		return 0, err
	}
	ms, err := x.timeOf(v.around(&planCall{c.plan.String(), c.plan, pack}), limit)
	return ms, errors.Join(err, pack.Close())
}

// holdLimit is the most memory that is cleared in front of what is timed.
const holdLimit = 128 << 20

// timeOf returns the least time of commands in milliseconds: of tuneRuns runs after one that
// is not counted, or of the first of them alone where that takes longer than limit (0: none). The stream is at work when they
// come, so that the GPU does not wait for the host between the two events, and what it
// clears takes the caches, as the rest of a step does.
func (x *executable) timeOf(run []command, limit float64) (float64, error) {
	g := x.gpu
	if x.hold.bytes == 0 {
		x.hold.bytes = min(holdLimit, x.arena.bytes)
		if err := g.allocate(&x.hold); err != nil {
			if g.lost != nil {
				return 0, err
			}
			x.hold = block{} // an algorithm may need it more
		}
	}
	var times []float64
	for i := range tuneRuns + 1 {
		for range 2 {
			if x.hold.bytes > 0 {
				if err := g.driver.MemsetD8Async(x.hold.ptr, 0, x.hold.bytes, g.compute); err != nil {
					return 0, g.failed(err)
				}
			}
		}
		if err := g.driver.EventRecord(x.begin, g.compute); err != nil {
			return 0, g.failed(err)
		}
		err := g.runAll(run, g.compute)
		if err == nil {
			err = g.failed(g.driver.EventRecord(x.end, g.compute))
		}
		if err == nil {
			err = g.failed(g.driver.EventSynchronize(x.end))
		}
		var took float32
		if err == nil {
			took, err = g.driver.EventElapsed(x.begin, x.end)
		}
		if err != nil {
			return 0, err
		}
		if i == 0 {
			continue
		}
		times = append(times, float64(took))
		if limit > 0 && float64(took) > limit {
			break
		}
	}
	return slices.Min(times), nil
}

// grow makes the workspace at least so large.
func (x *executable) grow(bytes int64) error {
	if x.workspace.bytes >= bytes {
		return nil
	}
	if err := x.gpu.synchronize(); err != nil {
		return err
	}
	if err := x.gpu.free(x.workspace); err != nil {
		return err
	}
	x.workspace = block{bytes: bytes}
	if err := x.gpu.allocate(&x.workspace); err != nil {
		x.workspace = block{}
		return err
	}
	return nil
}

// settle makes the workspace as large as the chosen plans need, and no larger.
func (x *executable) settle(bytes int64) error {
	if x.workspace.bytes == bytes {
		return nil
	}
	if err := x.gpu.synchronize(); err != nil {
		return err
	}
	if err := x.gpu.free(x.workspace); err != nil {
		return err
	}
	x.workspace = block{bytes: bytes}
	return x.gpu.allocate(&x.workspace)
}
