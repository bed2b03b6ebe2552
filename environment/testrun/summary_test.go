package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSkipsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skips.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("# comment\n\nlockstep/pkg/engine/cuda\\.Test.*  no NVIDIA driver\n")
	rules, err := readSkips(path)
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[skippedTest]bool{
		{Name: "lockstep/pkg/engine/cuda.TestConv/3x3", Reason: "cuda: no NVIDIA driver here"}: true,
		{Name: "lockstep/pkg/engine/cuda.TestConv/3x3", Reason: "too slow"}:                    false, // another reason
		{Name: "lockstep/pkg/engine/cpu.TestConv", Reason: "cuda: no NVIDIA driver here"}:      false,
		{Name: "x/lockstep/pkg/engine/cuda.TestConv", Reason: "cuda: no NVIDIA driver here"}:   false, // the whole name, not a part
	} {
		if got := isAllowedSkip(rules, s); got != want {
			t.Errorf("listed(%+v) = %t, want %t", s, got, want)
		}
	}
	for _, bad := range []string{"lockstep/pkg/x.TestA\n", "lockstep/pkg/x.Test( reason\n"} {
		write(bad)
		if _, err := readSkips(path); err == nil || !strings.Contains(err.Error(), "skips.txt:1: ") {
			t.Errorf("%q: got %v, want an error that names line 1", bad, err)
		}
	}
}

// TestSummaryCounts follows three phases: tests with a skip, a phase without
// tests that fails, and one that passes.
func TestSummaryCounts(t *testing.T) {
	for _, strict := range []bool{false, true} {
		var out strings.Builder
		r := &runner{options: options{strict: strict}, out: &out}
		r.runPhases(t.Context(), []phase{
			{name: "unit", what: "tests", run: func(_ context.Context, r *runner) error {
				r.now.Passed = 5
				r.now.Skips = []skippedTest{{Name: "p.TestGPU", Reason: "no GPU"}}
				if strict { // as runGoTest does
					r.now.Failures = []failure{{Name: "p.TestGPU"}}
				}
				return nil
			}},
			{name: "lint", what: "linter", run: func(_ context.Context, r *runner) error {
				r.printLine("x.go:1: unused")
				return errors.New("exit status 1")
			}},
			{name: "vet", what: "go vet", run: func(context.Context, *runner) error { return nil }},
		})
		s := r.summarize()
		s.print(&out, nil)
		lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
		want := "7 passed, 1 failed, 1 skipped" // 5 tests and the phases unit and vet; lint
		if strict {
			want = "6 passed, 2 failed, 0 skipped" // the skip fails, and unit with it
		}
		if got := lines[len(lines)-1]; got != want {
			t.Errorf("strict %t: last line %q, want %q", strict, got, want)
		}
		var js strings.Builder
		if err := s.writeJSON(&js); err != nil {
			t.Fatal(err)
		}
		var back summary
		if err := json.Unmarshal([]byte(js.String()), &back); err != nil {
			t.Fatal(err)
		}
		if back.Failed != s.Failed || len(back.Phases) != 3 || back.Phases[1].Output != "x.go:1: unused" {
			t.Errorf("JSON reads back as %+v", back)
		}
	}
}

