package cuda

import (
	"fmt"
	"math"
	"unsafe"

	driver "lockstep/pkg/internal/clib/cuda"
)

// block is memory of the GPU; without address it is not allocated.
type block struct {
	ptr   driver.Ptr
	bytes int64
}

// pinned is page-locked memory of the host, which the GPU copies from and to
// while the program goes on. Go memory is given to synchronous copies alone, which have
// read or written it when the driver's call returns.
type pinned struct {
	ptr   unsafe.Pointer
	bytes int64
}

// floats is the pinned memory as numbers.
func (p pinned) floats() []float32 { return unsafe.Slice((*float32)(p.ptr), p.bytes/4) }

// data is the pinned memory as bytes.
func (p pinned) data() []byte { return unsafe.Slice((*byte)(p.ptr), p.bytes) }

// part is bytes of p from an offset on.
func (p pinned) part(offset, bytes int) pinned {
	return pinned{unsafe.Add(p.ptr, offset), int64(bytes)}
}

// allocate gives b memory that is zero. A block of no bytes stays without.
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

// free gives b back.
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

// unpin gives page-locked memory back.
func (g *gpu) unpin(p pinned) error {
	if p.ptr == nil {
		return nil
	}
	return g.failed(g.driver.MemFreeHost(p.ptr))
}

// read copies bytes of the GPU's memory to a new slice, when all that was
// enqueued is done.
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

// write copies src to the GPU's memory, when all that was enqueued is done, and returns
// when it has arrived. The driver's call may return before: it is work of the legacy
// default stream, which ours, being non-blocking, do not wait for.
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

// sizeText is a number of bytes for people: "1.5 GiB".
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
