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

// FirstReport is what a machine with a GPU is asked first: enough to go on with where there is
// none, should the machine be lost.
type FirstReport struct {
	// DeviceProperties is cuDNN's text about the GPU, from which it compiles plans for it
	// elsewhere; Missing says why it is not there.
	DeviceProperties json.RawMessage `json:"device_properties,omitempty"`
	Missing          string          `json:"device_properties_missing,omitempty"`
	Checks           []Check         `json:"checks"` // of whole steps of small networks in bf16
}

// First collects a FirstReport on the first GPU. What was collected before an error is returned
// with it.
func First(ctx context.Context) (FirstReport, error) {
	libraries, err := stack.Open(clib.NewSearch(clib.Environment{}))
	if err != nil {
		return FirstReport{}, fmt.Errorf("first check of a GPU: %w", err)
	}
	return FirstWithLibraries(ctx, libraries)
}

// FirstWithLibraries is First with open libraries, such as those of a simulated machine.
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
		f.Missing = err.Error() // cuDNN older than 9.8 has none
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
