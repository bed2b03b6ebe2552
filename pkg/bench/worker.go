package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/bench/internal/beside"
	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
)

// The tasks of a worker.
const (
	TaskTrain     = "train"
	taskAllReduce = "allreduce"
)

// WorkerOptions configures Work.
type WorkerOptions struct {
	Task   string // "train", "allreduce" or "read"
	Shape  Shape
	Engine engine.Options

	Open func(engine.Options) (engine.Engine, error) // starts the engine; nil: the one that Engine names
}

// openEngine starts the engine that o names. If o names none, it uses the first GPU.
func openEngine(o engine.Options) (engine.Engine, error) {
	if _, ok := o.CUDA(); ok {
		return cuda.New(o, 0)
	}
	return cpu.New(o)
}

// Work runs Lockstep's side of a comparison: one process that answers requests from in
// on out until in ends. With RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
// LOCKSTEP_TOKEN in the environment it is one of several.
func Work(ctx context.Context, o WorkerOptions, in io.Reader, out io.Writer) (err error) {
	if o.Task == TaskRead {
		return readWork(ctx, in, out)
	}
	env, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	group, err := rendezvous.Join(ctx, env, rendezvous.Options{BuildID: buildid.ID})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	w := &worker{ctx: ctx, group: group}
	switch o.Task {
	case TaskTrain:
		err = w.load(o)
	case taskAllReduce:
		w.about = beside.Greeting{Name: "lockstep, " + group.Name(), Threads: 1}
	default:
		err = fmt.Errorf("bench worker: task %q is not known: use %s, %s or %s", o.Task, TaskTrain, taskAllReduce, TaskRead)
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(w.about); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		a, err := w.answer(strings.Fields(lines.Text()))
		if err != nil {
			return fmt.Errorf("bench worker: %w", err)
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

type worker struct {
	ctx    context.Context
	group  collective.Group
	about  beside.Greeting
	engine engine.Engine
	exe    engine.Executable
	sync   *strategy.DDP
	rng    *rand.Rand
	steps  int
	onGPU  bool

	image, target []float32
	draws         func() float32 // an element of target
	sum           device.Buffer
}

// load loads the network for its first step, with the same parameters on all ranks.
func (w *worker) load(o WorkerOptions) error {
	net, err := o.Shape.Build()
	if err != nil {
		return err
	}
	g, err := net.Graph(o.Shape.Batch, nn.Train)
	if err != nil {
		return err
	}
	p, err := plan.Lower(g, plan.Options{Fuse: o.Engine.Fuse})
	if err != nil {
		return err
	}
	if o.Open == nil {
		o.Open = openEngine
	}
	if w.engine, err = o.Open(o.Engine); err != nil {
		return err
	}
	_, w.onGPU = o.Engine.CUDA()
	if w.exe, err = w.engine.Load(p, nil); err != nil {
		return err
	}
	for name, v := range g.InitialValues(1) {
		if err := w.exe.Set(name, v); err != nil {
			return err
		}
	}
	// The initial values are no longer needed, and the runtime would keep them for
	// a long time, because the engine fills its memory only in the first step.
	debug.FreeOSMemory()
	one, err := model.Summarize(net, 1)
	if err != nil {
		return err
	}
	w.about = beside.Greeting{
		Name: "lockstep " + w.engine.Name(), Threads: o.Engine.Threads,
		Parameters: net.Parameters(), FLOPsPerImage: 3 * one.FLOPs,
	}
	if w.group.Size() > 1 || !w.onGPU {
		w.sync = strategy.NewDDP(w.ctx, w.group)
	}
	w.rng = rand.New(rand.NewPCG(1, uint64(w.group.Rank())))
	image, target, whole := beside.BatchOf(p)
	w.image, w.target, w.draws = image, target, func() float32 { return float32(w.rng.IntN(whole)) }
	if net.Task() == model.Regression {
		w.draws = func() float32 { return 2*w.rng.Float32() - 1 }
	}
	return nil
}

func (w *worker) close() error {
	var errs []error
	if w.sync != nil {
		errs = append(errs, w.sync.Close())
	}
	if w.exe != nil {
		errs = append(errs, w.exe.Close())
	}
	if w.engine != nil {
		errs = append(errs, w.engine.Close())
	}
	return errors.Join(errs...)
}

func (w *worker) answer(request []string) (beside.Answer, error) {
	switch {
	case len(request) == 1 && request[0] == beside.RequestStep && w.exe != nil:
		return w.step()
	case len(request) == 2 && request[0] == beside.RequestSteps && w.exe != nil:
		n, err := strconv.Atoi(request[1])
		if err != nil || n < 1 {
			return beside.Answer{}, fmt.Errorf("%s %s: name a number of steps", beside.RequestSteps, request[1])
		}
		return w.manySteps(n)
	case len(request) == 3 && request[0] == beside.RequestAllReduce && w.exe == nil:
		size, err := strconv.Atoi(request[1])
		if err != nil {
			return beside.Answer{}, err
		}
		count, err := strconv.Atoi(request[2])
		if err != nil {
			return beside.Answer{}, err
		}
		return w.allReduce(size, count)
	case len(request) == 1 && request[0] == beside.RequestMemory:
		if w.onGPU {
			return beside.Answer{PeakBytes: w.exe.MemoryBytes()}, nil
		}
		n, err := peakBytes("/proc/self/status")
		return beside.Answer{PeakBytes: n}, err
	}
	return beside.Answer{}, fmt.Errorf("request %q is not known to this task", strings.Join(request, " "))
}

// step trains on new images. Copying them to the engine's layout is timed, and
// generating them is not, as on the other side.
func (w *worker) step() (beside.Answer, error) {
	w.draw()
	if err := w.group.Barrier(w.ctx); err != nil {
		return beside.Answer{}, err
	}
	begin := time.Now()
	if err := w.feed(); err != nil {
		return beside.Answer{}, err
	}
	if err := w.train(); err != nil {
		return beside.Answer{}, err
	}
	return beside.Answer{Seconds: time.Since(begin).Seconds(), Loss: w.exe.Loss()}, nil
}

// manySteps runs consecutive steps on one batch. On a GPU, the batch is already in its
// memory, as the peer's batches are, and each step reads it anew.
func (w *worker) manySteps(count int) (beside.Answer, error) {
	w.draw()
	if err := w.feed(); err != nil {
		return beside.Answer{}, err
	}
	if err := w.train(); err != nil { // completes the copy to the device
		return beside.Answer{}, err
	}
	if err := w.group.Barrier(w.ctx); err != nil {
		return beside.Answer{}, err
	}
	begin := time.Now()
	for range count {
		if err := w.train(); err != nil {
			return beside.Answer{}, err
		}
	}
	return beside.Answer{Seconds: time.Since(begin).Seconds(), Loss: w.exe.Loss()}, nil
}

// draw generates a new batch.
func (w *worker) draw() {
	for i := range w.image {
		w.image[i] = w.rng.Float32()
	}
	for i := range w.target {
		w.target[i] = w.draws()
	}
}

// feed copies the batch to the engine.
func (w *worker) feed() error {
	if err := w.exe.SetInput(model.ImageInput, w.image); err != nil {
		return err
	}
	return w.exe.SetInput(model.TargetInput, w.target)
}

// train runs one step on the engine's current batch.
func (w *worker) train() error {
	w.steps++
	c := optim.DefaultConfig()
	update := c.Update(c.LearningRate, w.steps)
	var sync engine.GradSync // nil for one worker on a GPU, whose step is then one graph
	if w.sync != nil {
		sync = w.sync
	}
	_, err := w.exe.Step(w.ctx, sync, &update)
	return err
}

// allReduce performs count sums of a buffer of size bytes.
func (w *worker) allReduce(size, count int) (beside.Answer, error) {
	if n := size / 4; w.sum.Len() != n {
		w.sum = device.Buffer{F32: make([]float32, n)}
	}
	if err := w.group.Barrier(w.ctx); err != nil {
		return beside.Answer{}, err
	}
	begin := time.Now()
	for range count {
		if err := w.group.AllReduce(w.ctx, w.sum); err != nil {
			return beside.Answer{}, err
		}
	}
	return beside.Answer{Seconds: time.Since(begin).Seconds()}, nil
}

// peakBytes returns the peak resident memory of a process from its status in /proc.
// getrusage is not used, because its maximum is at least that of the program that
// started the process.
func peakBytes(status string) (int64, error) {
	text, err := os.ReadFile(status)
	if err != nil {
		return 0, fmt.Errorf("read peak memory: %w", err)
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read peak memory from %s: %w", status, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read peak memory: %s has no line VmHWM", status)
}
