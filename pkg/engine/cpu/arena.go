package cpu

import "sort"

// interval is a buffer that is needed from step first to step last, both included.
type interval struct {
	size        int // floats
	first, last int
}

// packIntervals gives each interval an offset in one arena, so that two that
// are alive at the same step never overlap, and returns the arena's size. Large
// buffers are placed first, each at the lowest offset that is free throughout
// its life (greedy by size; Pisarchyk and Lee, Efficient Memory Management for
// Deep Neural Net Inference, arXiv:2001.03288, 2020, section 5.2).
func packIntervals(list []interval) (offsets []int, total int) {
	offsets = make([]int, len(list))
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return list[order[a]].size > list[order[b]].size })
	var placed []int // by offset
	for _, i := range order {
		at := 0
		for _, j := range placed {
			if list[j].last < list[i].first || list[i].last < list[j].first {
				continue
			}
			if at+list[i].size <= offsets[j] {
				break
			}
			at = max(at, offsets[j]+list[j].size)
		}
		offsets[i] = at
		total = max(total, at+list[i].size)
		k := sort.Search(len(placed), func(k int) bool { return offsets[placed[k]] > at })
		placed = append(placed, 0)
		copy(placed[k+1:], placed[k:])
		placed[k] = i
	}
	return offsets, total
}
