package cuda

import (
	"errors"
	"math"
	"strings"

	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/internal/clib/cudnn"
)

// Each candidate is timed timedRuns times, after one run that is not timed because the
// driver loads the kernels then.
const timedRuns = 3

// chosen is a convolution with its plan.
type chosen struct {
	plan *cudnn.Plan
	ms   float64 // measured during tuning; 0: not timed
	variant
}

// choose finds the plan of a convolution.
func (x *executable) choose(t task, c convolution) (chosen, error) {
	list, err := x.variants(t, c)
	if err != nil {
		return chosen{}, err
	}
	return x.tune((*autotune.Tuner).Choose, c, c.key(x.engine.tf32), list)
}

// tune chooses a plan among the variants of c by one of the tuner's methods.
func (x *executable) tune(by func(*autotune.Tuner, autotune.Convolution, autotune.Runner) (autotune.Pick, error), c convolution, key string, list []variant) (chosen, error) {
	pick, err := by(x.tuner(), x.tuned(c, key, list), &candidateRunner{x, c, list})
	if err != nil {
		return chosen{}, err
	}
	return chosen{pick.Plan, pick.Milliseconds, list[pick.Graph]}, nil
}

// tuner returns the tuner of x's convolutions.
func (x *executable) tuner() *autotune.Tuner {
	e := x.engine
	return &autotune.Tuner{
		Library: x.gpu.cudnn, Handle: x.gpu.dnn, Cache: e.cache, Budget: e.tuneBudget,
		Heuristic: e.options.Convolution == "heuristic", TF32: e.tf32,
		Notice: func(text string) { x.notices = append(x.notices, text) },
	}
}

// tuned describes c and the ways to compute it to the tuner.
func (x *executable) tuned(c convolution, key string, list []variant) autotune.Convolution {
	out := autotune.Convolution{
		Key: key, Type: c.x.typ,
		// The confirmation does not support graphs that also sum the batch norm's gradient,
		// since their result is a different one.
		Confirm: len(c.stride) == 3 && !strings.Contains(c.extra, " sums of"),
	}
	for _, v := range list {
		out.Graphs = append(out.Graphs, v.ops)
	}
	return out
}

// candidateRunner implements autotune.Runner for one convolution.
type candidateRunner struct {
	x    *executable
	c    convolution
	list []variant
}

// Lost implements autotune.Runner.
func (r *candidateRunner) Lost() bool { return r.x.gpu.lost != nil }

// Disturb implements autotune.Runner.
func (r *candidateRunner) Disturb() error { return r.x.fillWithNoise() }

// Time implements autotune.Runner. The candidate runs on the memory that it will use, whose
// contents do not matter yet: nothing has run, and outputs are thrown away.
func (r *candidateRunner) Time(c autotune.Candidate, limit float64) (ms float64, err error) {
	err = r.packed(c, func(run []command) error {
		ms, err = r.x.timeOf(run, limit)
		return err
	})
	return ms, err
}

// packed calls f with the commands of a candidate.
func (r *candidateRunner) packed(c autotune.Candidate, f func(run []command) error) error {
	if err := r.x.growWorkspace(c.Plan.Workspace); err != nil {
		return err
	}
	v := r.list[c.Graph]
	pack, err := r.x.gpu.cudnn.NewPack(v.pointers, r.x.memory.workspace.ptr)
	if err != nil {
		return err
	}
	return errors.Join(f(v.around(&planCall{c.Plan.String(), c.Plan, pack})), pack.Close())
}

// confirmedElements is the number of elements that are compared at the beginning, in the
// middle and at the end of a result.
const confirmedElements = 1 << 18

