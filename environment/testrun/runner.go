package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A phase is a group of checks that together pass or fail.
type phase struct {
	name string
	what string
	run  func(ctx context.Context, r *runner) error

	// chain is the name of the chain that the phase belongs to. The phases of a chain run one after the other;
	// different chains run at the same time. Phases without a chain run before all chains, one after the other.
	chain string

	strict bool // whether only --strict runs the phase
}

type runner struct {
	options
	out   io.Writer
	skips []skipRule
	begin time.Time

	results []result // of the phases, in their order
	now     *result  // result of the phase that runs
	tail    lineTail // last lines of that phase's output
}

type result struct {
	Name     string        `json:"name"`
	Result   string        `json:"result"` // passed or failed
	Seconds  float64       `json:"seconds"`
	CPU      float64       `json:"cpu_seconds"` // of its processes that were waited for
	Error    string        `json:"error,omitempty"`
	Output   string        `json:"output,omitempty"` // the last lines, if the phase failed
	Passed   int           `json:"tests_passed"`
	Failures []failure     `json:"failures,omitempty"`
	Skips    []skippedTest `json:"skips,omitempty"`
}

// failure is a test that failed, or a package whose tests gave no result.
type failure struct {
	Name   string `json:"name"`
	Output string `json:"output"`

	refused bool // the test was skipped, which --strict does not allow; Output is the reason
}

const (
	passed = "passed"
	failed = "failed"
)

// runPhases runs the phases and appends their results in the given order. A failure does not stop the others.
func (r *runner) runPhases(ctx context.Context, phases []phase) {
	results := make([]result, len(phases))
	runChain := func(name string) {
		for i, p := range phases {
			if p.chain == name {
				results[i] = r.runPhase(ctx, p)
			}
		}
	}
	runChain("")
	var running sync.WaitGroup
	started := map[string]bool{"": true}
	for _, p := range phases {
		if !started[p.chain] {
			started[p.chain] = true
			running.Go(func() { runChain(p.chain) })
		}
	}
	running.Wait()
	r.results = append(r.results, results...)
}

// runPhase runs p with its own runner. An error or a failed test fails the phase.
func (r *runner) runPhase(ctx context.Context, p phase) result {
	fmt.Fprintf(r.out, "== %s: %s\n", p.name, p.what)
	begin := time.Now()
	res := result{Name: p.name, Result: passed}
	own := &runner{options: r.options, out: r.out, skips: r.skips, now: &res, tail: lineTail{limit: 200}}
	err := ctx.Err()
	if err == nil {
		err = p.run(ctx, own)
	}
	res.Seconds = time.Since(begin).Seconds()
	if err != nil {
		res.Result, res.Error, res.Output = failed, err.Error(), own.tail.String()
		own.printLine(err.Error())
	}
	if len(res.Failures) > 0 {
		res.Result = failed
	}
	fmt.Fprintf(r.out, "== %s: %s, %.1f s\n\n", p.name, res.Result, res.Seconds)
	return res
}

func (r *runner) printLine(text string) {
	r.tail.add(text)
	fmt.Fprintf(r.out, "   %-10s %s\n", r.now.Name, text)
}

// runCommand runs a program and prints its output. env is added to the environment ("NAME=value").
func (r *runner) runCommand(ctx context.Context, env []string, name string, args ...string) error {
	return r.streamOutput(ctx, env, r.printLine, name, args...)
}

// streamOutput runs a program and calls handle with each line of its output. If ctx is canceled, the program's
// process group is killed, so that none of its processes keep running.
func (r *runner) streamOutput(ctx context.Context, env []string, handle func(string), name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	pipe, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	read := make(chan error, 1)
	go func() { read <- forEachLine(pipe, handle) }()
	err := cmd.Wait()
	r.now.CPU += (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if cerr := write.Close(); err == nil {
		err = cerr
	}
	if rerr := <-read; err == nil {
		err = rerr
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args[:min(len(args), 4)], " "), err)
	}
	return nil
}

// forEachLine calls handle with every line of r, of any length, without the line ending.
func forEachLine(r io.Reader, handle func(string)) error {
	b := bufio.NewReader(r)
	for {
		text, err := b.ReadString('\n')
		if text != "" {
			handle(strings.TrimRight(text, "\r\n"))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// captureOutput returns a program's standard output without surrounding white space.
func captureOutput(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// runGoTest runs go test and adds its results to the running phase. With --strict it takes no result from the
// cache; otherwise it leaves out slow tests (-short).
func (r *runner) runGoTest(ctx context.Context, env []string, args ...string) error {
	mode := "-short"
	if r.strict {
		mode = "-count=1"
	}
	args = append([]string{"test", "-json", "-vet=off", "-timeout=20m", mode}, args...)
	events := newEventCollector(r.printLine)
	err := r.streamOutput(ctx, env, events.addLine, "go", args...)
	events.finishKilledPackages()
	r.now.Passed += events.passed
	r.now.Failures = append(r.now.Failures, events.failures...)
	for _, s := range events.skips {
		r.addSkip(s)
	}
	if err != nil && len(events.failures) > 0 {
		return nil // the failures are recorded already
	}
	if err == nil && events.passed == 0 && len(events.skips) == 0 {
		return errors.New("no test ran")
	}
	return err
}

// addSkip adds a skipped test to the running phase. With --strict it must be in environment/skips.txt.
func (r *runner) addSkip(s skippedTest) {
	s.Listed = isAllowedSkip(r.skips, s)
	r.now.Skips = append(r.now.Skips, s)
	if !s.Listed && r.strict {
		r.now.Failures = append(r.now.Failures, failure{
			Name: s.Name, Output: "skipped, and environment/skips.txt does not list it: " + s.Reason, refused: true,
		})
	}
}

type lineTail struct {
	limit int
	lines []string
}

func (t *lineTail) add(line string) {
	t.lines = append(t.lines, line)
	if len(t.lines) > t.limit {
		t.lines = t.lines[1:]
	}
}

func (t *lineTail) String() string { return strings.Join(t.lines, "\n") }
