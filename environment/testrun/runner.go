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
	"syscall"
	"time"
)

// A phase is a group of checks that together pass or fail.
type phase struct {
	name string
	what string
	run  func(ctx context.Context, r *runner) error
}

// runner runs phases and collects their results.
type runner struct {
	options
	out   io.Writer
	skips []skipRule
	begin time.Time

	results []result // of finished phases
	now     *result  // result of the running phase
	tail    lineTail // last lines of the running phase's output
}

// result is the result of a phase.
type result struct {
	Name     string        `json:"name"`
	Result   string        `json:"result"` // passed or failed
	Seconds  float64       `json:"seconds"`
	CPU      float64       `json:"cpu_seconds"` // of its processes, except those that others wait for
	Error    string        `json:"error,omitempty"`
	Output   string        `json:"output,omitempty"` // the last lines, if the phase failed
	Passed   int           `json:"tests_passed"`
	Failures []failure     `json:"failures,omitempty"`
	Skips    []skippedTest `json:"skips,omitempty"`
	Coverage []coverage    `json:"coverage,omitempty"` // per package, for the phase unit
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

// runPhase runs the phase p and appends its result. The phase fails if it returns an
// error or if one of its tests fails; later phases run in any case.
func (r *runner) runPhase(ctx context.Context, p phase) {
	fmt.Fprintf(r.out, "== %s: %s\n", p.name, p.what)
	begin, cpu := time.Now(), cpuSeconds()
	r.now = &result{Name: p.name}
	r.tail = lineTail{limit: 200}
	err := ctx.Err()
	if err == nil {
		err = p.run(ctx, r)
	}
	res := r.now
	res.Seconds, res.CPU = time.Since(begin).Seconds(), cpuSeconds()-cpu
	res.Result = passed
	if err != nil {
		res.Result, res.Error, res.Output = failed, err.Error(), r.tail.String()
		fmt.Fprintf(r.out, "   %v\n", err)
	}
	if len(res.Failures) > 0 {
		res.Result = failed
	}
	r.results = append(r.results, *res)
	fmt.Fprintf(r.out, "== %s: %s, %.1f s\n\n", p.name, res.Result, res.Seconds)
}

// cpuSeconds returns the CPU time that this process and its ended descendants have used.
func cpuSeconds() float64 {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum.Seconds()
}

// printLine prints a line of the running phase's output and keeps it for the summary.
func (r *runner) printLine(text string) {
	r.tail.add(text)
	fmt.Fprintf(r.out, "   %s\n", text)
}

// runCommand runs a program and prints its output line by line. env contains variables
// ("NAME=value") that are added to the environment.
func (r *runner) runCommand(ctx context.Context, env []string, name string, args ...string) error {
	return r.streamOutput(ctx, env, r.printLine, name, args...)
}

// streamOutput runs a program and calls handle with each line of its output. The program
// gets its own process group. If ctx is canceled, the group is killed, so that none of
// its processes keep running.
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

// forEachLine calls handle with every line of r, without the line ending. Lines may have
// any length.
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

// captureOutput runs a program and returns its standard output without surrounding white
// space.
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

// runGoTest runs go test with the given arguments and adds its results to the running phase.
func (r *runner) runGoTest(ctx context.Context, env []string, args ...string) error {
	args = append([]string{"test", "-json", "-vet=off", "-timeout=20m"}, args...)
	if r.strict {
		args = append(args[:2:2], append([]string{"-count=1"}, args[2:]...)...)
	}
	events := newEventCollector(r.printLine)
	err := r.streamOutput(ctx, env, events.addLine, "go", args...)
	events.finishKilledPackages()
	r.now.Passed += events.passed
	r.now.Coverage = append(r.now.Coverage, events.coverage...)
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

// addSkip adds a skipped test to the running phase. With --strict it is a failure if
// environment/skips.txt does not list it.
func (r *runner) addSkip(s skippedTest) {
	s.Listed = isAllowedSkip(r.skips, s)
	r.now.Skips = append(r.now.Skips, s)
	if !s.Listed && r.strict {
		r.now.Failures = append(r.now.Failures, failure{
			Name: s.Name, Output: "skipped, and environment/skips.txt does not list it: " + s.Reason, refused: true,
		})
	}
}

// lineTail stores the last lines that were added, at most limit.
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
