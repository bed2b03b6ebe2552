package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// summary is the result of all phases, as printed and written as JSON.
type summary struct {
	Passed  int      `json:"passed"` // tests and phases
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
	Strict  bool     `json:"strict"`
	Seconds float64  `json:"seconds"`
	Go      string   `json:"go"`
	OS      string   `json:"os"`
	Arch    string   `json:"arch"`
	Cores   int      `json:"cores"`
	Phases  []result `json:"phases"`
}

// summarize counts tests and phases. A phase that failed only because of failed tests is not a separate failure.
// A skip that --strict does not allow is a failure.
func (r *runner) summarize() summary {
	s := summary{
		Strict: r.strict, Seconds: time.Since(r.begin).Seconds(), Phases: r.results,
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
	}
	for _, p := range r.results {
		s.Passed += p.Passed
		s.Failed += len(p.Failures)
		for _, k := range p.Skips {
			if k.Listed || !r.strict {
				s.Skipped++
			}
		}
		switch {
		case p.Result == passed:
			s.Passed++
		case p.Error != "":
			s.Failed++
		}
	}
	return s
}

// print writes the summary as text, with the last line "N passed, N failed, N skipped". left contains the phases
// that only --strict runs.
func (s summary) print(w io.Writer, left []phase) {
	fmt.Fprintf(w, "phase      result   seconds  CPU s  tests\n")
	for _, p := range s.Phases {
		tests := ""
		if n := p.Passed + len(p.Failures) + len(p.Skips); n > 0 {
			tests = fmt.Sprintf("%d passed, %d failed, %d skipped", p.Passed, len(p.Failures), len(p.Skips))
		}
		fmt.Fprintf(w, "%-10s %-7s %8.1f %6.0f  %s\n", p.Name, p.Result, p.Seconds, p.CPU, tests)
	}
	fmt.Fprintf(w, "%27.1f  total\n", s.Seconds)
	slow := 0
	for _, p := range s.Phases {
		for _, k := range p.Skips {
			switch {
			case k.isSlow():
				slow++
			case k.Listed:
				fmt.Fprintf(w, "skipped: %s: %s: %s\n", p.Name, k.Name, k.Reason)
			case !s.Strict:
				fmt.Fprintf(w, "skipped: %s: %s: %s (not in environment/skips.txt)\n", p.Name, k.Name, k.Reason)
			}
		}
	}
	for _, p := range s.Phases {
		if p.Error != "" {
			fmt.Fprintf(w, "failed: %s: %s\n", p.Name, p.Error)
		}
		for _, f := range p.Failures {
			reason := ""
			if f.refused {
				reason = ": " + f.Output
			}
			fmt.Fprintf(w, "failed: %s: %s%s\n", p.Name, f.Name, reason)
		}
	}
	for _, p := range left {
		fmt.Fprintf(w, "only with --strict: %s: %s\n", p.name, p.what)
	}
	if slow > 0 {
		fmt.Fprintf(w, "only with --strict: %d slow tests and subtests (those that testing.Short leaves out)\n", slow)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", s.Passed, s.Failed, s.Skipped)
}

func (s summary) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s)
}
