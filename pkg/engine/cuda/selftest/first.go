package selftest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/stack"
)

// FirstReport is collected first on a machine with a GPU. It is enough for work without a
// GPU if the machine is no longer available.
type FirstReport struct {
	// DeviceProperties is cuDNN's description of the GPU, from which it can compile plans
	// for this GPU on another machine. Missing is the reason if it is not available.
	DeviceProperties json.RawMessage `json:"device_properties,omitempty"`
	Missing          string          `json:"device_properties_missing,omitempty"`
	Checks           []Check         `json:"checks"` // of whole steps of small networks in bf16
}

// First collects a FirstReport on the first GPU. If there is an error, the report contains
// what was collected before it.
func First(ctx context.Context) (FirstReport, error) {
	libraries, err := stack.Open(clib.NewSearch(clib.Environment{}))
	if err != nil {
		return FirstReport{}, fmt.Errorf("first check of a GPU: %w", err)
	}
	return FirstWithLibraries(ctx, libraries)
}

// FirstWithLibraries is like First with libraries that are open already, such as those of a
// simulated machine.
func FirstWithLibraries(ctx context.Context, s *stack.Stack) (f FirstReport, err error) {
	o := engine.DefaultOptions()
	o.Device, o.Precision = "cuda", "bf16"
	e, err := cuda.NewWithLibraries(s, os.Getenv, o, 0)
	if err != nil {
		return f, fmt.Errorf("first check of a GPU: %w", err)
	}
	text, err := e.DeviceProperties()
	switch {
	case err != nil:
		f.Missing = err.Error() // cuDNN before 9.8 does not support it
	case !json.Valid([]byte(text)):
		f.Missing = "cuDNN's text is not JSON: " + text
	default:
		f.DeviceProperties = json.RawMessage(text)
	}
	if err := e.Close(); err != nil {
		return f, err
	}
	f.Checks, err = RunWithLibraries(ctx, s, Options{Precisions: []string{"bf16"}, Seed: 1, Only: "U-Net"})
	if n := Failed(f.Checks); n > 0 {
		err = errors.Join(err, fmt.Errorf("first check of a GPU: %d of %d checks failed", n, len(f.Checks)))
	}
	return f, err
}
