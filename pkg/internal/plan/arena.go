package plan

import "sort"

// BufferLifetime describes a buffer: its size, in any unit, and the steps First to Last,
// inclusive, in which it is in use.
type BufferLifetime struct{ Size, First, Last int }

// LayOutArena assigns each buffer an offset in one arena so that buffers with overlapping
// lifetimes do not overlap in memory, and returns the size of the arena. It places large
// buffers first, each at the lowest offset that is free during its lifetime (greedy by
// size; Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference,
// arXiv:2001.03288, 2020, section 5.2). If all sizes are multiples of a number, the offsets
// are too.
func LayOutArena(list []BufferLifetime) (offsets []int, total int) {
	offsets = make([]int, len(list))
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return list[order[a]].Size > list[order[b]].Size })
	var placed []int // indexes of placed intervals, sorted by offset
	for _, i := range order {
		at := 0
		for _, j := range placed {
			if list[j].Last < list[i].First || list[i].Last < list[j].First {
				continue
			}
			if at+list[i].Size <= offsets[j] {
				break
			}
			at = max(at, offsets[j]+list[j].Size)
		}
		offsets[i] = at
		total = max(total, at+list[i].Size)
		k := sort.Search(len(placed), func(k int) bool { return offsets[placed[k]] > at })
		placed = append(placed, 0)
		copy(placed[k+1:], placed[k:])
		placed[k] = i
	}
	return offsets, total
}
