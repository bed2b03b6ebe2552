package clibtest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"lockstep/pkg/internal/clib/cuda"
)

const (
	guardBytes = 256  // bytes of known content on each side of an allocation
	alignment  = 512  // of the addresses that cuMemAlloc returns
	guardFill  = 0xC5 // content of a guard
	nanFill    = 0xFF // content of new and of freed memory: NaN in fp32, fp16 and bf16
	// quarantineBytes limits the freed memory that is kept, so that its addresses are not
	// reused at once.
	quarantineBytes = 64 << 20
	fillPart        = 16 << 10 // bytes that fillBytes copies at once
)

type allocation struct {
	name string
	base uint64
	size int64
	raw  []byte
	at   int // index in raw at which the allocation starts
	host bool
	free bool
}

func (a *allocation) data() []byte { return a.raw[a.at : a.at+int(a.size)] }

type simulatedMemory struct {
	all   []*allocation // sorted by base address
	used  int64         // bytes of device memory
	freed int64         // bytes of freed memory that is kept
}

// allocate allocates device memory, or host memory if host is set.
func (mem *simulatedMemory) allocate(name string, size int64, host bool) *allocation {
	raw := make([]byte, int(size)+2*guardBytes+alignment)
	start := uint64(uintptr(unsafe.Pointer(&raw[0]))) + guardBytes
	base := (start + alignment - 1) / alignment * alignment
	a := &allocation{name: name, base: base, size: size, raw: raw, at: int(base-start) + guardBytes, host: host}
	fillBytes(raw[:a.at], guardFill)
	fillBytes(raw[a.at:a.at+int(size)], nanFill)
	fillBytes(raw[a.at+int(size):], guardFill)
	i, _ := slices.BinarySearchFunc(mem.all, base, func(a *allocation, b uint64) int { return cmp.Compare(a.base, b) })
	mem.all = slices.Insert(mem.all, i, a)
	if !host {
		mem.used += size
	}
	return a
}

// fillBytes sets every byte of b to v. It repeatedly copies the part of b that is already filled,
// at most fillPart bytes, which stay in the cache. This is much faster than a loop, especially
// with the race detector.
func fillBytes(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); {
		n += copy(b[n:], b[:min(n, fillPart)])
	}
}

// findAllocationAt returns the live allocation in host or device memory that starts at p, or nil.
func (mem *simulatedMemory) findAllocationAt(p uint64, host bool) *allocation {
	for _, a := range mem.all {
		if a.base == p && !a.free && a.host == host {
			return a
		}
	}
	return nil
}

// release fills a freed allocation with NaN patterns and keeps it, so that later accesses are
// detected. If more than quarantineBytes are kept, it drops other freed allocations.
func (mem *simulatedMemory) release(a *allocation) {
	a.free = true
	fillBytes(a.data(), nanFill)
	if !a.host {
		mem.used -= a.size
	}
	mem.freed += a.size
	for mem.freed > quarantineBytes {
		i := slices.IndexFunc(mem.all, func(a *allocation) bool { return a.free })
		mem.freed -= mem.all[i].size
		mem.all = slices.Delete(mem.all, i, i+1)
	}
}

// findAllocationNear returns the allocation, live or freed, whose memory or guard bytes contain
// p, or nil.
func (mem *simulatedMemory) findAllocationNear(p uint64) *allocation {
	for _, a := range mem.all {
		if p+guardBytes >= a.base && p < a.base+uint64(a.size)+guardBytes {
			return a
		}
	}
	return nil
}

func (mem *simulatedMemory) describeAddress(p uint64) string {
	a := mem.findAllocationNear(p)
	switch {
	case p == 0:
		return "0"
	case a == nil:
		return fmt.Sprintf("%#x (outside all allocations)", p)
	case a.free:
		return fmt.Sprintf("%s+%d (freed)", a.name, p-a.base)
	case p < a.base:
		return fmt.Sprintf("%s-%d (before its start)", a.name, a.base-p)
	case p >= a.base+uint64(a.size) && a.size > 0:
		return fmt.Sprintf("%s+%d (after its end at %d bytes)", a.name, p-a.base, a.size)
	case p == a.base:
		return a.name
	}
	return fmt.Sprintf("%s+%d", a.name, p-a.base)
}

