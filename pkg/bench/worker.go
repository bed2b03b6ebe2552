package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/engine"
	_ "lockstep/pkg/engine/all" // for comparisons on any device
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// The tasks of a worker; see also TaskRead.
const (
	TaskTrain     = "train"
	taskAllReduce = "allreduce"
	taskOpenMPI   = "openmpi"
	taskStream    = "stream"
)

// WorkerOptions configures RunWorker.
type WorkerOptions struct {
	Task   string // "train", "epochs", "allreduce", "openmpi", "stream" or "read"
	Shape  Shape
	Engine engine.Options
	Epochs train.Worker // the training of task "epochs"

	Open func(engine.Options) (engine.Engine, error) // starts the engine; nil: engine.Open
}

// AddFlags adds the flags of a worker to f, with o's values as defaults.
func (o *WorkerOptions) AddFlags(f *flag.FlagSet) {
	f.StringVar(&o.Task, "task", TaskTrain, "train, epochs, allreduce, openmpi, stream or read")
	f.IntVar(&o.Engine.Threads, "threads", 1, "number of threads")
	f.StringVar(&o.Epochs.Config, "config", o.Epochs.Config, "config of task epochs")
	f.StringVar(&o.Epochs.Run, "run", o.Epochs.Run, "run folder of task epochs")
	f.Func("set", "key=value in the config of task epochs, repeatable", func(s string) error {
		o.Epochs.Set = append(o.Epochs.Set, s)
		return nil
	})
	f.StringVar(&o.Engine.Convolution, "convolution", o.Engine.Convolution, "algorithm of convolutions")
	f.BoolVar(&o.Engine.Fuse, "fuse", o.Engine.Fuse, "compute batch norm and ReLU in one kernel")
	f.BoolVar(&o.Engine.Overlap, "overlap", o.Engine.Overlap, "exchange gradients during the backward pass")
	f.StringVar(&o.Engine.Device, "device", o.Engine.Device, "cpu or cuda")
	f.StringVar(&o.Engine.Precision, "precision", o.Engine.Precision, "fp32; on a GPU also bf16 or fp16, on a CPU with AVX512_BF16 bf16")
	f.BoolVar(&o.Engine.TF32, "tf32", o.Engine.TF32, "use TF32 in fp32 on a GPU")
	f.StringVar(&o.Shape.Model, "model", o.Shape.Model, "network: "+strings.Join(Models(), ", "))
	f.StringVar(&o.Shape.Network, "network", o.Shape.Network, "network of lockstep model, instead of --model")
	f.IntVar(&o.Shape.Base, "base", o.Shape.Base, "channels of the first level")
	f.IntVar(&o.Shape.Depth, "depth", o.Shape.Depth, "levels of a U-Net")
	f.IntVar(&o.Shape.Size, "size", o.Shape.Size, "height of an image, side of a volume")
	f.IntVar(&o.Shape.Width, "width", o.Shape.Width, "width of an image; 0: the same as the height")
	f.IntVar(&o.Shape.Batch, "batch", o.Shape.Batch, "images per step")
	f.BoolVar(&o.Shape.Biases, "biases", o.Shape.Biases, "convolutions before a batch norm have biases")
}

