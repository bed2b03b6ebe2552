package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/train"
)

// BatchOptions say how the largest batch is looked for.
type BatchOptions struct {
	Memory  int64             // bytes for all workers of this machine together
	Workers int               // on this machine, which share it; 0: 1
	Most    int               // batch beyond which nobody looks; 0: what the training samples give each worker
	Tried   func(t BatchTest) // after each batch that was tried; nil: nobody
}

// BatchTest is a batch per worker that was tried.
type BatchTest struct {
	Batch int
	Bytes int64 // that one worker needs
	Fits  bool
	How   string // "memory plan", "loaded" or "one step"
	Why   string // it does not fit, in the engine's words
}

// String is a line of evidence.
func (b BatchTest) String() string {
	verdict := "fits"
	if !b.Fits {
		verdict = "does not fit"
	}
	line := fmt.Sprintf("batch %d: ", b.Batch)
	if b.Bytes > 0 {
		line += mebibytes(b.Bytes) + " by the " + b.How + ", "
	} else {
		line += b.How + ": "
	}
	if b.Why != "" {
		verdict += ": " + b.Why
	}
	return line + verdict
}

// BatchSearch is the largest batch, with the evidence.
type BatchSearch struct {
	Tests   []BatchTest
	Largest int   // batch per worker; 0: none fits
	Memory  int64 // bytes that one worker may have
	Workers int
	Bound   string // what ended the search: "memory" or "samples"
}

// String is a line a test, and the result.
func (s *BatchSearch) String() string {
	var b strings.Builder
	for _, t := range s.Tests {
		fmt.Fprintln(&b, t)
	}
	return b.String() + s.Verdict() + "\n"
}

// Verdict is the result in a sentence.
func (s *BatchSearch) Verdict() string {
	each := fmt.Sprintf("%s a worker", mebibytes(s.Memory))
	switch {
	case s.Largest == 0:
		return "no batch fits in " + each + ": use a smaller network or smaller samples"
	case s.Bound == "samples":
		return fmt.Sprintf("largest batch: %d a worker, %d with %d: the data have no more samples; memory (%s) would allow more", s.Largest, s.Largest*s.Workers, s.Workers, each)
	}
	return fmt.Sprintf("largest batch: %d a worker, %d with %d: %d does not fit in %s", s.Largest, s.Largest*s.Workers, s.Workers, s.Largest+1, each)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// LargestBatch looks for the largest batch per worker that the memory takes: by
// powers of 2 until one does not fit, then by bisection. On the CPU a batch is
// weighed by the memory plans of two small ones, then the result and the next one
// by loading them; on a GPU, whose libraries take memory of their own, each batch is
// loaded and does one step.
func LargestBatch(ctx context.Context, cfg train.Config, o BatchOptions) (*BatchSearch, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	samples, err := train.OpenSamples(ctx, cfg.Data)
	if err != nil {
		return nil, err
	}
	s := &BatchSearch{Workers: max(1, o.Workers), Bound: "memory"}
	s.Memory = o.Memory / int64(s.Workers)
	most := o.Most
	if most <= 0 {
		most = samples.Train.Len() / s.Workers
	}
	if most < 1 {
		return nil, fmt.Errorf("find largest batch: %s are too few for %s", english.Count(samples.Train.Len(), "training sample"), english.Count(s.Workers, "worker"))
	}
	w := &weigher{cfg: cfg, samples: samples, memory: s.Memory, least: 1}
	if _, _, err := w.programs(1); err != nil && most > 1 {
		w.least = 2 // batch norm may have nothing to train with in one sample
	}
	fits := w.byPlan
	if _, gpu := cfg.Engine.CUDA(); gpu {
		fits = w.byStep
	}
	try := func(batch int, fits func(context.Context, int) (BatchTest, error)) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
		t, err := fits(ctx, batch)
		if err != nil {
			return false, fmt.Errorf("try batch %d: %w", batch, err)
		}
		s.Tests = append(s.Tests, t)
		if o.Tried != nil {
			o.Tried(t)
		}
		return t.Fits, nil
	}
	if s.Largest, err = bisect(w.least, most, func(b int) (bool, error) { return try(b, fits) }); err != nil {
		return s, err
	}
	if _, gpu := cfg.Engine.CUDA(); !gpu && s.Largest > 0 {
		loads := func(b int) (int64, bool, error) {
			ok, err := try(b, w.byLoading)
			if err != nil {
				return 0, false, err
			}
			return s.Tests[len(s.Tests)-1].Bytes, ok, nil
		}
		if s.Largest, err = prove(s.Largest, most, s.Memory, weighed{w.least, w.small}, loads); err != nil {
			return s, err
		}
	}
	if s.Largest == most {
		s.Bound = "samples"
	}
	return s, nil
}

// bisect is the largest number from least to most that fits, 0 where none does:
// least, twice that and so on, then halves of what is between the last that fits
// and the first that does not.
func bisect(least, most int, fits func(int) (bool, error)) (int, error) {
	good, bad := 0, most+1
	for b := least; b <= most; b *= 2 {
		ok, err := fits(b)
		if err != nil {
			return good, err
		}
		if !ok {
			bad = b
			break
		}
		good = b
	}
	for good > 0 && bad-good > 1 {
		b := good + (bad-good)/2
		ok, err := fits(b)
		if err != nil {
			return good, err
		}
		if ok {
			good = b
		} else {
			bad = b
		}
	}
	return good, nil
}

// weighed is a batch and what it takes.
type weighed struct {
	batch int
	bytes int64
}

