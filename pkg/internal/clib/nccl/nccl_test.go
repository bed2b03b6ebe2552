package nccl_test

import (
	"encoding/json"
	"strings"
	"testing"

	"lockstep/pkg/internal/clib/nccl"
)

// An id must arrive at the other ranks as it was, by text or bytes, and must not
// be printed whole.
func TestUniqueIDTravels(t *testing.T) {
	var id, back nccl.UniqueID
	for i := range id {
		id[i] = byte(255 - i)
	}
	text, err := json.Marshal(map[string]nccl.UniqueID{"id": id})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]nccl.UniqueID
	if err := json.Unmarshal(text, &m); err != nil || m["id"] != id {
		t.Errorf("by JSON: %v", err)
	}
	raw, err := id.MarshalBinary()
	if err != nil || back.UnmarshalBinary(raw) != nil || back != id {
		t.Errorf("by bytes: %v", err)
	}
	if err := back.UnmarshalText([]byte("AAAA")); err == nil || err.Error() != "read NCCL ID: got 3 bytes, want 128" {
		t.Errorf("short id: %v", err)
	}
	if s := id.String(); len(s) != len("nccl-01234567") || !strings.HasPrefix(s, "nccl-") || s == (nccl.UniqueID{}).String() {
		t.Errorf("String %q", s)
	}
}
