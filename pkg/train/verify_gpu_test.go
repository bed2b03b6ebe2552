package train

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/internal/clib/clibtest"
)

// gpuEach is a place whose workers have simulated machines of their own, as processes
// have contexts, each with n GPUs: with one, all have the same GPU, with more, each its
// own.
func gpuEach(t *testing.T, n int) Place {
	t.Helper()
	place := simulatedGPU(t, Place{})
	network := clibtest.NewNetwork()
	place.open = func(o engine.Options, localRank int) (engine.Engine, error) {
		s, err := clibtest.New(clibtest.Options{Execute: executeKernel, Devices: n, Network: network}).Stack()
		if err != nil {
			return nil, err
		}
		return cuda.NewWithLibraries(s, os.Getenv, o, localRank)
	}
	return place
}

// TestVerifyDPOnGPU: the proofs hold on simulated GPUs, each for three workers with one
// each, which exchange by NCCL, or for two that share one; and the faults are noticed.
func TestVerifyDPOnGPU(t *testing.T) {
	t.Attr("fault", "NCCL's communicator was destroyed before the graphs that captured its collectives, which blocks for ever")
	t.Attr("outcome", "executables close first; Close waits a bounded time and returns an error")
	list := variantsOnGPU("cuda")
	checks, err := verifyVariants(t.Context(), 3, list[3:], gpuEach(t, 3))
	if err != nil {
		t.Fatal(err)
	}
	var two []Check
	want := 1 + 2 + 4
	if underRace { // the faults change numbers alone
		two, err = verifyVariants(t.Context(), 2, list[1:2], gpuEach(t, 1))
		want = 1 + 1
	} else {
		two, err = verifyOn(t.Context(), 2, list[1:3], onGPU32("cuda"), gpuEach(t, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	if checks = append(checks, two...); len(checks) != want {
		t.Errorf("%d checks, want %d", len(checks), want)
	}
	for _, c := range checks {
		t.Log(c)
		if !c.OK {
			t.Error(c)
		}
	}
}

func TestVerifyDPOnErrors(t *testing.T) {
	for device, want := range map[string]string{
		"cpu":  `device "cpu" is no GPU: use cuda, or leave it out`,
		"cuda": "workers is 1: use at least 2",
	} {
		if _, err := VerifyDPOn(t.Context(), 1, device); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", device, err)
		}
	}
}

// TestSyncBatchNormOnGPU: two workers, with a GPU each or sharing one, train with
// synchronised batch norms to the same bits, running statistics included, and as the CPU
// engine does but for roundings; the steps' spans have the time of what is exchanged on
// the host.
func TestSyncBatchNormOnGPU(t *testing.T) {
	cfg := onGPU(tiny())
	cfg.SyncBatchNorm, cfg.BucketMiB, cfg.Accumulate = true, 0.01, 2
	cfg.Engine.TF32, cfg.Engine.Precision = false, "fp32"
	for _, devices := range []int{1, 2} {
		t.Run(fmt.Sprint(devices, " GPUs"), func(t *testing.T) {
			ranks := steppedOn(t, cfg, 2, 3, gpuEach(t, devices))
			for name, v := range ranks[0] {
				for i := range v {
					if ranks[1][name][i] != v[i] {
						t.Fatalf("%s of rank 1 is not rank 0's", name)
					}
				}
			}
			cpu := cfg
			cpu.Engine.Device, cpu.Engine.Convolution = "cpu", "auto"
			for name, v := range steppedOn(t, cpu, 2, 3, Place{})[0] {
				if strings.Contains(name, "running") && !(distance(v, ranks[0][name]) < 1e-3) {
					t.Errorf("%s is off by %v of the CPU's", name, distance(v, ranks[0][name]))
				}
			}
		})
	}
}
