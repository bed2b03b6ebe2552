package shard

import (
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
)

// packPadded leaves the padding at the end of stored unchanged, like the CPU engine.
func packPadded(_ string, v []float64, stored device.Buffer) error {
	copy(stored.F64, v)
	return nil
}

// TestRestoredPaddingIsZero: the slots of a parameter with padding have no values of a
// parameter of another bucket, whose memory has the same place in the staging buffer.
func TestRestoredPaddingIsZero(t *testing.T) {
	s := Shard{memory: &engine.HostMemory{Pack: packPadded}, slots: map[string][]device.Buffer{}}
	for _, name := range []string{"full", "padded"} {
		buffer := device.Buffer{F64: make([]float64, 4)}
		s.Buckets = append(s.Buckets, engine.BucketMemory{Gradients: buffer, Parameters: []engine.ParameterMemory{{Name: name, Weights: buffer}}})
		s.owned = append(s.owned, [2]int{0, 4})
	}
	s.staging = NewStagingBuffer(s.Buckets)
	for _, saved := range []map[string][]float64{{"optimizer.m.full": {1, 2, 3, 4}}, {"optimizer.m.padded": {5, 6, 7}}} {
		if err := s.RestoreSlots(saved); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.slots["m"][1].F64; got[2] != 7 || got[3] != 0 {
		t.Errorf("got restored slot %v, want [5 6 7 0]", got)
	}
}
