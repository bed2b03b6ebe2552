package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
)

// TestResumeInstructionSet: a resumed run keeps its instruction set. If LOCKSTEP_CPU or the
// processor does not allow that, out.log has a note, and run.json the new instruction set.
func TestResumeInstructionSet(t *testing.T) {
	cfg := tiny()
	dir := filepath.Join(t.TempDir(), "run")
	train := func(set string, resume bool) runs.Info {
		t.Helper()
		t.Setenv("LOCKSTEP_CPU", set)
		cfg.Epochs++
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: resume}); err != nil {
			t.Fatal(err)
		}
		run, err := runs.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		return run.Info
	}
	noted := func() bool {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "out.log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "results differ in their last bits")
	}
	cfg.Epochs = 0
	if i := train("go", false); i.Engine != "cpu (go)" || noted() {
		t.Fatalf("begun on %s, a notice: %v", i.Engine, noted())
	}
	if i := train("", true); i.Engine != "cpu (go)" || noted() {
		t.Fatalf("resumed on %s, a notice: %v, want cpu (go) and none", i.Engine, noted())
	}
	// An instruction set that no processor has together with the others.
	path := filepath.Join(dir, "run.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	missing := "neon"
	t.Setenv("LOCKSTEP_CPU", "")
	sets, err := engine.InstructionSets("fp32")
	if err != nil {
		t.Fatal(err)
	}
	if sets[0] == missing {
		missing = "avx2"
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "cpu (go)", "cpu ("+missing+")", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if i := train("", true); engine.ParseInstructionSet(i.Engine) != sets[0] || !noted() {
		t.Errorf("resumed on %s, a notice: %v, want %s and one", i.Engine, noted(), sets[0])
	}
}

// TestCommonSet checks the choice of the best set that all workers support, or of the
// preferred one if all support it.
func TestCommonSet(t *testing.T) {
	names, err := engine.AllInstructionSets()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		have    map[string]int
		workers int
		prefer  string
		want    string
	}{
		{map[string]int{"avx512": 2, "avx2": 2, "go": 2}, 2, "", "avx512"},
		{map[string]int{"avx512": 1, "avx2": 2, "go": 2}, 2, "", "avx2"},
		{map[string]int{"avx512": 1, "avx2": 2, "go": 2}, 2, "avx512", "avx2"},
		{map[string]int{"avx512": 3, "avx2": 3, "go": 3}, 3, "avx2", "avx2"},
		{map[string]int{"avx2": 1, "neon": 1, "go": 2}, 2, "", "go"},
		{map[string]int{"avx512": 1, "go": 1}, 2, "", ""},
		{map[string]int{"avx2": 2, "go": 2}, 2, "sse", "avx2"},
	} {
		if got := commonInstructionSet(names, c.have, c.workers, c.prefer); got != c.want {
			t.Errorf("%v of %d workers, preferred %q: got %q, want %q", c.have, c.workers, c.prefer, got, c.want)
		}
	}
}
