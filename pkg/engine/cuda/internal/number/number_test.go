package number

import (
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/device"
)

// TestEncode: numbers that every type can represent survive the way there and back. The
// bytes of 1 are those of IEEE 754, little-endian.
func TestEncode(t *testing.T) {
	for typ, one := range map[device.ElementType]string{device.F32: "\x00\x00\x80\x3f", device.F16: "\x00\x3c", device.BF16: "\x80\x3f"} {
		if got := string(Encode(typ, []float32{1})); got != one {
			t.Errorf("%s: 1 is %q, want %q", typ, got, one)
		}
		v := []float32{0, -1.5, 3, 0x1p-10}
		for i, f := range Decode(typ, Encode(typ, v)) {
			if f != v[i] {
				t.Errorf("%s: %v comes back as %v", typ, v[i], f)
			}
		}
		if k := KernelType(typ); DeviceType(k) != typ || k.Bytes() != typ.Size() {
			t.Errorf("%s becomes %s and %s", typ, k, DeviceType(k))
		}
	}
	if KernelType(device.BF16) != kernels.BF16 {
		t.Error("bf16 has another type in kernels")
	}
}
