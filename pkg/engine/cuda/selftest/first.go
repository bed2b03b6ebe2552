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

// FirstReport contains the results that should be collected first on a machine with a GPU,
// so that work can continue without a GPU if the machine is no longer available.
type FirstReport struct {
	// DeviceProperties is cuDNN's description of the GPU. With it, cuDNN can compile plans for
	// this GPU on another machine. If it is not available, Missing is the reason.
	DeviceProperties json.RawMessage `json:"device_properties,omitempty"`
	Missing          string          `json:"device_properties_missing,omitempty"`
	Checks           []Check         `json:"checks"` // of complete steps of small networks in bf16
}

// CollectFirstReport collects a FirstReport on the first GPU. If it returns an error, the
// report contains what was collected before.
func CollectFirstReport(ctx context.Context) (FirstReport, error) {
	libraries, err := stack.Open(clib.NewSearch(clib.Environment{}))
	if err != nil {
		return FirstReport{}, fmt.Errorf("collect first GPU report: %w", err)
	}
	return CollectFirstReportWithLibraries(ctx, libraries)
}

// CollectFirstReportWithLibraries is like CollectFirstReport, but uses open libraries, such
// as the libraries of a simulated machine.
func CollectFirstReportWithLibraries(ctx context.Context, s *stack.Stack) (f FirstReport, err error) {
	o := engine.DefaultOptions()
	o.Device, o.Precision = "cuda", "bf16"
	e, err := cuda.NewWithLibraries(s, os.Getenv, o, 0)
	if err != nil {
		return f, fmt.Errorf("collect first GPU report: %w", err)
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
	if n := CountFailed(f.Checks); n > 0 {
		err = errors.Join(err, fmt.Errorf("collect first GPU report: %d of %d checks failed", n, len(f.Checks)))
	}
	return f, err
}
