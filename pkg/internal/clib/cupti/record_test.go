package cupti

import (
	"testing"
	"unsafe"
)

// The offsets are those of CUpti_ActivityKernel10 as a C compiler lays it out
// (packed, aligned to 8 bytes).
func TestKernelRecordLayout(t *testing.T) {
	var k kernelRecord
	for _, c := range []struct {
		field     string
		got, want uintptr
	}{
		{"registers", unsafe.Offsetof(k.registers), 6},
		{"start", unsafe.Offsetof(k.start), 16},
		{"end", unsafe.Offsetof(k.end), 24},
		{"stream", unsafe.Offsetof(k.stream), 48},
		{"grid", unsafe.Offsetof(k.grid), 52},
		{"block", unsafe.Offsetof(k.block), 64},
		{"correlation", unsafe.Offsetof(k.correlation), 92},
		{"name", unsafe.Offsetof(k.name), 104},
		{"graphNode", unsafe.Offsetof(k.graphNode), 144},
	} {
		if c.got != c.want {
			t.Errorf("%s lies at %d, want %d", c.field, c.got, c.want)
		}
	}
}
