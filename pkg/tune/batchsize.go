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

// BatchOptions are the options of FindLargestBatch.
type BatchOptions struct {
	Memory  int64             // bytes for all workers on this machine together
	Workers int               // workers on this machine, which share Memory equally; 0: 1
	Tried   func(t BatchTest) // called after each test; nil: not called
}

// BatchTest is the result of testing whether one batch size fits in memory.
type BatchTest struct {
	Batch int   // samples per worker
	Bytes int64 // memory that one worker needs; 0 if unknown
	Fits  bool
	How   string // how it was tested: "memory plan", "engine that loaded it" or "one step"
	Why   string // the engine's error if it does not fit; empty if none
}

// String describes the test in one line, as in "batch 8: 96.0 MiB by the memory plan, fits".
func (b BatchTest) String() string {
	verdict := "fits"
	if !b.Fits {
		verdict = "does not fit"
	}
	line := fmt.Sprintf("batch %d: ", b.Batch)
	if b.Bytes > 0 {
		line += formatMiB(b.Bytes) + " by the " + b.How + ", "
	} else {
		line += b.How + ": "
	}
	if b.Why != "" {
		verdict += ": " + b.Why
	}
	return line + verdict
}

// BatchSearch is the result of FindLargestBatch, with all tests.
type BatchSearch struct {
	Tests   []BatchTest // in the order of the search
	Largest int         // largest batch per worker that fits; 0: none fits
	Memory  int64       // bytes per worker
	Workers int
	Bound   string // what limits the batch: "memory" or "samples"
}

// String returns one line per test, and the result in the last line.
func (s *BatchSearch) String() string {
	var b strings.Builder
	for _, t := range s.Tests {
		fmt.Fprintln(&b, t)
	}
	return b.String() + s.Verdict() + "\n"
}

// Verdict gives the result in one sentence.
func (s *BatchSearch) Verdict() string {
	each := fmt.Sprintf("%s per worker", formatMiB(s.Memory))
	switch {
	case s.Largest == 0:
		return "no batch fits in " + each + ": use a smaller network or smaller samples"
	case s.Bound == "samples":
		return fmt.Sprintf("largest batch: %d per worker, %d with %s: the data have no more samples; memory (%s) would allow more", s.Largest, s.Largest*s.Workers, english.FormatCount(s.Workers, "worker"), each)
	}
	return fmt.Sprintf("largest batch: %d per worker, %d with %s: %d does not fit in %s", s.Largest, s.Largest*s.Workers, english.FormatCount(s.Workers, "worker"), s.Largest+1, each)
}

func formatMiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// FindLargestBatch finds the largest batch per worker that fits in memory: it doubles the batch
// until one does not fit, then bisects.
//
// On the CPU it estimates the memory of a batch from the memory plans of two small batches. Then it
// loads the batch that it has found and the next larger one, and corrects the estimate if
// necessary. On a GPU, whose libraries allocate memory themselves, it loads each batch and does one
// training step. After an error in a test, the result contains the tests so far.
func FindLargestBatch(ctx context.Context, cfg train.Config, o BatchOptions) (*BatchSearch, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg, err := cfg.ForData()
	if err != nil {
		return nil, err
	}
	samples, err := train.OpenSamples(ctx, cfg.Data)
	if err != nil {
		return nil, err
	}
	s := &BatchSearch{Workers: max(1, o.Workers), Bound: "memory"}
	s.Memory = o.Memory / int64(s.Workers)
	most := samples.Train.Len() / s.Workers
	if most < 1 {
		return nil, fmt.Errorf("find largest batch: the data have %s for %s, want at least one sample per worker", english.FormatCount(samples.Train.Len(), "training sample"), english.FormatCount(s.Workers, "worker"))
	}
	w := &memoryTester{cfg: cfg, samples: samples, memory: s.Memory, least: 1}
	if _, _, err := w.lowerPrograms(1); err != nil && most > 1 {
		w.least = 2 // batch norm may need more than one value per channel
	}
	fits := w.testByMemoryPlan
	if _, gpu := cfg.Engine.CUDA(); gpu {
		fits = w.testByTrainingStep
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
	if s.Largest, err = findLargestFitting(w.least, most, func(b int) (bool, error) { return try(b, fits) }); err != nil {
		return s, err
	}
	if _, gpu := cfg.Engine.CUDA(); !gpu && s.Largest > 0 {
		loads := func(b int) (int64, bool, error) {
			ok, err := try(b, w.testByLoading)
			if err != nil {
				return 0, false, err
			}
			return s.Tests[len(s.Tests)-1].Bytes, ok, nil
		}
		if s.Largest, err = findLargestByLoading(s.Largest, most, s.Memory, measuredBatch{w.least, w.small}, loads); err != nil {
			return s, err
		}
	}
	if s.Largest == most {
		s.Bound = "samples"
	}
	return s, nil
}

// findLargestFitting returns the largest number from least to most for which fits returns true, or 0 if
// there is none. It starts with least and doubles the number until it does not fit. Then it bisects.
func findLargestFitting(least, most int, fits func(int) (bool, error)) (int, error) {
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

// measuredBatch is a batch size and its memory.
type measuredBatch struct {
	batch int
	bytes int64
}

// findLargestByLoading returns the largest batch, up to most, for which loads returns true, or 0 if there
// is none. loads also returns the number of bytes that the batch needs; memory is the limit. least
// is a small batch with its estimated memory. The search starts with the batch size estimated. Each
// next batch size is extrapolated linearly from the two loaded batches whose memory is closest to
// the limit, because over a wider range an engine's memory is not linear in the batch.
func findLargestByLoading(estimated, most int, memory int64, least measuredBatch, loads func(batch int) (int64, bool, error)) (int, error) {
	good, bad := measuredBatch{batch: least.batch - 1}, measuredBatch{batch: most + 1} // bytes are 0 until loaded
	below := least
	for at := estimated; bad.batch-good.batch > 1; {
		bytes, ok, err := loads(at)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			bad = measuredBatch{at, bytes}
		case good.bytes == 0:
			good = measuredBatch{at, bytes}
		default:
			below, good = good, measuredBatch{at, bytes}
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

// memoryTester determines how much memory a batch needs.
type memoryTester struct {
	cfg     train.Config
	samples train.Samples
	memory  int64 // bytes per worker
	least   int   // smallest batch with which the network can be trained

	small, each int64 // bytes for the batch least, and for each further sample; 0 until estimated
}

func (w *memoryTester) lowerPrograms(batch int) (training, evaluation *plan.Program, err error) {
	image, target, err := w.sampleShapes()
	if err != nil {
		return nil, nil, err
	}
	if training, err = w.lowerProgram(image, target, batch, nn.Train); err != nil {
		return nil, nil, err
	}
	evaluation, err = w.lowerProgram(w.samples.Test.ImageShape(), w.samples.Test.TargetShape(), train.EvalBatchSize, nn.Eval)
	return training, evaluation, err
}

// sampleShapes returns the shapes of a training sample after augmentation.
func (w *memoryTester) sampleShapes() (image, target []int, err error) {
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

func (w *memoryTester) lowerProgram(image, target []int, batch int, mode nn.Mode) (*plan.Program, error) {
	net, err := w.cfg.Model.Network(image, target)
	if err != nil {
		return nil, err
	}
	g, err := net.Graph(batch, mode)
	if err != nil {
		return nil, err
	}
	return plan.Lower(g, w.cfg.LoweringOptions())
}

// testByMemoryPlan estimates a batch's memory from the engine's memory plans of two small batches: it
// grows about linearly with the number of samples.
func (w *memoryTester) testByMemoryPlan(_ context.Context, batch int) (BatchTest, error) {
	if w.small == 0 {
		const apart = 3
		least, err := w.measureMemory(w.least)
		if err != nil {
			return BatchTest{}, err
		}
		more, err := w.measureMemory(w.least + apart)
		if err != nil {
			return BatchTest{}, err
		}
		w.small, w.each = least, (more-least)/apart
	}
	n := w.small + int64(batch-w.least)*w.each
	return BatchTest{Batch: batch, Bytes: n, Fits: n <= w.memory, How: "memory plan"}, nil
}

func (w *memoryTester) testByLoading(_ context.Context, batch int) (BatchTest, error) {
	n, err := w.measureMemory(batch)
	return BatchTest{Batch: batch, Bytes: n, Fits: n <= w.memory, How: "engine that loaded it"}, err
}

// measureMemory loads the programs for a batch size and returns the bytes that a worker needs: the
// engine's memory for training and evaluation, the optimizer's state, and the loader's batches (the
// one in use and the prefetched ones, see data.Loader).
func (w *memoryTester) measureMemory(batch int) (n int64, err error) {
	err = w.withLoadedPrograms(batch, func(training, evaluation engine.Executable, p *plan.Program) error {
		m := p.Memory()
		batches := 1
		if w.cfg.Loader.Workers > 0 {
			batches += max(w.cfg.Loader.Prefetch, w.cfg.Loader.Workers)
		}
		// Training and evaluation share parameters and states.
		n = training.MemoryBytes() + evaluation.MemoryBytes() - int64(m.Parameters+m.States)
		n += int64(m.Parameters*len(w.cfg.Optimizer.Update(0, 1).Slots()) + m.Inputs*batches)
		return nil
	})
	return n, err
}

// testByTrainingStep tests a batch by one optimizer step on zeros. If the engine runs out of memory, the
// batch does not fit. Any other error is returned.
func (w *memoryTester) testByTrainingStep(ctx context.Context, batch int) (BatchTest, error) {
	t := BatchTest{Batch: batch, How: "one step"}
	err := w.withLoadedPrograms(batch, func(training, _ engine.Executable, p *plan.Program) error {
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

// withLoadedPrograms opens an engine, loads the programs for a batch size, and calls do with both
// executables and the training program.
func (w *memoryTester) withLoadedPrograms(batch int, do func(training, evaluation engine.Executable, p *plan.Program) error) (err error) {
	p, q, err := w.lowerPrograms(batch)
	if err != nil {
		return err
	}
	e, err := engine.Open(w.cfg.Engine, 0)
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
