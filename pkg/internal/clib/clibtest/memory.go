package clibtest

import (
	"bytes"
	"fmt"
	"slices"
	"unsafe"

	"lockstep/pkg/internal/clib/cuda"
)

const (
	guard     = 256  // bytes of known content on each side of an allocation
	alignment = 512  // of the addresses that cuMemAlloc returns
	filler    = 0xC5 // content of a guard
	poison    = 0xFF // content of new memory: NaN in fp32, fp16 and bf16
	// quarantine limits the freed memory that is kept so that its addresses are not reused
	// at once.
	quarantine = 64 << 20
)

type allocation struct {
	name string
	base uint64
	size int64
	raw  []byte
	at   int // index in raw where the allocation starts
	host bool
	free bool
}

func (a *allocation) data() []byte { return a.raw[a.at : a.at+int(a.size)] }

type memory struct {
	all   []*allocation // sorted by base address
	used  int64         // bytes of device memory
	freed int64
}

// add creates an allocation.
func (mem *memory) add(name string, size int64, host bool) *allocation {
	raw := make([]byte, int(size)+2*guard+alignment)
	start := uint64(uintptr(unsafe.Pointer(&raw[0]))) + guard
	base := (start + alignment - 1) / alignment * alignment
	a := &allocation{name: name, base: base, size: size, raw: raw, at: int(base-start) + guard, host: host}
	fill(raw[:a.at], filler)
	fill(raw[a.at:a.at+int(size)], poison)
	fill(raw[a.at+int(size):], filler)
	i, _ := slices.BinarySearchFunc(mem.all, base, func(a *allocation, b uint64) int { return compare(a.base, b) })
	mem.all = slices.Insert(mem.all, i, a)
	if !host {
		mem.used += size
	}
	return a
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// fill sets all bytes of b to v. It copies the part that is filled already, which is many
// times as fast as a loop over the bytes, especially with the race detector.
func fill(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// start returns the live allocation that starts at p, or nil.
func (mem *memory) start(p uint64, host bool) *allocation {
	for _, a := range mem.all {
		if a.base == p && !a.free && a.host == host {
			return a
		}
	}
	return nil
}

// release frees an allocation. Its memory is filled with NaN and kept for a while.
func (mem *memory) release(a *allocation) {
	a.free = true
	fill(a.data(), poison)
	if !a.host {
		mem.used -= a.size
	}
	mem.freed += a.size
	for mem.freed > quarantine {
		i := slices.IndexFunc(mem.all, func(a *allocation) bool { return a.free })
		mem.freed -= mem.all[i].size
		mem.all = slices.Delete(mem.all, i, i+1)
	}
}

// near returns the allocation, live or freed, that contains p or has p in its guards, or
// nil.
func (mem *memory) near(p uint64) *allocation {
	for _, a := range mem.all {
		if p+guard >= a.base && p < a.base+uint64(a.size)+guard {
			return a
		}
	}
	return nil
}

// describe returns a readable name for an address.
func (mem *memory) describe(p uint64) string {
	a := mem.near(p)
	switch {
	case p == 0:
		return "0"
	case a == nil:
		return fmt.Sprintf("%#x (in no allocation)", p)
	case a.free:
		return fmt.Sprintf("%s+%d (freed)", a.name, p-a.base)
	case p < a.base:
		return fmt.Sprintf("%s-%d (before its begin)", a.name, a.base-p)
	case p >= a.base+uint64(a.size) && a.size > 0:
		return fmt.Sprintf("%s+%d (after its end, it has %d bytes)", a.name, p-a.base, a.size)
	case p == a.base:
		return a.name
	}
	return fmt.Sprintf("%s+%d", a.name, p-a.base)
}

// span returns the memory [p, p+n), which must be within one live allocation.
func (mem *memory) span(p uint64, n int64, host bool) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	a := mem.near(p)
	switch {
	case a == nil || a.free || p < a.base || p >= a.base+uint64(a.size):
		return nil, fmt.Errorf("%s is not allocated", mem.describe(p))
	case n < 0 || p-a.base+uint64(n) > uint64(a.size):
		return nil, fmt.Errorf("%d bytes at %s leave it: it has %d", n, mem.describe(p), a.size)
	case a.host != host:
		return nil, fmt.Errorf("%s is memory of the %s", mem.describe(p), map[bool]string{true: "host", false: "device"}[a.host])
	}
	lo := a.at + int(p-a.base)
	return a.raw[lo : lo+int(n)], nil
}

// intact returns an error if a guard was overwritten.
func (mem *memory) intact() error {
	var want [guard]byte
	fill(want[:], filler)
	for _, a := range mem.all {
		if a.free {
			continue
		}
		end := a.at + int(a.size)
		if !bytes.Equal(a.raw[a.at-guard:a.at], want[:]) {
			return fmt.Errorf("memory before %s was written over", a.name)
		}
		if !bytes.Equal(a.raw[end:end+guard], want[:]) {
			i := 0
			for a.raw[end+i] == filler {
				i++
			}
			return fmt.Errorf("memory after %s (%d bytes) was written over, at byte %d", a.name, a.size, a.size+int64(i))
		}
	}
	return nil
}

// Name sets the name of an allocation in errors and calls.
func (m *Machine) Name(p cuda.Ptr, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.memory.start(uint64(p), false); a != nil {
		a.name = name
	}
}

// Bytes returns the device memory [p, p+n) after all enqueued work has run. Changes of the
// slice change the device's memory.
func (m *Machine) Bytes(p cuda.Ptr, n int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drainAll()
	return m.memory.span(uint64(p), n, false)
}

// Span is like Bytes, but does not run enqueued work. It is for Executors, which run within
// a call.
func (m *Machine) Span(p cuda.Ptr, n int64) ([]byte, error) {
	return m.memory.span(uint64(p), n, false)
}

// Live returns the names of the device allocations that were not freed.
func (m *Machine) Live() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, a := range m.memory.all {
		if !a.free && !a.host {
			names = append(names, a.name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *Machine) bindMemory(d *cuda.Driver) {
	alloc := func(call, kind string, size int64, host bool) (*allocation, error) {
		if err := m.unsafeInCapture(call); err != nil {
			return nil, err
		}
		if size <= 0 {
			return nil, fail(call, cuda.ErrorInvalidValue, "of %d bytes", size)
		}
		if !host && m.memory.used+size > m.opt.Memory {
			return nil, fail(call, cuda.ErrorOutOfMemory, "of %d bytes", size)
		}
		m.numbers[kind]++
		a := m.memory.add(fmt.Sprintf("%s#%d", kind, m.numbers[kind]), size, host)
		m.note("%s %d = %s", call, size, a.name)
		return a, nil
	}
	d.MemAlloc = func(size int64) (p cuda.Ptr, err error) {
		err = m.do("cuMemAlloc", true, func() error {
			a, err := alloc("cuMemAlloc", "memory", size, false)
			if err == nil {
				p = cuda.Ptr(a.base)
			}
			return err
		})
		return p, err
	}
	d.MemHostAlloc = func(size int64) (p unsafe.Pointer, err error) {
		err = m.do("cuMemHostAlloc", true, func() error {
			a, err := alloc("cuMemHostAlloc", "host", size, true)
			if err == nil {
				p = unsafe.Pointer(&a.raw[a.at])
			}
			return err
		})
		return p, err
	}
	release := func(call string, p uint64, host bool) error {
		return m.do(call, true, func() error {
			if err := m.unsafeInCapture(call); err != nil {
				return err
			}
			a := m.memory.start(p, host)
			if a == nil {
				return fail(call, cuda.ErrorInvalidValue, "%s is no allocation", m.memory.describe(p))
			}
			// The memory may still be in use, so all work is run first.
			m.drainAll()
			m.note("%s %s", call, a.name)
			m.memory.release(a)
			return m.settled(call)
		})
	}
	d.MemFree = func(p cuda.Ptr) error { return release("cuMemFree", uint64(p), false) }
	d.MemFreeHost = func(p unsafe.Pointer) error { return release("cuMemFreeHost", uint64(uintptr(p)), true) }
	d.MemGetInfo = func() (free, total int64, err error) {
		err = m.do("cuMemGetInfo", true, func() error {
			free, total = m.opt.Memory-m.memory.used, m.opt.Memory
			return nil
		})
		return free, total, err
	}
}
