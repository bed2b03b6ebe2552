package cuda

import (
	"fmt"
	"math"
	"unsafe"

	driver "lockstep/pkg/internal/clib/cuda"
)

// block is GPU memory. It is not allocated if ptr is 0.
type block struct {
	ptr   driver.Ptr
	bytes int64
}

// pinned is page-locked host memory, from and to which the GPU copies asynchronously. Go
// memory is used only for synchronous copies, which have finished with it when the driver's
// call returns.
type pinned struct {
	ptr   unsafe.Pointer
	bytes int64
}

// floats returns the memory as a slice of float32.
func (p pinned) floats() []float32 { return unsafe.Slice((*float32)(p.ptr), p.bytes/4) }

// data returns the memory as a slice of bytes.
func (p pinned) data() []byte { return unsafe.Slice((*byte)(p.ptr), p.bytes) }

// part returns the given number of bytes of p, starting at offset.
func (p pinned) part(offset, bytes int) pinned {
	return pinned{unsafe.Add(p.ptr, offset), int64(bytes)}
}

// allocate allocates b.bytes of memory, filled with zeros. A block of no bytes is not
// allocated.
func (g *gpu) allocate(b *block) error {
	if b.bytes == 0 {
		return nil
	}
	ptr, err := g.driver.MemAlloc(b.bytes)
	if err != nil {
		return g.failed(fmt.Errorf("allocate %s on the GPU: %w", sizeText(b.bytes), err))
	}
	b.ptr = ptr
	g.allocated += b.bytes
	if err := g.driver.MemsetD8Async(ptr, 0, b.bytes, g.compute); err != nil {
		return g.failed(err)
	}
	return nil
}

// free frees b. It does nothing if b is not allocated.
func (g *gpu) free(b block) error {
	if b.ptr == 0 {
		return nil
	}
	g.allocated -= b.bytes
	return g.failed(g.driver.MemFree(b.ptr))
}

// pin allocates page-locked memory of the host.
func (g *gpu) pin(bytes int64) (pinned, error) {
	bytes = max(bytes, 1)
	ptr, err := g.driver.MemHostAlloc(bytes)
	if err != nil {
		return pinned{}, g.failed(fmt.Errorf("allocate %s of page-locked host memory: %w", sizeText(bytes), err))
	}
	return pinned{ptr, bytes}, nil
}

// unpin frees page-locked memory.
func (g *gpu) unpin(p pinned) error {
	if p.ptr == nil {
		return nil
	}
	return g.failed(g.driver.MemFreeHost(p.ptr))
}

// read waits for everything that was enqueued and copies GPU memory to a new slice.
func (g *gpu) read(from driver.Ptr, bytes int64) ([]byte, error) {
	if err := g.synchronize(); err != nil {
		return nil, err
	}
	if bytes == 0 {
		return nil, nil
	}
	dst := make([]byte, bytes)
	if err := g.driver.MemcpyDtoH(unsafe.Pointer(&dst[0]), from, bytes); err != nil {
		return nil, g.failed(fmt.Errorf("copy from the GPU: %w", err))
	}
	return dst, nil
}

// write waits for everything that was enqueued and copies src to the GPU's memory. It
// returns when the data have arrived. The driver's call may return earlier: the copy runs
// in the legacy default stream, for which our non-blocking streams do not wait.
func (g *gpu) write(to driver.Ptr, src []byte) error {
	if err := g.synchronize(); err != nil {
		return err
	}
	if len(src) == 0 {
		return nil
	}
	if err := g.driver.MemcpyHtoD(to, unsafe.Pointer(&src[0]), int64(len(src))); err != nil {
		return g.failed(fmt.Errorf("copy to the GPU: %w", err))
	}
	const legacy = driver.Stream(0)
	return g.failed(g.driver.StreamSynchronize(legacy))
}

// sizeText formats a number of bytes for people: "1.5 GiB".
func sizeText(bytes int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if bytes >= 1<<u.shift {
			v := float64(bytes) / math.Exp2(float64(u.shift))
			return fmt.Sprintf("%.3g %s", v, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