// RunWorker runs Lockstep's side of a comparison: it answers the requests in in on out, until the end of in.
// If RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and LOCKSTEP_TOKEN are set, it is one of several workers.
func RunWorker(ctx context.Context, o WorkerOptions, in io.Reader, out io.Writer) (err error) {
	switch o.Task {
	case TaskRead:
		return answerReadRequests(ctx, in, out)
	case taskOpenMPI:
		return answerWithOpenMPI(in, out)
	case taskEpochs:
		o.Epochs.Threads, o.Epochs.Epochs = o.Engine.Threads, endlessEpochs
		return answerEpochRequests(ctx, o.Epochs, in, out)
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
		err = w.loadNetwork(o)
	case taskAllReduce:
		w.about = comparison.Greeting{Name: "lockstep, " + group.Name(), Threads: 1}
		w.answersForAll = env.Collective == transportMPI
	case taskStream:
		w.about = comparison.Greeting{Name: "TCP stream, both ways", Threads: 1}
		w.stream, err = connectStream(ctx, group)
	default:
		err = fmt.Errorf("bench worker: unknown task %q: use %s, %s, %s, %s, %s or %s", o.Task, TaskTrain, taskEpochs, taskAllReduce, taskOpenMPI, taskStream, TaskRead)
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return err
	}
	if w.answersForAll && group.Rank() > 0 {
		return w.followRequests()
	}
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(w.about); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		a, err := w.answerRequest(strings.Fields(lines.Text()))
		if err != nil {
			return fmt.Errorf("bench worker: %w", err)
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
	if w.answersForAll {
		err = w.shareRequest(&allReduceRequest{})
	}
	return errors.Join(err, lines.Err())
}

// worker is the state of a worker that trains or measures all-reduces.
type worker struct {
	ctx    context.Context
	group  collective.Group
	about  comparison.Greeting
	engine engine.Engine
	exe    engine.Executable
	sync   *strategy.DDP
	rng    *rand.Rand
	steps  int
	onGPU  bool

	image, target []float32
	draws         func() float32 // returns a random element of target
	sum           device.Buffer
	stream        *tcpStream // of task stream
	answersForAll bool       // rank 0 answers for all ranks and sends them the requests
}

// loadNetwork loads the network into the engine, with the same parameters on all ranks.
func (w *worker) loadNetwork(o WorkerOptions) error {
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
		o.Open = func(o engine.Options) (engine.Engine, error) { return engine.Open(o, 0) }
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
	// The runtime would keep the initial values for a long time, because the engine fills its memory only in
	// the first step.
	debug.FreeOSMemory()
	one, err := model.Summarize(net, 1)
	if err != nil {
		return err
	}
	w.about = comparison.Greeting{
		Name: "lockstep " + w.engine.Name(), Threads: o.Engine.Threads,
		Parameters: net.Parameters(), FLOPsPerImage: 3 * one.FLOPs,
	}
	if w.group.Size() > 1 {
		w.sync = strategy.NewDDP(w.ctx, w.group)
	}
	w.rng = rand.New(rand.NewPCG(1, uint64(w.group.Rank())))
	image, target, whole := comparison.AllocateBatch(p)
	w.image, w.target, w.draws = image, target, func() float32 { return float32(w.rng.IntN(whole)) }
	if net.Task() == model.Regression {
		w.draws = func() float32 { return 2*w.rng.Float32() - 1 }
	}
	return nil
}

func (w *worker) close() error {
	var errs []error
	if w.stream != nil {
		errs = append(errs, w.stream.file.Close())
	}
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

func (w *worker) answerRequest(request []string) (comparison.Answer, error) {
	switch {
	case len(request) == 1 && request[0] == comparison.RequestStep && w.exe != nil:
		return w.timeStep()
	case len(request) == 2 && request[0] == comparison.RequestSteps && w.exe != nil:
		n, err := strconv.Atoi(request[1])
		if err != nil || n < 1 {
			return comparison.Answer{}, fmt.Errorf("request %s: got %q, want a positive number of steps", comparison.RequestSteps, request[1])
		}
		return w.timeSteps(n)
	case len(request) > 0 && (request[0] == comparison.RequestAllReduce || request[0] == comparison.RequestCheck) && w.exe == nil:
		r, err := parseReduceRequest(request)
		if err != nil {
			return comparison.Answer{}, err
		}
		if w.answersForAll {
			if err := w.shareRequest(&r); err != nil {
				return comparison.Answer{}, err
			}
		}
		return w.answerReduceRequest(r)
	case len(request) == 3 && request[0] == comparison.RequestRecord && w.exe == nil:
		n, err := strconv.Atoi(request[1])
		if err != nil {
			return comparison.Answer{}, fmt.Errorf("request %s: %w", comparison.RequestRecord, err)
		}
		return w.recordAllReduce(n, request[2])
	case len(request) == 1 && request[0] == comparison.RequestMemory:
		if w.onGPU {
			return comparison.Answer{PeakBytes: w.exe.MemoryBytes()}, nil
		}
		n, err := readPeakBytes("/proc/self/status")
		return comparison.Answer{PeakBytes: n}, err
	}
	return comparison.Answer{}, fmt.Errorf("unknown request %q for a worker with this --task", strings.Join(request, " "))
}

// timeStep trains one step on new images. Its time includes copying them to the engine's layout but not
// generating them, as in PyTorch's script.
func (w *worker) timeStep() (comparison.Answer, error) {
	w.fillBatch()
	if err := w.group.Barrier(w.ctx); err != nil {
		return comparison.Answer{}, err
	}
	begin := time.Now()
	if err := w.copyBatch(); err != nil {
		return comparison.Answer{}, err
	}
	if err := w.trainStep(); err != nil {
		return comparison.Answer{}, err
	}
	return comparison.Answer{Seconds: time.Since(begin).Seconds(), Loss: w.exe.Loss()}, nil
}

// timeSteps times count consecutive steps on one batch. On a GPU, the batch is already in its memory, as in
// PyTorch's script.
func (w *worker) timeSteps(count int) (comparison.Answer, error) {
	w.fillBatch()
	if err := w.copyBatch(); err != nil {
		return comparison.Answer{}, err
	}
	if err := w.trainStep(); err != nil { // completes the copy to the device
		return comparison.Answer{}, err
	}
	if err := w.group.Barrier(w.ctx); err != nil {
		return comparison.Answer{}, err
	}
	begin := time.Now()
	for range count {
		if err := w.trainStep(); err != nil {
			return comparison.Answer{}, err
		}
	}
	return comparison.Answer{Seconds: time.Since(begin).Seconds(), Loss: w.exe.Loss()}, nil
}

func (w *worker) fillBatch() {
	for i := range w.image {
		w.image[i] = w.rng.Float32()
	}
	for i := range w.target {
		w.target[i] = w.draws()
	}
}

func (w *worker) copyBatch() error {
	if err := w.exe.SetInput(model.ImageInput, w.image); err != nil {
		return err
	}
	return w.exe.SetInput(model.TargetInput, w.target)
}

func (w *worker) trainStep() error {
	w.steps++
	c := optim.DefaultConfig()
	update := c.Update(c.LearningRate, w.steps)
	var sync engine.GradSync // nil for one worker
	if w.sync != nil {
		sync = w.sync
	}
	_, err := w.exe.Step(w.ctx, sync, &update)
	return err
}

// readPeakBytes returns the peak resident memory of a process from its file status in /proc.
// getrusage does not suffice, because its maximum also covers the program that started the process.
func readPeakBytes(status string) (int64, error) {
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
	return 0, fmt.Errorf("read peak memory: found no line VmHWM in %s", status)
}
