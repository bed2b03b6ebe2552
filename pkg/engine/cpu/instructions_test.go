package cpu

import (
	"slices"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
)

// TestInstructionSets checks that plain Go is always the last set, and that LOCKSTEP_CPU
// leaves one set, or an error if the processor lacks it.
func TestInstructionSets(t *testing.T) {
	t.Setenv(kernel.InstructionSetEnvVar, "")
	sets, err := listInstructionSets("fp32")
	if err != nil || len(sets) == 0 || sets[len(sets)-1] != "go" {
		t.Fatalf("got %v, %v, want sets that end with go", sets, err)
	}
	if want := slices.DeleteFunc(slices.Clone(kernel.InstructionSets), func(s string) bool { return !slices.Contains(sets, s) }); !slices.Equal(sets, want) {
		t.Errorf("got %v, want %v: the best first", sets, want)
	}
	for _, set := range sets {
		if e := open(t, set, 1); engine.ParseInstructionSet(e.Name()) != set {
			t.Errorf("the engine of %s is named %s", set, e.Name())
		}
	}
	t.Setenv(kernel.InstructionSetEnvVar, "go")
	if sets, err := listInstructionSets("fp32"); err != nil || !slices.Equal(sets, []string{"go"}) {
		t.Errorf("with %s=go: %v, %v", kernel.InstructionSetEnvVar, sets, err)
	}
	t.Setenv(kernel.InstructionSetEnvVar, "sse")
	if sets, err := listInstructionSets("fp32"); err == nil {
		t.Errorf("with %s=sse: %v, want an error", kernel.InstructionSetEnvVar, sets)
	}
}

func TestSetOf(t *testing.T) {
	for name, want := range map[string]string{"cpu (avx2)": "avx2", "cpu (go)": "go", "reference (float32)": "", "": ""} {
		if got := engine.ParseInstructionSet(name); got != want {
			t.Errorf("ParseInstructionSet(%q) is %q, want %q", name, got, want)
		}
	}
}
