package verify

import (
	"slices"
	"testing"

	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

func TestVerifyDP(t *testing.T) {
	var checks []Check
	if !underRace { // the three workers below start the same goroutines
		var err error
		checks, err = DataParallelism(t.Context(), DPOptions{Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		exact := 0 // strategies besides the default one, each of which adds a check
		for _, s := range strategy.All()[1:] {
			if s.Exact {
				exact++
			}
		}
		if want := 12 + exact + 4; len(checks) != want {
			t.Errorf("got %d checks, want %d: 12 of the invariant, %d of further strategies, 4 of its faults", len(checks), want, exact)
		}
	}
	list := slices.Concat(newVariants()[2:4], newVariants()[11:]) // float32 with and without batch norm, and all that is added at once
	three, err := verifyVariants(t.Context(), 3, list, train.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	faults, err := verifyFaults(t.Context(), 3, setFaultConfig, train.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(checks, three, faults) {
		t.Log(c)
		if !c.OK {
			t.Error(c)
		}
	}
}