// prove puts a batch that was reckoned to fit to the proof, and finds the largest
// up to most that is loaded and fits, and whose next one does not: from the line
// through two that were weighed, as near the memory's end as they can be, since
// an engine's memory grows by steps where it changes how it computes.
func prove(reckoned, most int, memory int64, least weighed, loads func(batch int) (int64, bool, error)) (int, error) {
	good, bad := weighed{batch: least.batch - 1}, weighed{batch: most + 1} // bytes are 0 where not loaded
	below := least
	for at := reckoned; bad.batch-good.batch > 1; {
		bytes, ok, err := loads(at)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			bad = weighed{at, bytes}
		case good.bytes == 0:
			good = weighed{at, bytes}
		default:
			below, good = good, weighed{at, bytes}
		}
		from, to := below, good
		switch {
		case good.bytes == 0:
			from, to = least, bad
		case bad.bytes > 0:
			from, to = good, bad
		}
		next := from.batch
		if to.batch > from.batch && to.bytes > from.bytes {
			next += int(float64(memory-from.bytes) * float64(to.batch-from.batch) / float64(to.bytes-from.bytes))
		}
		at = min(max(next, good.batch+1), bad.batch-1)
	}
	if good.bytes == 0 {
		return 0, nil
	}
	return good.batch, nil
}

// weigher says what a batch needs.
type weigher struct {
	cfg     train.Config
	samples train.Samples
	memory  int64
	least   int // batch that the network can train with

	small, each int64 // bytes of the least batch, and of each sample more
}

// programs are the training program of a batch and the evaluation program.
func (w *weigher) programs(batch int) (training, evaluation *plan.Program, err error) {
	image, target, err := w.delivered()
	if err != nil {
		return nil, nil, err
	}
	if training, err = w.program(image, target, batch, nn.Train); err != nil {
		return nil, nil, err
	}
	evaluation, err = w.program(w.samples.Test.ImageShape(), w.samples.Test.TargetShape(), train.EvalBatch, nn.Eval)
	return training, evaluation, err
}

// delivered are the shapes of a training sample after augmentation.
func (w *weigher) delivered() (image, target []int, err error) {
	s, err := data.NewSampler(data.SamplerOptions{Samples: w.samples.Train.Len(), World: 1, BatchPerWorker: 1})
	if err != nil {
		return nil, nil, err
	}
	l, err := data.NewLoader(w.samples.Train, s, data.LoaderOptions{Augment: w.cfg.Data.Augment})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	return l.ImageShape(), l.TargetShape(), nil
}

func (w *weigher) program(image, target []int, batch int, mode nn.Mode) (*plan.Program, error) {
	net, err := w.cfg.Model.Network(image, target)
	if err != nil {
		return nil, err
	}
	g, err := net.Graph(batch, mode)
	if err != nil {
		return nil, err
	}
	return plan.Lower(g, w.cfg.Lowering())
}

// byPlan reckons from the engine's memory plans of two small batches: what an
// engine holds grows by the same for each sample.
func (w *weigher) byPlan(_ context.Context, batch int) (BatchTest, error) {
	if w.small == 0 {
		const apart = 3
		least, err := w.planned(w.least)
		if err != nil {
			return BatchTest{}, err
		}
		more, err := w.planned(w.least + apart)
		if err != nil {
			return BatchTest{}, err
		}
		w.small, w.each = least, (more-least)/apart
	}
	n := w.small + int64(batch-w.least)*w.each
	return BatchTest{Batch: batch, Bytes: n, Fits: n <= w.memory, How: "memory plan"}, nil
}

// byLoading loads the batch.
func (w *weigher) byLoading(_ context.Context, batch int) (BatchTest, error) {
	n, err := w.planned(batch)
	return BatchTest{Batch: batch, Bytes: n, Fits: n <= w.memory, How: "engine that loaded it"}, err
}

// planned is what the engine plans for training and evaluation, the optimiser's
// slots, and the loader's batches: one in use and others ahead, see data.Loader.
func (w *weigher) planned(batch int) (n int64, err error) {
	err = w.loaded(batch, func(training, evaluation engine.Executable, p *plan.Program) error {
		m := p.Memory()
		batches := 1
		if w.cfg.Loader.Workers > 0 {
			batches += max(w.cfg.Loader.Prefetch, w.cfg.Loader.Workers)
		}
		// What the two share is counted once: parameters and states.
		n = training.MemoryBytes() + evaluation.MemoryBytes() - int64(m.Parameters+m.States)
		n += int64(m.Parameters*len(w.cfg.Optimizer.Update(0, 1).Slots()) + m.Inputs*batches)
		return nil
	})
	return n, err
}

// byStep does one optimiser step on zeros. Any failure but the user's means that
// it does not fit.
func (w *weigher) byStep(ctx context.Context, batch int) (BatchTest, error) {
	t := BatchTest{Batch: batch, How: "one step"}
	err := w.loaded(batch, func(training, _ engine.Executable, p *plan.Program) error {
		for _, id := range p.Inputs {
			in := p.Tensors[id]
			if err := training.SetInput(in.Name, make([]float32, in.Elements())); err != nil {
				return err
			}
		}
		u := w.cfg.Optimizer.Update(1e-9, 1)
		_, err := training.Step(ctx, nil, &u)
		return err
	})
	switch {
	case err == nil:
		t.Fits = true
	case ctx.Err() != nil:
		return t, err
	case errors.Is(err, engine.ErrOutOfMemory):
		t.Why = err.Error()
	default:
		return t, err
	}
	return t, nil
}

// loaded has do look at both programs on the engine.
func (w *weigher) loaded(batch int, do func(training, evaluation engine.Executable, p *plan.Program) error) (err error) {
	p, q, err := w.programs(batch)
	if err != nil {
		return err
	}
	e, err := train.OpenEngine(w.cfg.Engine, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	training, err := e.Load(p, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, training.Close()) }()
	evaluation, err := e.Load(q, training)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, evaluation.Close()) }()
	return do(training, evaluation, p)
}
