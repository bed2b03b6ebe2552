package hostsim

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"lockstep/pkg/engine/cuda/kernels"
)

const (
	pageBytes = 4096
	poison    = 0xff // a NaN in every type
	canary    = 0xa5
)

// Memory is a piece of memory between two guard pages, as close to the upper one
// as its alignment lets it be. It begins full of NaN.
type Memory struct {
	mapping, data []byte
}

// Alloc gives n bytes, aligned to align (a power of two of at most 4096).
func Alloc(n, align int) (*Memory, error) {
	room := (n + align + 2*pageBytes - 1) / pageBytes * pageBytes
	mapping, err := unix.Mmap(-1, 0, room+2*pageBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	inside := mapping[pageBytes : pageBytes+room]
	if err := unix.Mprotect(inside, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return nil, errors.Join(fmt.Errorf("allocate %d bytes: %w", n, err), unix.Munmap(mapping))
	}
	for i := range inside {
		inside[i] = canary
	}
	start := (room - n) &^ (align - 1)
	m := &Memory{mapping: mapping, data: inside[start : start+n : start+n]}
	m.Poison()
	return m, nil
}

// Poison fills m with NaN.
func (m *Memory) Poison() {
	for i := range m.data {
		m.data[i] = poison
	}
}

// Pointer is the address of m.
func (m *Memory) Pointer() kernels.Pointer {
	return kernels.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
}

// Bytes is m itself.
func (m *Memory) Bytes() []byte { return m.data }

// F32 is m as floats; it must be aligned for them.
func (m *Memory) F32() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.data))), len(m.data)/4)
}

// U16 is m as words of 16 bits; it must be aligned for them.
func (m *Memory) U16() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(m.data))), len(m.data)/2)
}

// Load fills m with values of type t; those that are left over stay as they are.
func (m *Memory) Load(t kernels.Type, values []float32) {
	if t == kernels.F32 {
		copy(m.F32(), values)
		return
	}
	to := m.U16()
	for i, v := range values {
		to[i] = Round(t, v)
	}
}

// Values are m's elements of type t.
func (m *Memory) Values(t kernels.Type) []float32 {
	if t == kernels.F32 {
		return append([]float32(nil), m.F32()...)
	}
	var out []float32
	for _, bits := range m.U16() {
		out = append(out, Widen(t, bits))
	}
	return out
}

// Check tells whether anything wrote beside m, where no guard page could see it.
func (m *Memory) Check() error {
	start := int(uintptr(unsafe.Pointer(unsafe.SliceData(m.data))) - uintptr(unsafe.Pointer(unsafe.SliceData(m.mapping))))
	for at, beside := range map[int][]byte{
		pageBytes:           m.mapping[pageBytes:start],
		start + len(m.data): m.mapping[start+len(m.data) : len(m.mapping)-pageBytes],
	} {
		for i, b := range beside {
			if b != canary {
				return fmt.Errorf("byte %d of %d was written", at+i-start, len(m.data))
			}
		}
	}
	return nil
}

// Free gives m back.
func (m *Memory) Free() error {
	defer runtime.KeepAlive(m)
	return unix.Munmap(m.mapping)
}

// Round is v in 16 bits of type t, to the nearest, ties to even.
func Round(t kernels.Type, v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return 0x7fff
	}
	if t == kernels.BF16 {
		return uint16((bits + 0x7fff + bits>>16&1) >> 16)
	}
	// The step of float16 at v; |v| below 2⁻¹⁴ has that of the subnormals, 2⁻²⁴.
	sign, a := uint16(bits>>16&0x8000), math.Abs(float64(v))
	exponent := -14
	if a >= 0x1p-14 {
		exponent = math.Ilogb(a)
	}
	units := math.RoundToEven(math.Ldexp(a, 10-exponent)) // of 2^(exponent−10)
	if math.Ldexp(units, exponent-10) >= 65536 {
		return sign | 0x7c00
	}
	// A normal number has 1024 units or more, which count one in the exponent; 2048
	// carry once more.
	return sign + uint16(exponent+14)<<10 + uint16(units)
}

// Widen is the value of 16 bits of type t.
func Widen(t kernels.Type, bits uint16) float32 {
	if t == kernels.BF16 {
		return math.Float32frombits(uint32(bits) << 16)
	}
	exponent, mantissa := int(bits>>10&31), float64(bits&0x3ff)
	v := math.Ldexp(1024+mantissa, exponent-25)
	switch {
	case exponent == 0:
		v = math.Ldexp(mantissa, -24)
	case exponent == 31 && mantissa == 0:
		v = math.Inf(1)
	case exponent == 31:
		v = math.NaN()
	}
	if bits&0x8000 != 0 {
		v = -v
	}
	return float32(v)
}
