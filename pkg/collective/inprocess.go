package collective

import (
	"lockstep/pkg/collective/internal/segment"
)

// InProcess returns one group per rank for n ranks that are goroutines of this process. The
// ranks exchange data as with SharedMemory, but through ordinary memory. Strategies with
// several replicas in a process use these groups. If n is below 1, there is one rank.
func InProcess(n int) []Group { return InProcessWith(n, Options{}) }

// InProcessWith is InProcess with options, which must be valid.
func InProcessWith(n int, o Options) []Group { return newInProcessGroups(max(n, 1), o) }

func newInProcessGroups(n int, o Options) []Group {
	o = o.withDefaults()
	memory := segment.NewHeapSegment(n, o.ChunkBytes)
	b := segment.NewGoroutineNotifier(memory)
	groups := make([]Group, n)
	for rank := range groups {
		groups[rank] = &memoryGroup{
			name: "in-process", rank: rank, size: n,
			memory: memory, control: memory.ControlBlock(rank), notifier: b, options: o,
			algorithm: newAlgorithmSelector(o, AlgorithmDirect, rank, n),
		}
	}
	return groups
}

// Single returns a group of one rank, whose operations return at once.
func Single() Group {
	g := newInProcessGroups(1, Options{ChunkBytes: 1})[0].(*memoryGroup)
	g.name = "none"
	return g
}
