package device

import "testing"

func TestBuffer(t *testing.T) {
	for _, c := range []struct {
		name                     string
		b                        Buffer
		length, bytes, sliceSize int // of the slice [1, 3)
		host                     bool
	}{
		{"float32", Buffer{F32: make([]float32, 5)}, 5, 20, 8, true},
		{"float64", Buffer{F64: make([]float64, 5)}, 5, 40, 16, true},
		{"nothing", Buffer{F32: make([]float32, 3)}, 3, 12, 8, true},
		{"gpu fp32", Buffer{Pointer: 4096, Type: F32, Elements: 7}, 7, 28, 8, false},
		{"gpu bf16", Buffer{Pointer: 4096, Type: BF16, Elements: 7}, 7, 14, 4, false},
		{"gpu fp16", Buffer{Pointer: 4096, Type: F16, Elements: 7}, 7, 14, 4, false},
	} {
		s := c.b.Slice(1, 3)
		if c.b.Len() != c.length || c.b.Bytes() != c.bytes || c.b.OnHost() != c.host || s.Len() != 2 || s.Bytes() != c.sliceSize {
			t.Errorf("%s: %d elements, %d bytes, host %v; slice of %d elements, %d bytes", c.name, c.b.Len(), c.b.Bytes(), c.b.OnHost(), s.Len(), s.Bytes())
		}
	}
	if p := (Buffer{Pointer: 4096, Type: BF16, Elements: 7}).Slice(3, 7).Pointer; p != 4102 {
		t.Errorf("three elements of two bytes behind 4096 lies %d", p)
	}
	defer func() {
		if recover() == nil {
			t.Error("a slice beyond the buffer is taken")
		}
	}()
	_ = Buffer{Pointer: 4096, Type: F32, Elements: 2}.Slice(1, 3)
}
