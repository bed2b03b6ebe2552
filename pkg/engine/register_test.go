package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
)

// TestWithoutEngines: a program that does not import the engines gets errors that name the import.
// This test binary contains none.
func TestWithoutEngines(t *testing.T) {
	o := engine.DefaultOptions()
	_, open := engine.Open(o, 0)
	_, sets := engine.InstructionSets("fp32")
	_, all := engine.AllInstructionSets()
	_, gpus := engine.CountGPUs()
	for i, err := range []error{open, sets, all, gpus, engine.CheckProgram("cuda:1", &plan.Program{})} {
		if err == nil || !strings.Contains(err.Error(), `add the import _ "lockstep/pkg/engine/all"`) {
			t.Errorf("call %d: error %v, want one that names the import", i, err)
		}
	}
	o.Threads = 0
	if _, err := engine.Open(o, 0); err == nil || !strings.Contains(err.Error(), "threads is 0") {
		t.Errorf("invalid options: %v", err)
	}
}

// inputs is an Executable that records its inputs.
type inputs struct {
	engine.Executable
	set []string
}

func (x *inputs) SetInput(name string, v []float32) error {
	if len(v) == 0 {
		return errors.New("no values")
	}
	x.set = append(x.set, name)
	return nil
}

// list is a Source of the batches in it.
type list []engine.Batch

func (l *list) Next() (engine.Batch, bool) {
	if len(*l) == 0 {
		return engine.Batch{}, false
	}
	b := (*l)[0]
	*l = (*l)[1:]
	return b, true
}

// TestSetInputs: all inputs of a batch are set; the end of the source, an input that is refused, and
// indexes of samples without a data set are reported.
func TestSetInputs(t *testing.T) {
	x := &inputs{}
	s := &list{{Inputs: map[string][]float32{"image": {1}, "target": {2}}}, {Samples: []int{3}}, {Inputs: map[string][]float32{"image": nil}}}
	if ok, err := engine.SetInputs(x, s); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if slices.Sort(x.set); !slices.Equal(x.set, []string{"image", "target"}) {
		t.Errorf("set %v", x.set)
	}
	for _, want := range []string{"does not hold the data set", "no values"} {
		if ok, err := engine.SetInputs(x, s); ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", ok, err, want)
		}
	}
	if ok, err := engine.SetInputs(x, s); ok || err != nil {
		t.Errorf("at the end: %v, %v", ok, err)
	}
}
