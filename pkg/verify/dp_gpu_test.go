package verify

import (
	"strings"
	"testing"

	"lockstep/pkg/internal/gputest"
	"lockstep/pkg/train"
)

// TestVerifyDPOnGPU checks the invariant on simulated GPUs: for three workers with one GPU each,
// which exchange gradients through NCCL, and for two workers that share one GPU. For the latter it
// also checks the detection of a fault; the other faults change the gradients on the host, as they
// do for the CPU.
func TestVerifyDPOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	list := newGPUVariants("cuda")
	checks, err := verifyVariants(t.Context(), 3, list[3:], train.WorkerOptions{Open: gputest.NewPerWorkerOpener(t, 3)})
	if err != nil {
		t.Fatal(err)
	}
	options := train.WorkerOptions{Open: gputest.NewPerWorkerOpener(t, 1)}
	two, err := verifyVariants(t.Context(), 2, list[1:3], options)
	if err != nil {
		t.Fatal(err)
	}
	cfg := newVerifyConfig()
	newGPUConfigurer("cuda")(&cfg)
	faults := listFaults(cfg)
	broken, err := verifyFaults(t.Context(), 2, cfg, faults[len(faults)-1:], options) // own statistics
	if err != nil {
		t.Fatal(err)
	}
	two = append(two, broken...)
	if checks = append(checks, two...); len(checks) != 1+2+1 {
		t.Errorf("%d checks, want 4", len(checks))
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
		"reference": `invalid device "reference": use cuda, or cpu`,
		"cuda":      "invalid number of workers 1: use at least 2",
	} {
		if _, err := DataParallelism(t.Context(), DPOptions{Workers: 1, Device: device}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", device, err)
		}
	}
}
