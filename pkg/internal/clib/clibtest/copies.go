package clibtest

import (
	"slices"
	"unsafe"

	"lockstep/pkg/internal/clib/cuda"
)

func hostBytes(p unsafe.Pointer, n int64) []byte { return unsafe.Slice((*byte)(p), n) }

// newCopyOp returns an operation that copies src to dst, the results of operands. It calls
// operands at once, to report invalid addresses early. The operation calls operands again when it
// runs.
func (m *Machine) newCopyOp(call string, operands func() (dst, src []byte, err error)) (*streamOp, error) {
	if _, _, err := operands(); err != nil {
		return nil, newDriverError(call, cuda.ErrorInvalidValue, "%v", err)
	}
	return &streamOp{label: call, cost: 2, run: func() error {
		dst, src, err := operands()
		if err != nil {
			return newDriverError(call, cuda.ErrorIllegalAddress, "%v", err)
		}
		copy(dst, src)
		return nil
	}}, nil
}

func (m *Machine) simulateCopyCalls(d *cuda.Driver) {
	device := func(p cuda.Ptr, n int64) ([]byte, error) { return m.memory.bytesAt(uint64(p), n, false) }
	locked := func(p unsafe.Pointer, n int64) ([]byte, error) {
		return m.memory.bytesAt(uint64(uintptr(p)), n, true)
	}
	firstError := func(dst, src []byte, e1, e2 error) ([]byte, []byte, error) {
		if e1 != nil {
			return nil, nil, e1
		}
		return dst, src, e2
	}
	enqueue := func(call string, s cuda.Stream, n int64, dst, src string, get func() ([]byte, []byte, error)) error {
		o, err := m.newCopyOp(call, get)
		if err != nil {
			return err
		}
		m.logCall("%s %s <- %s, %d bytes, %s", call, dst, src, n, m.streamName(s))
		return m.enqueueStreamOp(call, s, o)
	}
	d.MemcpyHtoDAsync = func(dst cuda.Ptr, src unsafe.Pointer, n int64, s cuda.Stream) error {
		const call = "cuMemcpyHtoDAsync"
		return m.simulateCall(call, true, func() error {
			return enqueue(call, s, n, m.memory.describeAddress(uint64(dst)), m.memory.describeAddress(uint64(uintptr(src))), func() ([]byte, []byte, error) {
				a, e1 := device(dst, n)
				b, e2 := locked(src, n)
				return firstError(a, b, e1, e2)
			})
		})
	}
	d.MemcpyDtoHAsync = func(dst unsafe.Pointer, src cuda.Ptr, n int64, s cuda.Stream) error {
		const call = "cuMemcpyDtoHAsync"
		return m.simulateCall(call, true, func() error {
			return enqueue(call, s, n, m.memory.describeAddress(uint64(uintptr(dst))), m.memory.describeAddress(uint64(src)), func() ([]byte, []byte, error) {
				a, e1 := locked(dst, n)
				b, e2 := device(src, n)
				return firstError(a, b, e1, e2)
			})
		})
	}
	d.MemcpyDtoDAsync = func(dst, src cuda.Ptr, n int64, s cuda.Stream) error {
		const call = "cuMemcpyDtoDAsync"
		return m.simulateCall(call, true, func() error {
			return enqueue(call, s, n, m.memory.describeAddress(uint64(dst)), m.memory.describeAddress(uint64(src)), func() ([]byte, []byte, error) {
				a, e1 := device(dst, n)
				b, e2 := device(src, n)
				return firstError(a, b, e1, e2)
			})
		})
	}
	// Copies from and to pageable memory run in the legacy default stream. A copy to the
	// GPU returns after the driver has read the memory into a buffer. The data arrive
	// later, when that stream executes the copy. Streams that do not synchronize with the
	// legacy stream do not wait for it (CUDA driver API, "API synchronization behavior").
	d.MemcpyHtoD = func(dst cuda.Ptr, src unsafe.Pointer, n int64) error {
		const call = "cuMemcpyHtoD"
		staged := slices.Clone(hostBytes(src, n))
		return m.simulatePageableCopy(call, dst, n, func() error {
			o, err := m.newCopyOp(call, func() ([]byte, []byte, error) {
				b, err := device(dst, n)
				return b, staged, err
			})
			if err != nil {
				return err
			}
			return m.enqueueStreamOp(call, 0, o)
		})
	}
	d.MemcpyDtoH = func(dst unsafe.Pointer, src cuda.Ptr, n int64) error {
		const call = "cuMemcpyDtoH"
		return m.simulatePageableCopy(call, src, n, func() error {
			m.drainStream(m.byStream[0])
			b, err := device(src, n)
			if err != nil {
				return newDriverError(call, cuda.ErrorInvalidValue, "%v", err)
			}
			copy(hostBytes(dst, n), b)
			return m.checkDeviceNotLost(call)
		})
	}
	m.simulateMemsetCalls(d)
}

// simulatePageableCopy runs the pending work of the legacy default stream. Then it calls f, which copies
// n bytes between host memory and device memory at p.
func (m *Machine) simulatePageableCopy(call string, p cuda.Ptr, n int64, f func() error) error {
	return m.simulateCall(call, true, func() error {
		if err := m.checkCaptureAllows(call); err != nil {
			return err
		}
		if err := m.orderWithLegacyStream(call, m.byStream[0]); err != nil {
			return err
		}
		m.drainStream(m.byStream[0])
		if _, err := m.memory.bytesAt(uint64(p), n, false); err != nil {
			return newDriverError(call, cuda.ErrorInvalidValue, "%v", err)
		}
		m.logCall("%s %s, %d bytes", call, m.memory.describeAddress(uint64(p)), n)
		return f()
	})
}

func (m *Machine) simulateMemsetCalls(d *cuda.Driver) {
	set := func(call string, dst cuda.Ptr, n int64, s cuda.Stream, value uint32, write func([]byte)) error {
		return m.simulateCall(call, true, func() error {
			if _, err := m.memory.bytesAt(uint64(dst), n, false); err != nil {
				return newDriverError(call, cuda.ErrorInvalidValue, "%v", err)
			}
			m.logCall("%s %s, %d bytes of %#x, %s", call, m.memory.describeAddress(uint64(dst)), n, value, m.streamName(s))
			return m.enqueueStreamOp(call, s, &streamOp{label: call, cost: 1, run: func() error {
				b, err := m.memory.bytesAt(uint64(dst), n, false)
				if err != nil {
					return newDriverError(call, cuda.ErrorIllegalAddress, "%v", err)
				}
				write(b)
				return nil
			}})
		})
	}
	d.MemsetD8Async = func(dst cuda.Ptr, v byte, n int64, s cuda.Stream) error {
		return set("cuMemsetD8Async", dst, n, s, uint32(v), func(b []byte) { fillBytes(b, v) })
	}
	d.MemsetD32Async = func(dst cuda.Ptr, v uint32, n int64, s cuda.Stream) error {
		if dst%4 != 0 {
			return newDriverError("cuMemsetD32Async", cuda.ErrorInvalidValue, "address %#x is not a multiple of 4", uint64(dst))
		}
		return set("cuMemsetD32Async", dst, 4*n, s, v, func(b []byte) {
			for i := 0; i+4 <= len(b); i += 4 {
				b[i], b[i+1], b[i+2], b[i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
			}
		})
	}
}
