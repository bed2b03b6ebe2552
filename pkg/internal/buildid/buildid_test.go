package buildid

import "testing"

func TestIDOfATestIsDev(t *testing.T) {
	// No linker flag reaches a test binary, so the id is the constant's.
	if ID != Dev {
		t.Errorf("ID = %q, want %q", ID, Dev)
	}
}
