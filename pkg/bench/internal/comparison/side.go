package comparison

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/runs/transfers"
)

// Requests to a side. The sides of a comparison are separate programs with the same protocol. A side
// first describes itself in one line of JSON (Greeting). Then it reads requests, one per line, and
// answers each by one line of JSON (Answer). It exits at the end of its input. Between requests it
// is idle, so that the sides can be measured alternately.
const (
	RequestStep      = "step"      // train one step
	RequestSteps     = "steps"     // steps COUNT: train COUNT consecutive steps
	RequestRecord    = "record"    // record BYTES ALGORITHM: record an all-reduce of a float32 buffer of BYTES bytes
	RequestAllReduce = "allreduce" // allreduce BYTES COUNT: COUNT all-reduces of a float32 buffer of BYTES bytes
	RequestCheck     = "check"     // check BYTES: one all-reduce of such a buffer, and how many of its elements are wrong
	RequestMemory    = "memory"    // report the peak memory
	RequestEpoch     = "epoch"     // train the next epoch
)

// Greeting is the first line that a side writes.
type Greeting struct {
	Name       string `json:"name"`
	Device     string `json:"device,omitempty"`
	Threads    int    `json:"threads"`
	Parameters int    `json:"parameters,omitempty"`
	// FLOPsPerImage counts the operations of the convolutions. The backward pass counts twice the
	// forward pass.
	FLOPsPerImage int64 `json:"flops_per_image,omitempty"`
}

// Answer is a side's answer to a request.
type Answer struct {
	Seconds   float64 `json:"seconds,omitempty"`
	Loss      float64 `json:"loss,omitempty"`
	PeakBytes int64   `json:"peak_bytes,omitempty"`
	Wrong     *int    `json:"wrong,omitempty"` // wrong elements; nil: nothing was checked

	Samples   int                  `json:"samples,omitempty"` // of all processes together
	Recording *transfers.Recording `json:"recording,omitempty"`
}

// Program describes how to start a side.
type Program struct {
	Argv    []string
	Env     []string // added to the environment of this process
	Workers int      // processes
	PerNode int      // processes on each node that Lockstep is told of; 0: all are on one node

	// CPUs contains the CPUs to which each process is bound, by rank. If it is nil, no process is bound.
	CPUs [][]int
}

// CheckSameWork returns an error unless both sides train the same network with the given number of threads.
func CheckSameWork(ours, peers Greeting, threads int) error {
	switch {
	case ours.Parameters != peers.Parameters:
		return fmt.Errorf("compare %s with %s: the networks differ: got %d and %d parameters", ours.Name, peers.Name, ours.Parameters, peers.Parameters)
	case ours.FLOPsPerImage != peers.FLOPsPerImage:
		return fmt.Errorf("compare %s with %s: the networks differ: got %d and %d FLOPs per image", ours.Name, peers.Name, ours.FLOPsPerImage, peers.FLOPsPerImage)
	case ours.Threads != threads || peers.Threads != threads:
		return fmt.Errorf("compare %s with %s: got %d and %d threads, want %d for both", ours.Name, peers.Name, ours.Threads, peers.Threads, threads)
	}
	return nil
}

// Side is a running program with one process per worker.
type Side struct {
	About     Greeting // greeting of rank 0
	processes []*sideProcess
	cancel    context.CancelFunc
}

type sideProcess struct {
	rank   int
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr tailWriter
	About  Greeting
	wait   func() error // once
}

// closeTimeout is how long a process may take to exit after its input was closed.
const closeTimeout = 10 * time.Second

// Start starts the processes of p and reads their greetings.
func Start(ctx context.Context, p Program) (*Side, error) {
	port, err := rendezvous.FindFreePort(ctx)
	if err != nil {
		return nil, err
	}
	s := &Side{}
	ctx, s.cancel = context.WithCancel(ctx)
	token := rand.Text()
	for rank := range p.Workers {
		one, err := startProcess(ctx, p, rank, port, token)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.processes = append(s.processes, one)
	}
	err = s.forEachProcess(func(p *sideProcess) error { return p.readAnswer(&p.About) })
	if err != nil {
		s.Close()
		return nil, err
	}
	s.About = s.processes[0].About
	return s, nil
}

func startProcess(ctx context.Context, p Program, rank, port int, token string) (*sideProcess, error) {
	one := &sideProcess{rank: rank, cmd: exec.CommandContext(ctx, p.Argv[0], p.Argv[1:]...)}
	one.cmd.Env = sideEnvironment(p, rank, port, token)
	one.cmd.Stderr = &one.stderr
	one.cmd.WaitDelay = closeTimeout // limits the wait for child processes that keep the pipes open
	in, err := one.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := one.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	one.in, one.out = in, bufio.NewReader(out)
	if err := startOnCPUs(one.cmd, p.CPUs, rank); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Argv[0], err)
	}
	one.wait = sync.OnceValue(one.cmd.Wait)
	return one, nil
}

// startOnCPUs starts c, bound to the CPUs of its rank.
func startOnCPUs(c *exec.Cmd, cpus [][]int, rank int) (err error) {
	if cpus == nil {
		return c.Start()
	}
	// A process has the binding of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := topology.AllowedCPUs()
	if err != nil {
		return err
	}
	if err := topology.BindThread(cpus[rank]); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topology.BindThread(before)) }()
	return c.Start()
}

