package horovod

import "lockstep/pkg/internal/device"

// tensorRequest announces a tensor that is not in the response cache.
type tensorRequest struct {
	Name     string `json:"name"`
	Bits     int    `json:"bits"` // of an element: 32 or 64
	Elements int    `json:"elements"`
}

func newTensorRequest(t Tensor) tensorRequest {
	return tensorRequest{Name: t.Name, Bits: elementBits(t.Buffer), Elements: t.Buffer.Len()}
}

func elementBits(b device.Buffer) int {
	if b.F64 != nil {
		return 64
	}
	return 32
}

func (r tensorRequest) bytes() int { return r.Bits / 8 * r.Elements }

// responseCache assigns slot numbers to the tensors that were reduced. All ranks add and use the
// same tensors in the same order, so their caches are equal at the beginning of each cycle.
type responseCache struct {
	capacity int
	bySlot   []tensorRequest
	used     []int // by slot: value of uses when the tensor was last reduced
	uses     int
	byName   map[string]int
}

func newResponseCache(capacity int) responseCache {
	return responseCache{capacity: max(1, capacity), byName: map[string]int{}}
}

func (c *responseCache) slotCount() int { return len(c.bySlot) }

// find returns the slot of a tensor. ok is false if the tensor is not in the cache, or was cached
// with another size.
func (c *responseCache) find(r tensorRequest) (slot int, ok bool) {
	slot, ok = c.byName[r.Name]
	return slot, ok && c.bySlot[slot] == r
}

func (c *responseCache) markUsed(slot int) {
	c.uses++
	c.used[slot] = c.uses
}

// put adds a tensor that was reduced. If the cache is full, the tensor replaces the one that
// was reduced least recently.
func (c *responseCache) put(r tensorRequest) {
	slot, ok := c.byName[r.Name]
	switch {
	case ok:
	case len(c.bySlot) < c.capacity:
		slot = len(c.bySlot)
		c.bySlot, c.used = append(c.bySlot, tensorRequest{}), append(c.used, 0)
	default:
		for i := range c.used {
			if c.used[i] < c.used[slot] { // slot is 0 at first
				slot = i
			}
		}
		delete(c.byName, c.bySlot[slot].Name)
	}
	c.bySlot[slot], c.byName[r.Name] = r, slot
	c.markUsed(slot)
}
