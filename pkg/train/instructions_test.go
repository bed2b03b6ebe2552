package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/engine/cpu"
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
	sets, err := cpu.InstructionSets("fp32")
	if err != nil {
		t.Fatal(err)
	}
	if sets[0] == missing {
		missing = "avx2"
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "cpu (go)", "cpu ("+missing+")", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if i := train("", true); cpu.ParseInstructionSet(i.Engine) != sets[0] || !noted() {
		t.Errorf("resumed on %s, a notice: %v, want %s and one", i.Engine, noted(), sets[0])
	}
}
