package train

import (
	"strings"
	"testing"

	"lockstep/pkg/engine"
)

// scaled returns the Capabilities of an executable with the given loss scale.
func scaled(s *engine.LossScale) engine.Capabilities {
	return engine.Capabilities{
		LossScale:    func() engine.LossScale { return *s },
		SetLossScale: func(scale engine.LossScale) error { *s = scale; return nil },
	}
}

func TestLossScaleInCheckpoint(t *testing.T) {
	before, after := engine.LossScale{Scale: 4096, GoodSteps: 17, Skipped: 3}, engine.LossScale{}
	text, err := marshalLossScale(scaled(&before))
	if err != nil || text == "" {
		t.Fatal(text, err)
	}
	if err := restoreLossScale(scaled(&after), text); err != nil || after != before {
		t.Errorf("%+v, %v", after, err)
	}
	if err := restoreLossScale(engine.Capabilities{}, text); err != nil {
		t.Errorf("a precision without one: %v", err)
	}
	if text, err := marshalLossScale(engine.Capabilities{}); text != "" || err != nil {
		t.Errorf("a precision without one: %q, %v", text, err)
	}
	if err := restoreLossScale(scaled(&after), "{"); err == nil || !strings.Contains(err.Error(), `loss scale "{"`) {
		t.Errorf("damaged: %v", err)
	}
}

// TestOpenAnywhere: without the GPU of the training, the CPU evaluates, and a note says so.
func TestOpenAnywhere(t *testing.T) {
	o := engine.DefaultOptions()
	o.Device, o.Precision, o.Convolution = "cuda:99", "bf16", "heuristic" // no machine has so many
	e, note, err := openEngineOrCPU(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if !strings.HasPrefix(e.Name(), "cpu") || strings.Contains(note, "\n") || !strings.HasPrefix(note, "trained on cuda:99 (bf16), which cannot be used here: computed on the CPU in fp32 instead (") {
		t.Errorf("%s: %q", e.Name(), note)
	}
	o = engine.DefaultOptions()
	if e, note, err := openEngineOrCPU(o); err != nil || note != "" {
		t.Errorf("%v, %q, %v", e, note, err)
	}
}