// TestChains: the phases of a chain run one after the other, beside those of another chain, and after
// the phases without a chain.
func TestChains(t *testing.T) {
	begun, beside := make(chan struct{}), make(chan struct{})
	await := func(ctx context.Context, c chan struct{}) error {
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r := &runner{out: io.Discard}
	r.runPhases(t.Context(), []phase{
		{name: "a", chain: "1", run: func(ctx context.Context, _ *runner) error {
			return errors.Join(await(ctx, begun), await(ctx, beside)) // c runs at the same time
		}},
		{name: "b", chain: "1", run: func(context.Context, *runner) error { return errors.New("no") }},
		{name: "c", chain: "2", run: func(context.Context, *runner) error { close(beside); return nil }},
		{name: "d", run: func(context.Context, *runner) error { close(begun); return nil }},
	})
	var got []string
	for _, p := range r.results {
		got = append(got, p.Name+" "+p.Result)
	}
	if want := []string{"a passed", "b failed", "c passed", "d passed"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSelectPhases(t *testing.T) {
	all := []phase{{name: "gofmt"}, {name: "race", strict: true}, {name: "unit"}}
	for _, c := range []struct {
		options      options
		chosen, left string
	}{
		{options{}, "gofmt unit", "race"},
		{options{strict: true}, "gofmt race unit", ""},
		{options{only: []string{"unit", "gofmt"}}, "gofmt unit", ""},
		{options{only: []string{"race"}}, "race", ""},
	} {
		chosen, left, err := c.options.selectPhases(all)
		if got := joinNames(chosen); err != nil || got != c.chosen || joinNames(left) != c.left {
			t.Errorf("%+v: got %q and %q, %v; want %q and %q", c.options, got, joinNames(left), err, c.chosen, c.left)
		}
	}
	if _, _, err := (options{only: []string{"units"}}).selectPhases(all); err == nil || !strings.Contains(err.Error(), "gofmt, ") {
		t.Errorf("got %v, want an error that lists the phases", err)
	}
}

func joinNames(phases []phase) string {
	var names []string
	for _, p := range phases {
		names = append(names, p.name)
	}
	return strings.Join(names, " ")
}

// TestOnlyWithStrict: without --strict, the summary names what only --strict checks. A test that
// -short leaves out is not listed by name.
func TestOnlyWithStrict(t *testing.T) {
	var out strings.Builder
	summary{Phases: []result{{Name: "unit", Result: passed, Skips: []skippedTest{{Name: "p.TestA", Reason: "slow"}, {Name: "p.TestScripts/a", Reason: "slow; WORK=/tmp"}, {Name: "p.TestB", Reason: "no GPU"}}}}}.
		print(&out, []phase{{name: "race", what: "race detector"}})
	for _, want := range []string{"only with --strict: race: race detector\n", "only with --strict: 2 slow ", "skipped: unit: p.TestB: no GPU"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary has no %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "p.TestA") || strings.Contains(out.String(), "TestScripts") {
		t.Errorf("the summary lists a slow test:\n%s", out.String())
	}
}

func TestCheckNotebook(t *testing.T) {
	cell := func(count, outputs string) string {
		return `{"cell_type":"code","source":["x := 1\n","x"],"execution_count":` + count + `,"outputs":[` + outputs + `]}`
	}
	const picture = `{"output_type":"execute_result","data":{"image/svg+xml":["<svg/>"]}}`
	for _, c := range []struct{ name, cells, want string }{
		{"whole", `{"cell_type":"markdown","source":"# t"},` + cell("1", picture), ""},
		{"not run", cell("1", picture) + "," + cell("null", ""), "cell 2 has not run"},
		{"error", cell("1", `{"output_type":"error","ename":"ERROR","evalue":"no data"}`), "cell 1 ended in an error: ERROR: no data"},
		{"no image", cell("1", ""), "no image"},
		{"no code", `{"cell_type":"markdown","source":"# t"}`, "no cell with code"},
	} {
		_, err := checkNotebook([]byte(`{"cells":[` + c.cells + `]}`))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestClaims: what a notebook's text says about the output of a cell is checked.
func TestClaims(t *testing.T) {
	const outputs = `{"output_type":"stream","name":"stdout","text":["39 tensors, "]},
		{"output_type":"stream","name":"stdout","text":["0 of them different"]},
		{"output_type":"execute_result","data":{"image/svg+xml":["<svg/>"],"text/plain":["speed-up 1.9"]}}`
	for _, c := range []struct{ claims, outputs, want string }{
		{`["39 tensors, 0 of them different", "^speed-up 1\\.", "!NaN"]`, outputs, ""},
		{`["38 tensors"]`, outputs, `cell 1: the notebook's text claims "38 tensors", but the output is:`},
		{`["!of them different"]`, outputs, `claims "!of them different"`},
		{`["("]`, outputs, `claim "(": error parsing regexp`},
		{`[]`, outputs + `,{"output_type":"stream","name":"stderr","text":"note: few images\n"}`, "cell 1 wrote to standard error"},
	} {
		_, err := checkNotebook([]byte(`{"cells":[{"cell_type":"code","source":"x","execution_count":1,"metadata":{"claims":` + c.claims + `},"outputs":[` + c.outputs + `]}]}`))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.claims, err, c.want)
		}
	}
}
