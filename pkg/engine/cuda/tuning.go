package cuda

import (
	"errors"
	"math"
	"strings"

	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/internal/clib/cudnn"
)

// timedRunsPerCandidate is the number of timed runs per candidate. An untimed run before them
// makes the driver load the kernels.
const timedRunsPerCandidate = 3

// chosenPlan is the variant that was chosen for a convolution, and its cuDNN plan.
type chosenPlan struct {
	plan *cudnn.Plan
	variant
}

func (x *executable) choosePlan(t loweredTask, c convolution) (chosenPlan, error) {
	list, err := x.listVariants(t, c)
	if err != nil {
		return chosenPlan{}, err
	}
	pick, err := x.newTuner().Choose(x.newTuningProblem(c, c.tuningKey(x.engine.tf32), list), &candidateRunner{x, c, list})
	if err != nil {
		return chosenPlan{}, err
	}
	return chosenPlan{pick.Plan, list[pick.Graph]}, nil
}

func (x *executable) newTuner() *autotune.Tuner {
	e := x.engine
	return &autotune.Tuner{
		Library: x.gpu.cudnn, Handle: x.gpu.dnn, Cache: e.cache, Budget: e.tuneBudget,
		Heuristic: e.options.Convolution == "heuristic", TF32: e.tf32,
		Notice: func(text string) { x.notices = append(x.notices, text) },
	}
}

func (x *executable) newTuningProblem(c convolution, key string, list []variant) autotune.Convolution {
	out := autotune.Convolution{
		Key: key, Type: c.x.typ,
		// Results of graphs that also compute the sums of a batch norm's gradient cannot be
		// compared, because they differ from the plain convolution's result.
		Confirm: len(c.stride) == 3 && !strings.Contains(c.extra, " sums of"),
	}
	for _, v := range list {
		out.Graphs = append(out.Graphs, v.ops)
	}
	return out
}

type candidateRunner struct {
	x    *executable
	c    convolution
	list []variant
}

func (r *candidateRunner) IsLost() bool { return r.x.gpu.lost != nil }

func (r *candidateRunner) FillOperandsWithNoise() error { return r.x.fillOperandsWithNoise() }

// Time returns the shortest run time of candidate c. The runs may overwrite the memory that
// they use, because no step has run yet.
func (r *candidateRunner) Time(c autotune.Candidate, limit float64) (ms float64, err error) {
	err = r.withCandidateCommands(c, func(run []command) error {
		ms, err = r.x.minRunMilliseconds(run, limit)
		return err
	})
	return ms, err
}

// withCandidateCommands calls f with the commands that run a candidate.
func (r *candidateRunner) withCandidateCommands(c autotune.Candidate, f func(run []command) error) error {
	if err := r.x.growCUDNNWorkspace(c.Plan.Workspace); err != nil {
		return err
	}
	v := r.list[c.Graph]
	pack, err := r.x.gpu.cudnn.NewVariantPack(v.pointers, r.x.memory.workspace.ptr)
	if err != nil {
		return err
	}
	return errors.Join(f(v.commandsWith(&cudnnPlanCall{c.Plan.String(), c.Plan, pack})), pack.Close())
}

// confirmedElementsPerPart is the number of elements that Result returns from each of three
// parts of a result: its beginning, its middle and its end.
const confirmedElementsPerPart = 1 << 18

func (r *candidateRunner) Result(one autotune.Candidate) (out []float32, err error) {
	g, p, at := r.x.gpu, r.c.resultLocation(), r.c.resultAddress()
	size, pitch, channels, rows := int64(p.typ.Size()), p.pitch, p.paddedChannels(), p.bytes()/p.typ.Size()
	if pitch == channels {
		pitch, channels = 1, 1
		// Elements that a plan does not write stay NaN.
		if err := g.driver.MemsetD8Async(at, 0xff, int64(p.bytes()), g.compute); err != nil {
			return nil, g.explainLostGPU(err)
		}
	} else {
		rows /= channels
	}
	err = r.withCandidateCommands(one, func(run []command) error {
		if err := g.enqueueCommands(run, g.compute); err != nil {
			return err
		}
		n := min(rows, max(1, confirmedElementsPerPart/pitch))
		for _, first := range []int{0, (rows - n) / 2, rows - n} {
			data, err := g.readMemory(at.Add(int64(first*pitch)*size), int64((n-1)*pitch+channels)*size)
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

// maxCacheFlushBytes limits the memory that is cleared before each timed run.
const maxCacheFlushBytes = 128 << 20

// minRunMilliseconds runs the commands and returns the shortest time of timedRunsPerCandidate
// runs, in milliseconds. A run before them does not count. If limit is not 0 and the first
// timed run takes longer than limit milliseconds, no further run follows. Before each run the
// stream clears memory. The GPU then does not wait for the host between the two events, and the
// caches do not contain the operands, as in a step.
func (x *executable) minRunMilliseconds(run []command, limit float64) (float64, error) {
	g := x.gpu
	if x.memory.cacheFlush.bytes == 0 {
		x.memory.cacheFlush.bytes = min(maxCacheFlushBytes, x.memory.arena.bytes)
		if err := g.allocate(&x.memory.cacheFlush); err != nil {
			if g.lost != nil {
				return 0, err
			}
			x.memory.cacheFlush = memoryBlock{} // an algorithm may need the memory as workspace
		}
	}
	least := math.Inf(1)
	for i := range timedRunsPerCandidate + 1 {
		took, err := x.runMilliseconds(run)
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

func (x *executable) runMilliseconds(run []command) (float64, error) {
	g := x.gpu
	for range 2 {
		if x.memory.cacheFlush.bytes > 0 {
			if err := g.driver.MemsetD8Async(x.memory.cacheFlush.ptr, 0, x.memory.cacheFlush.bytes, g.compute); err != nil {
				return 0, g.explainLostGPU(err)
			}
		}
	}
	if err := g.driver.EventRecord(x.profile.begin, g.compute); err != nil {
		return 0, g.explainLostGPU(err)
	}
	if err := g.enqueueCommands(run, g.compute); err != nil {
		return 0, err
	}
	if err := g.driver.EventRecord(x.profile.end, g.compute); err != nil {
		return 0, g.explainLostGPU(err)
	}
	if err := g.driver.EventSynchronize(x.profile.end); err != nil {
		return 0, g.explainLostGPU(err)
	}
	took, err := g.driver.EventElapsed(x.profile.begin, x.profile.end)
	return float64(took), err
}

func (x *executable) growCUDNNWorkspace(bytes int64) error {
	if x.memory.workspace.bytes >= bytes {
		return nil
	}
	err := x.resizeCUDNNWorkspace(bytes)
	if x.memory.workspace.ptr == 0 {
		x.memory.workspace = memoryBlock{}
	}
	return err
}

// resizeCUDNNWorkspace replaces the cuDNN workspace by one of the given size, unless it has that
// size already.
func (x *executable) resizeCUDNNWorkspace(bytes int64) error {
	if x.memory.workspace.bytes == bytes {
		return nil
	}
	if err := x.gpu.synchronize(); err != nil {
		return err
	}
	if err := x.gpu.free(x.memory.workspace); err != nil {
		return err
	}
	x.memory.workspace = memoryBlock{bytes: bytes}
	return x.gpu.allocate(&x.memory.workspace)
}
