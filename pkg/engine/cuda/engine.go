package cuda

import (
	"fmt"
	"os"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/clib/stack"
	"lockstep/pkg/internal/plan"
)

// Engine loads programs on one GPU. One thread makes all calls of the CUDA driver.
type Engine struct {
	options engine.Options
	thread  *osThread
	gpu     *gpu
	cache   *autotune.Cache
	tf32    bool // fp32 convolutions may round their inputs

	tuneBudget time.Duration // autotune.Budget, except in tests
}

func init() { //nolint:gochecknoinits // see engine.Register
	engine.Register(engine.Kind{Device: "cuda", Open: New, CheckProgram: checkProgram, CountDevices: countDevices})
}

// New starts an engine on the GPU that o.Device names. If o.Device is "cuda" without a
// number, it uses GPU number localRank modulo the number of GPUs, where localRank is the
// worker's rank on this machine. New searches for NVIDIA's libraries at run time; if one is
// missing, the error lists the places that were searched.
func New(o engine.Options, localRank int) (engine.Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if _, ok := o.CUDA(); !ok {
		return nil, fmt.Errorf("start cuda engine: invalid device %q, want cuda or cuda:N", o.Device)
	}
	libraries, err := stack.Open(clib.NewSearch(clib.Environment{}))
	if err != nil {
		return nil, fmt.Errorf("start cuda engine: %w\nto go on without a GPU use --device cpu", err)
	}
	return NewWithLibraries(libraries, os.Getenv, o, localRank)
}

// countDevices returns the number of GPUs that this process may use.
func countDevices() (int, error) {
	libraries, err := stack.Open(clib.NewSearch(clib.Environment{}))
	if err != nil {
		return 0, fmt.Errorf("count GPUs: %w", err)
	}
	return libraries.Driver.DeviceCount()
}

// NewWithLibraries is like New, but uses open libraries, such as the libraries of a
// simulated machine, and environment variables from getenv.
func NewWithLibraries(s *stack.Stack, getenv func(string) string, o engine.Options, localRank int) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	ordinal, ok := o.CUDA()
	if !ok {
		return nil, fmt.Errorf("start cuda engine: invalid device %q, want cuda or cuda:N", o.Device)
	}
	e := &Engine{options: o, tf32: o.TF32, tuneBudget: autotune.MaxTuningTime}
	switch getenv("NVIDIA_TF32_OVERRIDE") {
	case "0":
		e.tf32 = false
	case "1":
		e.tf32 = true
	}
	types := []kernels.ElementType{kernels.F32}
	if low := number.KernelType(number.ActivationType(o.Precision)); low != kernels.F32 {
		types = append(types, low)
	}
	begin := func() error {
		if ordinal < 0 {
			n, err := s.Driver.DeviceCount()
			if err != nil {
				return err
			}
			if n > 0 {
				ordinal = localRank % n
			}
		}
		var err error
		e.gpu, err = openGPU(s, ordinal, types, autotune.CacheFolder(getenv))
		return err
	}
	end := func() { _ = e.gpu.close() } // the process frees what is left
	var err error
	if e.thread, err = startThread(begin, end); err != nil {
		return nil, fmt.Errorf("start cuda engine on GPU %d: %w", max(ordinal, 0), err)
	}
	// cuDNN's plans are valid for one version of cuDNN and one kind of device.
	e.cache = autotune.OpenCache(autotune.CacheFolder(getenv), fmt.Sprintf("cudnn %s, %s (sm_%d)", cudnn.FormatVersion(s.CUDNN.Version()), e.gpu.name, e.gpu.capability))
	return e, nil
}

// Name returns "cuda" with the name of the GPU, such as "cuda (NVIDIA H200)".
func (e *Engine) Name() string { return "cuda (" + e.gpu.name + ")" }

// Options returns the options passed to New.
func (e *Engine) Options() engine.Options { return e.options }

// Load prepares p: it lays out the memory, chooses an algorithm for each convolution by
// timing the candidates (unless the tuning cache contains a choice), and determines every
// kernel launch. If share is not nil, it must be an executable of this engine, and the two
// executables share parameters, states and optimizer slots.
func (e *Engine) Load(p *plan.Program, share engine.Executable) (engine.Executable, error) {
	var x *executable
	err := e.thread.do(func() (err error) {
		x, err = e.load(p, share)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load program on %s: %w", e.Name(), err)
	}
	return x, nil
}

// Close stops the engine. Its executables must not be used afterwards.
func (e *Engine) Close() error {
	e.thread.close()
	return nil
}

// NCCL returns the library for exchanges between GPUs, or an error that explains why it cannot
// be used.
func (e *Engine) NCCL() (*nccl.Library, error) {
	if s := e.gpu.stack; s.NCCL == nil {
		return nil, s.Missing[clib.NCCL]
	}
	return e.gpu.stack.NCCL, nil
}

// DeviceProperties returns cuDNN's description of the GPU as JSON. With it, cuDNN can compile
// plans for this kind of GPU on a machine without a GPU. DeviceProperties requires cuDNN 9.8.
func (e *Engine) DeviceProperties() (text string, err error) {
	err = e.thread.do(func() error {
		text, err = e.gpu.cudnn.DeviceProperties(e.gpu.dnn)
		return err
	})
	return text, err
}

// RunOnNewThread runs f on a new thread, in which the GPU's context is current, and waits for
// f. Meanwhile the engine's thread can run other functions.
func (e *Engine) RunOnNewThread(f func() error) error {
	t, err := startThread(func() error { return e.gpu.driver.CtxSetCurrent(e.gpu.context) }, func() {})
	if err != nil {
		return err
	}
	defer t.close()
	return t.do(f)
}

// Do runs f on the engine's thread and waits for it. f must not call Do.
func (e *Engine) Do(f func() error) error { return e.thread.do(f) }
