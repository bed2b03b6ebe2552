package cuda

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/clibtest"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// TestStartErrors: a machine that cannot be used says why, in one error.
func TestStartErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		on     clibtest.Options
		change func(o *engine.Options)
		want   []string
	}{
		{"no such gpu", clibtest.Options{}, func(o *engine.Options) { o.Device = "cuda:3" }, []string{"start cuda engine on GPU 3", "unknown GPU 3: this process can use 1 GPU"}},
		{"old gpu", clibtest.Options{Capability: [2]int{7, 0}}, nil, []string{"compute capability 7.0", "want 8.0"}},
		{"cpu", clibtest.Options{}, func(o *engine.Options) { o.Device, o.Precision, o.Convolution = "cpu", "fp32", "auto" }, []string{`invalid device "cpu", want cuda`}},
		{"options", clibtest.Options{}, func(o *engine.Options) { o.Precision = "fp64" }, []string{`precision "fp64" is not supported on cuda`}},
		{"dying", clibtest.Options{LoseAt: 10}, nil, []string{"start cuda engine"}},
	} {
		s, err := clibtest.New(c.on).OpenStack()
		if err != nil {
			t.Fatal(c.name, err)
		}
		o := gpuOptions("bf16")
		if c.change != nil {
			c.change(&o)
		}
		_, err = NewWithLibraries(s, noEnvironment, o, 0)
		if err == nil {
			t.Errorf("%s: it starts", c.name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", c.name, err, w)
			}
		}
	}
	goleak.VerifyNone(t)
}

// TestNewWithoutGPU: on a machine without one, the error lists where it looked
// and says how to go on. On a machine with one, New starts.
func TestNewWithoutGPU(t *testing.T) {
	e, err := New(gpuOptions("fp32"), 0)
	if err == nil {
		t.Log("this machine has a GPU:", e.Name())
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	var missing *clib.NotFoundError
	if errors.As(err, &missing) && !strings.Contains(err.Error(), "searched:") || !strings.Contains(err.Error(), "--device cpu") {
		t.Errorf("New says %v", err)
	}
	o := engine.DefaultOptions()
	if _, err := New(o, 0); err == nil || !strings.Contains(err.Error(), `invalid device "cpu", want cuda`) {
		t.Errorf("New says %v", err)
	}
}

// TestOutOfMemory checks that an out-of-memory error contains the size that is needed and a
// batch size that fits, and that all memory is freed.
func TestOutOfMemory(t *testing.T) {
	const batch = 16
	_, p := programOf(t, trainedUNet(), batch, nn.Train, plan.Options{Fuse: true})
	roomy, err := openOn(t, clibtest.New(clibtest.Options{}), gpuOptions("bf16")).Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := clibtest.New(clibtest.Options{Memory: roomy.MemoryBytes() / 2})
	e := openOn(t, m, gpuOptions("bf16"))
	_, err = e.Load(p, nil)
	if !errors.Is(err, driver.ErrorOutOfMemory) || !errors.Is(err, engine.ErrOutOfMemory) {
		t.Fatalf("Load says %v", err)
	}
	_, advice, ok := strings.Cut(err.Error(), "--batch ")
	if !ok || !strings.Contains(err.Error(), "GPU memory at batch 16") {
		t.Fatalf("Load says %v", err)
	}
	fits := 0
	for _, d := range advice {
		if d < '0' || d > '9' {
			break
		}
		fits = 10*fits + int(d-'0')
	}
	if fits < 1 || fits >= batch {
		t.Fatalf("it suggests a batch of %d: %v", fits, err)
	}
	if e.gpu.allocated != 0 {
		t.Errorf("%d bytes are left behind", e.gpu.allocated)
	}
	_, q := programOf(t, trainedUNet(), fits, nn.Train, plan.Options{Fuse: true})
	x, err := e.Load(q, nil)
	if err != nil {
		t.Fatalf("the batch of %d that was suggested does not fit: %v", fits, err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if e.gpu.allocated != 0 {
		t.Errorf("%d bytes are left behind after Close", e.gpu.allocated)
	}
}

// TestLostDevice: an error after which every call fails is said once, with what
// to do, and nothing hangs.
func TestLostDevice(t *testing.T) {
	m := clibtest.New(clibtest.Options{})
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	e := openOn(t, m, gpuOptions("bf16"))
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	feed(t, x, 1)
	if _, err := x.Step(context.Background(), nil, adam(1)); err != nil {
		t.Fatal(err)
	}
	m.LoseDevice(driver.ErrorIllegalAddress)
	for range 2 {
		_, err = x.Step(context.Background(), nil, adam(2))
		if !errors.Is(err, driver.ErrorIllegalAddress) || !strings.Contains(err.Error(), "GPU 0 (Simulated H200) is lost") || !strings.Contains(err.Error(), "--resume") {
			t.Errorf("step says %v", err)
		}
	}
	for _, f := range []func() error{
		func() error { _, err := x.Get(p.Params[0].Name); return err },
		func() error { _, err := e.Load(p, nil); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "is lost") {
			t.Errorf("a lost device answers %v", err)
		}
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnsupportedOperation: a program with an operation that no GPU can run is refused without
// a GPU, and when it is loaded.
func TestUnsupportedOperation(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	z := g.Output("logits", g.Conv2D("head", g.Input("image", 1, 1, 4, 4), 3, 1, 1, 0, true))
	g.SetLoss(g.PixelCrossEntropy(z, g.Input("target", 1, 1, 4, 4), nn.PixelLoss{Ignore: 255}))
	p, err := plan.Lower(g, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, binary := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	_, loadErr := openOn(t, cudatest.NewMachine(t, clibtest.Options{}), gpuOptions("fp32")).Load(p, nil)
	for _, err := range []error{checkProgram(p), loadErr} {
		if want := `device cuda does not support operation pixel_cross_entropy (layer "loss.0")`; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "use device cpu") {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	if err := checkProgram(binary); err != nil {
		t.Error(err)
	}
}