// sideEnvironment returns this process's environment, without variables that would change the side's
// behavior. If there are several workers, it adds each worker's rank and address.
func sideEnvironment(p Program, rank, port int, token string) []string {
	set := slices.Clone(p.Env)
	drop := []string{
		"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
		"LOCKSTEP_TOKEN", "LOCKSTEP_CPU", "GOMAXPROCS", "GOGC", "GOMEMLIMIT",
		"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
	}
	if p.Workers > 1 {
		local := cmp.Or(p.PerNode, p.Workers)
		set = append(set, "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(p.Workers),
			"LOCAL_RANK="+strconv.Itoa(rank%local), "LOCAL_WORLD_SIZE="+strconv.Itoa(local),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(port), "LOCKSTEP_TOKEN="+token)
	}
	return process.ModifiedEnvironment(set, drop...)
}

// Ask sends one request to every process and returns their answers by rank.
func (s *Side) Ask(request string) ([]Answer, error) {
	answers := make([]Answer, len(s.processes))
	err := s.forEachProcess(func(p *sideProcess) error {
		if _, err := io.WriteString(p.in, request+"\n"); err != nil {
			return p.waitForExit(err)
		}
		return p.readAnswer(&answers[p.rank])
	})
	return answers, err
}

// TimeRequest sends a request and returns the seconds that it took on the slowest process.
func (s *Side) TimeRequest(request string) (float64, error) {
	answers, err := s.Ask(request)
	if err != nil {
		return 0, err
	}
	longest := 0.0
	for _, a := range answers {
		if !(a.Seconds > 0) {
			return 0, fmt.Errorf("send request %q to %s: got a duration of %g seconds, want a positive one", request, s.About.Name, a.Seconds)
		}
		longest = max(longest, a.Seconds)
	}
	return longest, nil
}

// CheckAllReduce requests a check of one all-reduce of size bytes. It returns the number of wrong
// elements on all processes.
func (s *Side) CheckAllReduce(size int) (int, error) {
	answers, err := s.Ask(fmt.Sprintf("%s %d", RequestCheck, size))
	if err != nil {
		return 0, err
	}
	wrong := 0
	for _, a := range answers {
		if a.Wrong == nil {
			return 0, fmt.Errorf("check an all-reduce of %s: the answer has no number of wrong elements", s.About.Name)
		}
		wrong += *a.Wrong
	}
	return wrong, nil
}

// PeakBytes returns the sum of the processes' peak memory in bytes.
func (s *Side) PeakBytes() (float64, error) {
	answers, err := s.Ask(RequestMemory)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, a := range answers {
		if a.PeakBytes <= 0 {
			return 0, fmt.Errorf("get peak memory of %s: got %d bytes, want a positive number", s.About.Name, a.PeakBytes)
		}
		sum += float64(a.PeakBytes)
	}
	return sum, nil
}

// CompareMemory returns r with the peak memory of both sides filled in.
func CompareMemory(r Record, ours, peer *Side) (Record, error) {
	a, err := ours.PeakBytes()
	if err != nil {
		return r, err
	}
	p, err := peer.PeakBytes()
	if err != nil {
		return r, err
	}
	r.Unit, r.Peer = "MiB", peer.About.Name
	return CompareCosts(r, []float64{a / (1 << 20)}, []float64{p / (1 << 20)}), nil
}

// forEachProcess calls f for all processes in parallel. After an error, it kills the other processes, which
// may wait for the failed one, and returns the first error.
func (s *Side) forEachProcess(f func(*sideProcess) error) error {
	errs := make(chan error)
	for _, p := range s.processes {
		go func() { errs <- f(p) }()
	}
	var first error
	for range s.processes {
		if err := <-errs; err != nil && first == nil {
			first = err
			s.cancel()
		}
	}
	return first
}

// Close closes the side's input, and kills processes that have not ended after closeTimeout. It ignores exit
// codes, because the answers have been received.
func (s *Side) Close() {
	if s == nil {
		return
	}
	for _, p := range s.processes {
		_ = p.in.Close()
	}
	late := time.AfterFunc(closeTimeout, s.cancel)
	defer late.Stop()
	for _, p := range s.processes {
		_ = p.wait()
	}
	s.cancel()
}

func (p *sideProcess) readAnswer(v any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return p.waitForExit(err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("read answer of %s: %q: %w", p.describe(), line, err)
	}
	return nil
}

// waitForExit waits for a process that no longer answers. The error contains the last output of the
// process and the reason: the error of the process or, if it exited normally, cause.
func (p *sideProcess) waitForExit(cause error) error {
	_ = p.in.Close()
	if err := p.wait(); err != nil {
		cause = err
	}
	if text := p.stderr.String(); text != "" {
		return fmt.Errorf("%s ended: %w; last lines of its output:\n%s", p.describe(), cause, text)
	}
	return fmt.Errorf("%s ended: %w", p.describe(), cause)
}

// describe returns the name of the process in errors: the name in its greeting or else its command
// line, and its rank.
func (p *sideProcess) describe() string {
	name := cmp.Or(p.About.Name, strings.Join(p.cmd.Args, " "))
	return fmt.Sprintf("%s (rank %d)", name, p.rank)
}

// A tailWriter keeps the last tailBytes bytes written to it.
type tailWriter struct{ text []byte }

const tailBytes = 2000

func (t *tailWriter) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(b), nil
}

func (t *tailWriter) String() string { return strings.TrimSpace(string(t.text)) }
