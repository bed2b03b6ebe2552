package cuda

import (
	"fmt"
	"unsafe"

	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/english"
)

// memoryBlock is a block of GPU memory. If ptr is 0, it is not allocated.
type memoryBlock struct {
	ptr   driver.Ptr
	bytes int64
}

// pinnedMemory is page-locked host memory, which the GPU can copy asynchronously. Go memory
// is only for synchronous copies: the driver does not access it after the call.
type pinnedMemory struct {
	ptr   unsafe.Pointer
	bytes int64
}

func (p pinnedMemory) floatSlice() []float32 { return unsafe.Slice((*float32)(p.ptr), p.bytes/4) }

func (p pinnedMemory) byteSlice() []byte { return unsafe.Slice((*byte)(p.ptr), p.bytes) }

func (p pinnedMemory) subrange(offset, bytes int) pinnedMemory {
	return pinnedMemory{unsafe.Add(p.ptr, offset), int64(bytes)}
}

// allocate allocates b, filled with zeros. It does nothing if b.bytes is 0.
func (g *gpu) allocate(b *memoryBlock) error {
	if b.bytes == 0 {
		return nil
	}
	ptr, err := g.driver.MemAlloc(b.bytes)
	if err != nil {
		return g.explainLostGPU(fmt.Errorf("allocate %s on the GPU: %w", english.FormatBytes(b.bytes), err))
	}
	b.ptr = ptr
	g.allocated += b.bytes
	if err := g.driver.MemsetD8Async(ptr, 0, b.bytes, g.compute); err != nil {
		return g.explainLostGPU(err)
	}
	return nil
}

// free does nothing if b is not allocated.
func (g *gpu) free(b memoryBlock) error {
	if b.ptr == 0 {
		return nil
	}
	g.allocated -= b.bytes
	return g.explainLostGPU(g.driver.MemFree(b.ptr))
}

func (g *gpu) allocatePinned(bytes int64) (pinnedMemory, error) {
	bytes = max(bytes, 1)
	ptr, err := g.driver.MemHostAlloc(bytes)
	if err != nil {
		return pinnedMemory{}, g.explainLostGPU(fmt.Errorf("allocate %s of page-locked host memory: %w", english.FormatBytes(bytes), err))
	}
	return pinnedMemory{ptr, bytes}, nil
}

// freePinned does nothing if p is not allocated.
func (g *gpu) freePinned(p pinnedMemory) error {
	if p.ptr == nil {
		return nil
	}
	return g.explainLostGPU(g.driver.MemFreeHost(p.ptr))
}

// readMemory waits for all enqueued work and returns a copy of GPU memory.
func (g *gpu) readMemory(from driver.Ptr, bytes int64) ([]byte, error) {
	if err := g.synchronize(); err != nil {
		return nil, err
	}
	if bytes == 0 {
		return nil, nil
	}
	dst := make([]byte, bytes)
	if err := g.driver.MemcpyDtoH(unsafe.Pointer(&dst[0]), from, bytes); err != nil {
		return nil, g.explainLostGPU(fmt.Errorf("copy from the GPU: %w", err))
	}
	return dst, nil
}

// writeMemory waits for all enqueued work, copies src to GPU memory, and waits for the copy. It
// must wait, because the driver's call may return before the copy ends: the copy runs in the
// legacy default stream, and the engine's non-blocking streams do not wait for that stream.
func (g *gpu) writeMemory(to driver.Ptr, src []byte) error {
	if err := g.synchronize(); err != nil {
		return err
	}
	if len(src) == 0 {
		return nil
	}
	if err := g.driver.MemcpyHtoD(to, unsafe.Pointer(&src[0]), int64(len(src))); err != nil {
		return g.explainLostGPU(fmt.Errorf("copy to the GPU: %w", err))
	}
	const legacy = driver.Stream(0)
	return g.explainLostGPU(g.driver.StreamSynchronize(legacy))
}
