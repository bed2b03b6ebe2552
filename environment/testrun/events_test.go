package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A package with one test of each kind, run by the real go test, so that this
// test notices when its output changes.
const sample = `package sample

import ("testing"; "os")

func TestPasses(t *testing.T) {}

func TestParent(t *testing.T) {
	t.Run("good", func(t *testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Error("wanted 1, got 2") })
}

func TestSkips(t *testing.T) { t.Skip("no GPU on this machine") }

func TestKills(t *testing.T) {
	if os.Getenv("SAMPLE_KILLS") != "" {
		os.Exit(7)
	}
}
`

func TestEventsOfGoTest(t *testing.T) {
	for _, c := range []struct {
		name, source, env string
		passed            int
		failures, skips   []string
		said              string // in the output of the first failure
	}{
		{
			// TestParent counts through its subtests: passed are TestPasses, good and TestKills.
			name: "each kind", source: sample, passed: 3,
			failures: []string{"sample.TestParent/bad"}, skips: []string{"sample.TestSkips: no GPU on this machine"},
			said: "wanted 1, got 2",
		},
		{
			name: "process ends", source: sample, env: "SAMPLE_KILLS=1", passed: 2,
			failures: []string{"sample.TestKills", "sample.TestParent/bad"}, skips: []string{"sample.TestSkips: no GPU on this machine"},
		},
		{
			name: "does not compile", source: strings.Replace(sample, "t.Skip", "t.Skipp", 1),
			failures: []string{"sample"}, said: "t.Skipp undefined",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, shown := goTestSample(t, c.source, c.env)
			var failures, skips []string
			for _, f := range e.failures {
				failures = append(failures, f.Name)
			}
			for _, s := range e.skips {
				skips = append(skips, s.Name+": "+s.Reason)
			}
			slices.Sort(failures)
			if e.passed != c.passed || !slices.Equal(failures, c.failures) || !slices.Equal(skips, c.skips) {
				t.Fatalf("got %d passed, failures %q, skips %q; want %d, %q, %q\n%s", e.passed, failures, skips, c.passed, c.failures, c.skips, shown)
			}
			if !strings.Contains(e.failures[0].Output, c.said) && !strings.Contains(shown, c.said) {
				t.Errorf("failure does not show %q:\n%s", c.said, shown)
			}
		})
	}
}

// goTestSample runs go test -json on a module of one package and returns what
// was counted and shown.
func goTestSample(t *testing.T, source, env string) (e *eventCollector, shown string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Fatal(err) // who runs this test has it
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sample\n\ngo 1.26\n", "sample_test.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	e = newEventCollector(func(l string) { lines = append(lines, l) })
	r := &runner{now: &result{}}
	err := r.streamOutput(t.Context(), []string{env}, e.addLine, "go", "test", "-C", dir, "-json", "-vet=off", ".")
	if err == nil {
		t.Error("go test of the sample succeeded, want a failure")
	}
	e.finishKilledPackages()
	return e, strings.Join(lines, "\n")
}

// A package that go test never finished is a failure, with the tests that ran.
func TestEventsCutOff(t *testing.T) {
	e := newEventCollector(func(string) {})
	e.addLine(`{"Action":"run","Package":"p","Test":"TestA"}`)
	e.addLine(`{"Action":"pass","Package":"p","Test":"TestA"}`)
	e.addLine(`{"Action":"run","Package":"p","Test":"TestB"}`)
	e.finishKilledPackages()
	if e.passed != 1 || len(e.failures) != 1 || e.failures[0].Name != "p.TestB" {
		t.Errorf("got %d passed, failures %v; want TestA passed, TestB failed", e.passed, e.failures)
	}
}

func TestStreamEndsWholeGroup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	r := &runner{now: &result{}}
	// The child keeps the pipe open: only ending the group closes it.
	if err := r.streamOutput(ctx, nil, func(string) {}, "sh", "-c", "sleep 60 & sleep 60"); err == nil {
		t.Error("want an error of a program that was ended")
	}
	if d := time.Since(begin); d > 4*time.Second { // WaitDelay is 5 s
		t.Errorf("ended after %s", d)
	}
}
