package main

import (
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
)

// TestDoctorListsInstructionSets checks that the processor's line has the instruction sets of both
// precisions: those of bf16 only where the processor has instructions for it.
func TestDoctorListsInstructionSets(t *testing.T) {
	t.Setenv("LOCKSTEP_CPU", "")
	want := ""
	if sets, err := engine.InstructionSets("bf16"); err == nil {
		want = "; with precision bf16: " + strings.Join(sets[:len(sets)-1], ", ") // without plain Go
	}
	f := processorFinding(runs.Host{CPU: "a processor", Cores: 2})
	all, _ := engine.InstructionSets("fp32")
	if want = "a processor, 2 cores, instruction sets: " + strings.Join(all, ", ") + want; f.Detail != want {
		t.Errorf("detail is %q, want %q", f.Detail, want)
	}
	t.Setenv("LOCKSTEP_CPU", "go") // which emulates bf16
	if f := processorFinding(runs.Host{}); f.OK || strings.Contains(f.Detail, "bf16") {
		t.Errorf("with LOCKSTEP_CPU=go: ok %v, detail %q", f.OK, f.Detail)
	}
}