// Result implements autotune.Runner.
func (r *candidateRunner) Result(one autotune.Candidate) (out []float32, err error) {
	g, p, at := r.x.gpu, r.c.result(), r.c.resultAt()
	size, pitch, channels, rows := int64(p.typ.Size()), p.pitch, p.padded(), p.bytes()/p.typ.Size()
	if gap := pitch - channels; gap == 0 {
		pitch, channels = 1, 1
		// Elements that a plan does not write stay NaN.
		if err := g.driver.MemsetD8Async(at, 0xff, int64(p.bytes()), g.compute); err != nil {
			return nil, g.failed(err)
		}
	} else {
		rows /= channels
	}
	err = r.packed(one, func(run []command) error {
		if err := g.runAll(run, g.compute); err != nil {
			return err
		}
		n := min(rows, max(1, confirmedElements/pitch))
		for _, first := range []int{0, (rows - n) / 2, rows - n} {
			data, err := g.read(at.Add(int64(first*pitch)*size), int64((n-1)*pitch+channels)*size)
			if err != nil {
				return err
			}
			values := number.Decode(p.typ, data)
			for i := range n {
				out = append(out, values[i*pitch:][:channels]...)
			}
		}
		return nil
	})
	return out, err
}

// holdLimit is the largest number of bytes that is cleared before timed commands.
const holdLimit = 128 << 20

// timeOf returns the shortest time of commands in milliseconds, in timedRuns runs after one
// that does not count. If the first timed run takes longer than limit (0: no limit), it is
// the only one. Before each run the stream clears memory: so the GPU does not wait for the
// host between the two events, and the caches do not contain the operands, as in a step.
func (x *executable) timeOf(run []command, limit float64) (float64, error) {
	g := x.gpu
	if x.memory.cacheFlush.bytes == 0 {
		x.memory.cacheFlush.bytes = min(holdLimit, x.memory.arena.bytes)
		if err := g.allocate(&x.memory.cacheFlush); err != nil {
			if g.lost != nil {
				return 0, err
			}
			x.memory.cacheFlush = block{} // an algorithm may need the memory as workspace
		}
	}
	least := math.Inf(1)
	for i := range timedRuns + 1 {
		took, err := x.timeOnce(run)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			continue
		}
		least = min(least, took)
		if limit > 0 && took > limit {
			break
		}
	}
	return least, nil
}

// timeOnce returns the time of one run of commands in milliseconds.
func (x *executable) timeOnce(run []command) (float64, error) {
	g := x.gpu
	for range 2 {
		if x.memory.cacheFlush.bytes > 0 {
			if err := g.driver.MemsetD8Async(x.memory.cacheFlush.ptr, 0, x.memory.cacheFlush.bytes, g.compute); err != nil {
				return 0, g.failed(err)
			}
		}
	}
	if err := g.driver.EventRecord(x.profile.begin, g.compute); err != nil {
		return 0, g.failed(err)
	}
	if err := g.runAll(run, g.compute); err != nil {
		return 0, err
	}
	if err := g.driver.EventRecord(x.profile.end, g.compute); err != nil {
		return 0, g.failed(err)
	}
	if err := g.driver.EventSynchronize(x.profile.end); err != nil {
		return 0, g.failed(err)
	}
	took, err := g.driver.EventElapsed(x.profile.begin, x.profile.end)
	return float64(took), err
}

// growWorkspace enlarges the workspace to at least the given size.
func (x *executable) growWorkspace(bytes int64) error {
	if x.memory.workspace.bytes >= bytes {
		return nil
	}
	err := x.resizeWorkspace(bytes)
	if x.memory.workspace.ptr == 0 {
		x.memory.workspace = block{}
	}
	return err
}

// resizeWorkspace sets the workspace to the given size, which the chosen plans need.
func (x *executable) resizeWorkspace(bytes int64) error {
	if x.memory.workspace.bytes == bytes {
		return nil
	}
	if err := x.gpu.synchronize(); err != nil {
		return err
	}
	if err := x.gpu.free(x.memory.workspace); err != nil {
		return err
	}
	x.memory.workspace = block{bytes: bytes}
	return x.gpu.allocate(&x.memory.workspace)
}
