package hostsim

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
)

const (
	pageBytes = 4096
	nanByte   = 0xff // NaN in every type
	guardByte = 0xa5 // fills the memory around a Memory's data
)

// Memory is memory between two guard pages. It ends as close to the upper guard page as its
// alignment allows. Initially all its bytes are 0xff, so its elements are NaN.
type Memory struct {
	mapping, data []byte
}

// Alloc allocates n bytes, aligned to align, which must be a power of two up to 4096.
func Alloc(n, align int) (*Memory, error) {
	size := (n + align + 2*pageBytes - 1) / pageBytes * pageBytes
	mapping, err := unix.Mmap(-1, 0, size+2*pageBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	inside := mapping[pageBytes : pageBytes+size]
	if err := unix.Mprotect(inside, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return nil, errors.Join(fmt.Errorf("allocate %d bytes: %w", n, err), unix.Munmap(mapping))
	}
	for i := range inside {
		inside[i] = guardByte
	}
	start := (size - n) &^ (align - 1)
	m := &Memory{mapping: mapping, data: inside[start : start+n : start+n]}
	m.FillWithNaN()
	return m, nil
}

// FillWithNaN fills m with bytes of 0xff.
func (m *Memory) FillWithNaN() {
	for i := range m.data {
		m.data[i] = nanByte
	}
}

// Pointer returns the address of m.
func (m *Memory) Pointer() kernels.Pointer {
	return kernels.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
}

// Bytes returns the memory of m, without copying it.
func (m *Memory) Bytes() []byte { return m.data }

// F32 returns the memory of m as float32, without copying it.
func (m *Memory) F32() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.data))), len(m.data)/4)
}

// Store writes values, converted to type t, to the beginning of m.
func (m *Memory) Store(t kernels.ElementType, values []float32) {
	copy(m.data, number.Encode(number.DeviceType(t), values))
}

// Values converts the elements of m, which have type t, to float32.
func (m *Memory) Values(t kernels.ElementType) []float32 {
	return number.Decode(number.DeviceType(t), m.data)
}

// CheckSurroundings returns an error if bytes between m and its guard pages have changed.
func (m *Memory) CheckSurroundings() error {
	start := int(uintptr(unsafe.Pointer(unsafe.SliceData(m.data))) - uintptr(unsafe.Pointer(unsafe.SliceData(m.mapping))))
	for at, beside := range map[int][]byte{
		pageBytes:           m.mapping[pageBytes:start],
		start + len(m.data): m.mapping[start+len(m.data) : len(m.mapping)-pageBytes],
	} {
		for i, b := range beside {
			if b != guardByte {
				return fmt.Errorf("byte %d outside of the %d bytes of memory was overwritten", at+i-start, len(m.data))
			}
		}
	}
	return nil
}

// Free unmaps m.
func (m *Memory) Free() error {
	defer runtime.KeepAlive(m)
	return unix.Munmap(m.mapping)
}
