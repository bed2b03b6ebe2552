package verify

import (
	"slices"
	"testing"

	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// TestVerifyDP checks the invariant and the detection of faults for two and three workers.
func TestVerifyDP(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	checks, err := DataParallelism(t.Context(), DPOptions{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	exact := 0 // strategies besides the default one, each of which adds a check
	for _, s := range strategy.Kinds()[1:] {
		if s.Exact {
			exact++
		}
	}
	if want := 14 + exact + 6; len(checks) != want {
		t.Errorf("got %d checks, want %d: 14 of the invariant, %d of further strategies, 6 of its faults", len(checks), want, exact)
	}
	all := newCPUVariants()
	// The CPU engine without and with synchronized batch norm, classes of pixels, further
	// strategies, and the reference engine with most options that change an update.
	list := slices.Concat(all[2:4], all[11:])
	three, err := verifyVariants(t.Context(), 3, list, train.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	four, err := verifyVariants(t.Context(), 4, all[12:14], train.WorkerOptions{}) // classes of pixels
	if err != nil {
		t.Fatal(err)
	}
	cfg := newVerifyConfig()
	configureFaultTest(&cfg)
	faults, err := verifyFaults(t.Context(), 3, cfg, listFaults(cfg), train.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(checks, three, four, faults) {
		t.Log(c)
		if !c.OK {
			t.Error(c)
		}
	}
}
