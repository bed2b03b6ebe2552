package cuda

import (
	"errors"
	"fmt"
	"slices"

	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// tuneRuns is how often a candidate is timed, after one run that is not.
const tuneRuns = 3

// tuneLimit is the most memory that an algorithm may ask for beside its operands.
const tuneLimit = 4 << 30

// slowFactor ends the timing of a candidate whose first run takes so many times
// the best one's.
const slowFactor = 3

// chosen is a convolution with its algorithm.
type chosen struct {
	plan  *cudnn.Plan
	where map[int64]driver.Ptr
	after []command
}

// choose finds the algorithm of a convolution: the tuning cache's, else the
// fastest of all that cuDNN has, else (Convolution "heuristic") its first
// suggestion.
func (x *executable) choose(t task, c convolution) (chosen, error) {
	list, err := x.variants(t, c)
	if err != nil {
		return chosen{}, err
	}
	e := x.engine
	key := c.key(e.tf32)
	if e.options.Convolution == "heuristic" {
		all, _, err := x.candidates(c, list, cudnn.HeurA, cudnn.HeurFallback)
		if err != nil {
			return chosen{}, err
		}
		return all[0].take(list), closeOthers(all, 0)
	}
	if known, ok := e.cache.get(key); ok && known.Variant >= 0 && known.Variant < len(list) {
		// A text that cuDNN refuses is of another version, or damaged: tune anew.
		if p, err := x.gpu.cudnn.PlanFromJSON(x.gpu.dnn, known.Plan); err == nil {
			return candidate{p, known.Variant}.take(list), nil
		}
	}
	all, missing, err := x.candidates(c, list, cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
	if err != nil {
		return chosen{}, err
	}
	best, ms, timed, err := x.fastest(all, list)
	if err != nil {
		return chosen{}, fmt.Errorf("tune convolution %s: %w", key, err)
	}
	p := all[best].plan
	// A plan that cannot be written is tuned again in the next process.
	if text, err := p.JSON(); err == nil && text != "" {
		without := ""
		if missing != nil {
			without = missing.Error()
		}
		e.cache.put(key, choice{
			Missing: without,
			Plan:    text, Variant: all[best].variant, Engine: p.Engine, Mode: p.Mode.String(),
			Workspace: p.Workspace, Milliseconds: ms, Candidates: timed,
		})
	}
	return all[best].take(list), closeOthers(all, best)
}

func (c candidate) take(list []variant) chosen {
	v := list[c.variant]
	return chosen{c.plan, v.pointers, v.after}
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
// are of no account yet: nothing has run, and outputs are thrown away.
func (x *executable) fastest(all []candidate, list []variant) (best int, ms float64, timed int, err error) {
	best = -1
	var failures []error
	for i, c := range all {
		if c.plan.Workspace > tuneLimit {
			continue
		}
		if err := x.grow(c.plan.Workspace); err != nil {
			failures = append(failures, err) // another one needs less
			continue
		}
		limit := 0.0
		if best >= 0 {
			limit = slowFactor * ms
		}
		took, err := x.time(c, list[c.variant], limit)
		if err != nil {
			if x.gpu.lost != nil {
				return 0, 0, 0, err
			}
			failures = append(failures, err)
			continue
		}
		timed++
		if best < 0 || took < ms {
			best, ms = i, took
		}
	}
	if best < 0 {
		return 0, 0, 0, errors.Join(append(failures, errors.New("no algorithm of cuDNN's runs"))...)
	}
	return best, ms, timed, nil
}

// time is the least time of a candidate in milliseconds.
func (x *executable) time(c candidate, v variant, limit float64) (float64, error) {
	g := x.gpu
	pack, err := g.cudnn.NewPack(v.pointers, x.workspace.ptr)
	if err != nil {
		return 0, err
	}
	run := append([]command{&planCall{c.plan.String(), c.plan, pack}}, v.after...)
	var times []float64
	for i := range tuneRuns + 1 {
		if err := g.driver.EventRecord(x.begin, g.compute); err != nil {
			return 0, errors.Join(g.failed(err), pack.Close())
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
			return 0, errors.Join(err, pack.Close())
		}
		if i > 0 {
			times = append(times, float64(took))
		} else if limit > 0 && float64(took) > limit {
			times = append(times, float64(took))
			break
		}
	}
	return slices.Min(times), pack.Close()
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