// bytesAt returns the n bytes at p. They must be inside a live allocation: in host memory if host
// is set, otherwise in device memory.
func (mem *simulatedMemory) bytesAt(p uint64, n int64, host bool) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	a := mem.findAllocationNear(p)
	switch {
	case a == nil || a.free || p < a.base || p >= a.base+uint64(a.size):
		return nil, fmt.Errorf("%s is not allocated", mem.describeAddress(p))
	case n < 0 || p-a.base+uint64(n) > uint64(a.size):
		return nil, fmt.Errorf("%d bytes at %s exceed the allocation of %d bytes", n, mem.describeAddress(p), a.size)
	case a.host != host:
		return nil, fmt.Errorf("%s is not in %s memory", mem.describeAddress(p), map[bool]string{true: "host", false: "device"}[host])
	}
	lo := a.at + int(p-a.base)
	return a.raw[lo : lo+int(n)], nil
}

func (mem *simulatedMemory) checkGuardBytes() error {
	var want [guardBytes]byte
	fillBytes(want[:], guardFill)
	for _, a := range mem.all {
		if a.free {
			continue
		}
		end := a.at + int(a.size)
		if !bytes.Equal(a.raw[a.at-guardBytes:a.at], want[:]) {
			return fmt.Errorf("memory before %s was overwritten", a.name)
		}
		if !bytes.Equal(a.raw[end:end+guardBytes], want[:]) {
			i := 0
			for a.raw[end+i] == guardFill {
				i++
			}
			return fmt.Errorf("memory after %s (%d bytes) was overwritten at byte %d", a.name, a.size, a.size+int64(i))
		}
	}
	return nil
}

// SetAllocationName sets the name by which Calls and errors refer to the allocation at p.
func (m *Machine) SetAllocationName(p cuda.Ptr, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.memory.findAllocationAt(uint64(p), false); a != nil {
		a.name = name
	}
}

// Bytes runs all enqueued work and returns the n bytes of device memory at p, without copying
// them.
func (m *Machine) Bytes(p cuda.Ptr, n int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drainAllStreams()
	return m.memory.bytesAt(uint64(p), n, false)
}

// BytesDuringCall is like Bytes, but does not run enqueued work. It is for use in Executors.
func (m *Machine) BytesDuringCall(p cuda.Ptr, n int64) ([]byte, error) {
	return m.memory.bytesAt(uint64(p), n, false)
}

// LiveAllocations returns the names of the device allocations that are not freed, sorted.
func (m *Machine) LiveAllocations() []string {
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

func (m *Machine) simulateMemoryCalls(d *cuda.Driver) {
	alloc := func(call, kind string, size int64, host bool) (*allocation, error) {
		if err := m.checkCaptureAllows(call); err != nil {
			return nil, err
		}
		if size <= 0 {
			return nil, newDriverError(call, cuda.ErrorInvalidValue, "invalid size %d bytes", size)
		}
		if !host && m.memory.used+size > m.opt.Memory {
			return nil, &cuda.Error{Call: call, Result: cuda.ErrorOutOfMemory, Detail: fmt.Sprintf("of %d bytes", size)}
		}
		m.numbers[kind]++
		a := m.memory.allocate(fmt.Sprintf("%s#%d", kind, m.numbers[kind]), size, host)
		m.logCall("%s %d = %s", call, size, a.name)
		return a, nil
	}
	d.MemAlloc = func(size int64) (p cuda.Ptr, err error) {
		err = m.simulateCall("cuMemAlloc", true, func() error {
			a, err := alloc("cuMemAlloc", "memory", size, false)
			if err == nil {
				p = cuda.Ptr(a.base)
			}
			return err
		})
		return p, err
	}
	d.MemHostAlloc = func(size int64) (p unsafe.Pointer, err error) {
		err = m.simulateCall("cuMemHostAlloc", true, func() error {
			a, err := alloc("cuMemHostAlloc", "host", size, true)
			if err == nil {
				p = unsafe.Pointer(&a.raw[a.at])
			}
			return err
		})
		return p, err
	}
	release := func(call string, p uint64, host bool) error {
		return m.simulateCall(call, true, func() error {
			if err := m.checkCaptureAllows(call); err != nil {
				return err
			}
			a := m.memory.findAllocationAt(p, host)
			if a == nil {
				return newDriverError(call, cuda.ErrorInvalidValue, "%s is not the start of an allocation", m.memory.describeAddress(p))
			}
			// The memory may still be in use, so all work is run first.
			m.drainAllStreams()
			m.logCall("%s %s", call, a.name)
			m.memory.release(a)
			return m.checkDeviceNotLost(call)
		})
	}
	d.MemFree = func(p cuda.Ptr) error { return release("cuMemFree", uint64(p), false) }
	d.MemFreeHost = func(p unsafe.Pointer) error { return release("cuMemFreeHost", uint64(uintptr(p)), true) }
	d.MemGetInfo = func() (free, total int64, err error) {
		err = m.simulateCall("cuMemGetInfo", true, func() error {
			free, total = m.opt.Memory-m.memory.used, m.opt.Memory
			return nil
		})
		return free, total, err
	}
}
