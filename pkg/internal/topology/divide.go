package topology

import "slices"

// maxSpareUnits is how many cores more than threads a worker gets, if there are enough:
// one for the exchange of gradients, and one for the loader and the garbage collector.
const maxSpareUnits = 2

// A unit is what DivideCores gives to a worker as a whole: the CPUs of a core, or one CPU.
type unit []int

// DivideCores divides the machine's cores among workers that have the given number of
// threads each. The result has the CPUs of each worker, in ascending order.
//
// A worker gets one core with all its SMT siblings for each thread, and up to two more, the
// same number for all workers, if this does not split a worker. The cores of a worker are
// neighbors on one node. The nodes get workers in proportion to their cores, and workers
// with consecutive numbers share a node. If no node has enough cores left, a worker gets
// cores of several. If the machine has fewer cores than threads, each thread gets one CPU,
// and if it has fewer CPUs, workers share CPUs in turn.
func (m Machine) DivideCores(workers, threads int) [][]int {
	if len(m.CPUs) == 0 || workers < 1 || threads < 1 {
		return nil
	}
	for _, nodes := range [][][]unit{m.units(func(c CPU) int { return c.Core }), m.units(func(c CPU) int { return c.ID })} {
		for spare := maxSpareUnits; spare >= 0; spare-- {
			if parts := placeWhole(nodes, workers, threads+spare); parts != nil {
				return parts
			}
		}
		if parts := placeSplit(nodes, workers, threads); parts != nil {
			return parts
		}
	}
	return m.placeInTurn(workers, threads)
}

// DivideNodes gives each of the workers all CPUs of one node. The nodes get workers in
// proportion to their CPUs, and workers with consecutive numbers share a node. It returns
// nil if no node has as many CPUs as a worker has threads.
func (m Machine) DivideNodes(workers, threads int) [][]int {
	nodes := m.units(func(c CPU) int { return c.ID })
	sizes, most := make([]int, len(nodes)), make([]int, len(nodes))
	room := 0
	for i, n := range nodes {
		sizes[i], most[i] = len(n), len(n)/max(1, threads)
		room += most[i]
	}
	if room == 0 {
		return nil
	}
	if room < workers { // some workers must share the CPUs of a node
		for i := range most {
			if most[i] > 0 {
				most[i] = workers
			}
		}
	}
	var parts [][]int
	for i, count := range apportion(workers, sizes, most) {
		for range count {
			parts = append(parts, join(nodes[i]))
		}
	}
	return parts
}

// units returns the units of each node. CPUs with the same key are one unit.
func (m Machine) units(key func(CPU) int) [][]unit {
	var nodes [][]unit
	for i, c := range m.CPUs { // sorted by node, core and ID
		switch {
		case i == 0 || c.Node != m.CPUs[i-1].Node:
			nodes = append(nodes, []unit{{c.ID}})
		case key(c) != key(m.CPUs[i-1]):
			nodes[len(nodes)-1] = append(nodes[len(nodes)-1], unit{c.ID})
		default:
			last := nodes[len(nodes)-1]
			last[len(last)-1] = append(last[len(last)-1], c.ID)
		}
	}
	return nodes
}

// placeWhole gives each worker size neighboring units of one node. It returns nil if there
// is not enough room.
func placeWhole(nodes [][]unit, workers, size int) [][]int {
	sizes, most, room := make([]int, len(nodes)), make([]int, len(nodes)), 0
	for i, n := range nodes {
		sizes[i], most[i] = len(n), len(n)/size
		room += most[i]
	}
	if room < workers {
		return nil
	}
	var parts [][]int
	for i, count := range apportion(workers, sizes, most) {
		for k := range count {
			parts = append(parts, join(nodes[i][k*size:(k+1)*size]))
		}
	}
	return parts
}

// placeSplit is placeWhole for the case that some workers must get units of several nodes.
// Those workers are the last ones.
func placeSplit(nodes [][]unit, workers, size int) [][]int {
	var parts [][]int
	var left []unit
	for _, n := range nodes {
		for ; len(n) >= size && len(parts) < workers; n = n[size:] {
			parts = append(parts, join(n[:size]))
		}
		left = append(left, n...)
	}
	for ; len(parts) < workers; left = left[size:] {
		if len(left) < size {
			return nil
		}
		parts = append(parts, join(left[:size]))
	}
	return parts
}

// placeInTurn gives the CPUs to the threads of all workers in turn, so that every CPU has
// about the same number of threads. It is for more threads than CPUs.
func (m Machine) placeInTurn(workers, threads int) [][]int {
	var all []unit
	for _, n := range m.units(func(c CPU) int { return c.ID }) {
		all = append(all, n...)
	}
	parts := make([][]int, workers)
	for w := range parts {
		var own []unit
		for t := range min(threads, len(all)) {
			own = append(own, all[(w*threads+t)%len(all)])
		}
		parts[w] = join(own)
	}
	return parts
}

// apportion divides workers among nodes in proportion to their sizes, by the method of
// d'Hondt, with at most most[i] workers on node i. The sum of most is at least workers.
func apportion(workers int, sizes, most []int) []int {
	counts := make([]int, len(sizes))
	for range workers {
		best := -1
		for i := range sizes {
			if counts[i] == most[i] {
				continue
			}
			if best < 0 {
				best = i
				continue
			}
			// The largest size/(count+1) wins, then the smallest count. The products avoid fractions.
			a, b := sizes[i]*(counts[best]+1), sizes[best]*(counts[i]+1)
			if a > b || a == b && counts[i] < counts[best] {
				best = i
			}
		}
		counts[best]++
	}
	return counts
}

// join returns the CPUs of the units in ascending order.
func join(units []unit) []int {
	cpus := slices.Concat(units...)
	slices.Sort(cpus)
	return cpus
}
