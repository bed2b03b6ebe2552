package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/launch"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// taskEpochs is the task of a worker that trains one epoch per request.
const taskEpochs = "epochs"

// endlessEpochs is the number of epochs of a training that ends when the worker's input ends.
const endlessEpochs = 1_000_000

var errInputEnded = errors.New("the input has ended")

// answerEpochRequests trains as lockstep train does, but waits for a request before each epoch. It answers
// with the epoch's seconds, without its evaluation and checkpoint.
func answerEpochRequests(ctx context.Context, w train.Worker, in io.Reader, out io.Writer) error {
	encoder, lines := json.NewEncoder(out), bufio.NewScanner(in)
	if err := encoder.Encode(comparison.Greeting{Name: "lockstep train", Threads: w.Threads}); err != nil {
		return err
	}
	wait := func() error {
		if !lines.Scan() {
			return cmp.Or(lines.Err(), errInputEnded)
		}
		if lines.Text() != comparison.RequestEpoch {
			return fmt.Errorf("bench worker: unknown request %q, want %s", lines.Text(), comparison.RequestEpoch)
		}
		return nil
	}
	err := wait()
	if err == nil {
		w.EpochDone = func(row runs.Epoch) error {
			if err := encoder.Encode(comparison.Answer{Seconds: row.Seconds, Samples: row.Samples, Loss: row.TrainLoss}); err != nil {
				return err
			}
			return wait()
		}
		err = w.Train(ctx)
	}
	if errors.Is(err, errInputEnded) {
		return nil
	}
	return err
}

// measuredTraining describes one or several simultaneous trainings whose epochs are measured.
type measuredTraining struct {
	config  string
	workers int
	threads int // per worker; 0: 1
	copies  int // simultaneous trainings that exchange nothing; 0: 1

	binding runs.Binding // of the workers, from bindTrainings
	folder  string       // of the run folders
}

func (t measuredTraining) describe() string {
	name := fmt.Sprintf("%s, %d workers", t.config, t.workers)
	if t.copies > 1 {
		name += fmt.Sprintf(", %d at the same time", t.copies)
	}
	return name
}

// bindTrainings chooses the CPUs of the trainings' workers as lockstep launch does. It must be called before
// any of them has started.
func bindTrainings(all []measuredTraining) error {
	var workers []int
	threads := 1
	for _, t := range all {
		workers, threads = append(workers, t.workers), max(threads, t.threads)
	}
	for i := range all {
		b, err := launch.Sweep{Workers: workers, Threads: threads}.PlanBinding(all[i].workers)
		if err != nil {
			return err
		}
		all[i].binding = b
	}
	return nil
}

// parseCPUs returns the CPUs to which b binds each process, or nil if b binds none.
func parseCPUs(b runs.Binding) ([][]int, error) {
	var all [][]int
	for _, text := range b.CPUs {
		cpus, err := topology.ParseCPUList(text)
		if err != nil {
			return nil, err
		}
		all = append(all, cpus)
	}
	return all, nil
}

// runningTraining is a training that has started. Each of its copies is a Side.
type runningTraining struct {
	copies []*comparison.Side
}

func (t measuredTraining) start(ctx context.Context) (*runningTraining, error) {
	command, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return nil, err
	}
	p := comparison.Program{Workers: t.workers}
	if p.CPUs, err = parseCPUs(t.binding); err != nil {
		return nil, err
	}
	binding, err := json.Marshal(t.binding)
	if err != nil {
		return nil, err
	}
	p.Env = []string{train.BindingVariable + "=" + string(binding)}
	if set := os.Getenv("LOCKSTEP_CPU"); set != "" {
		p.Env = append(p.Env, "LOCKSTEP_CPU="+set)
	}
	r := &runningTraining{}
	for range max(1, t.copies) {
		dir, err := os.MkdirTemp(t.folder, "run-")
		if err != nil {
			r.Close()
			return nil, err
		}
		p.Argv = append(slices.Clone(command), "--task", taskEpochs, "--config", t.config, "--threads", strconv.Itoa(max(1, t.threads)),
			"--run", filepath.Join(dir, "run"), "--set", "checkpoint.every="+strconv.Itoa(endlessEpochs))
		s, err := comparison.Start(ctx, p)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.copies = append(r.copies, s)
	}
	return r, nil
}

func (r *runningTraining) Close() {
	for _, s := range r.copies {
		s.Close()
	}
}

// trainEpochs trains the next epochs, and returns the samples per second of all copies together.
func (r *runningTraining) trainEpochs(epochs int) (float64, error) {
	rates, errs := make([]float64, len(r.copies)), make([]error, len(r.copies))
	var all sync.WaitGroup
	for i, s := range r.copies {
		all.Go(func() {
			samples, seconds := 0, 0.0
			for range epochs {
				answers, err := s.Ask(comparison.RequestEpoch)
				if err != nil {
					errs[i] = err
					return
				}
				samples, seconds = samples+answers[0].Samples, seconds+answers[0].Seconds
			}
			rates[i] = float64(samples) / seconds
		})
	}
	all.Wait()
	sum := 0.0
	for _, v := range rates {
		sum += v
	}
	return sum, errors.Join(errs...)
}

// alternatingMeasurement describes how epochs of several trainings are measured.
type alternatingMeasurement struct {
	repeats  int
	perStart int // repeats between two starts of the processes, because the speed of a process depends on where its memory is
	epochs   int // of each training in a repeat
}

// measureThroughputs returns the throughputs in samples per second by training and repeat. The processes of all
// trainings exist at the same time, but only one training runs, in an order that each repeat reverses. Their
// first epoch is not counted.
func (a alternatingMeasurement) measureThroughputs(ctx context.Context, all []measuredTraining, output io.Writer) ([][]float64, error) {
	folder, err := os.MkdirTemp("", "lockstep-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if err := bindTrainings(all); err != nil {
		return nil, err
	}
	rates := make([][]float64, len(all))
	for first := 0; first < a.repeats; first += a.perStart {
		err := a.startAndMeasure(ctx, all, folder, min(a.perStart, a.repeats-first), rates)
		if err != nil {
			return nil, err
		}
		for i, t := range all {
			comparison.Logf(output, "%s: %.4g samples/s after %d repeats", t.describe(), comparison.Median(rates[i]), len(rates[i]))
		}
	}
	return rates, nil
}

// startAndMeasure starts the trainings, and appends the throughputs of the given number of repeats to rates.
func (a alternatingMeasurement) startAndMeasure(ctx context.Context, all []measuredTraining, folder string, repeats int, rates [][]float64) error {
	running := make([]*runningTraining, len(all))
	for i, t := range all {
		t.folder = folder
		r, err := t.start(ctx)
		if err != nil {
			return err
		}
		defer r.Close()
		if _, err := r.trainEpochs(1); err != nil {
			return err
		}
		running[i] = r
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	for range repeats {
		for _, i := range order {
			v, err := running[i].trainEpochs(a.epochs)
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], v)
		}
		slices.Reverse(order)
	}
	return nil
}
