package topology

import "slices"

// maxSpareCores is the largest number of cores that a worker gets in addition to one core per
// thread: one for the exchange of gradients, and one for the loader and the garbage collector.
const maxSpareCores = 2

// cpuUnit is a group of CPUs that DivideCores assigns to the same worker: all CPUs of a core, or
// a single CPU.
type cpuUnit []int

// DivideCores divides the machine's cores among workers that have the given number of
// threads each. The result contains the CPUs of each worker, in ascending order.
//
// A worker gets a core with all its SMT siblings for each thread. All workers also get the
// same number of spare cores, at most two, if the cores of each worker still fit on one node.
// The cores of a worker are neighbors on one node. The nodes get workers in proportion to
// their cores, and workers with consecutive numbers share a node. If no node has enough cores
// left, a worker gets cores of several nodes. If the machine has fewer cores than threads,
// each thread gets one CPU instead of a core. If it has fewer CPUs than threads, the CPUs are
// assigned to the threads round-robin.
func (m Machine) DivideCores(workers, threads int) [][]int {
	return m.divideCoresWithSpare(workers, threads, maxSpareCores)
}

// SelectCores returns the CPUs that DivideCores would assign to all workers together without
// spare cores, in ascending order.
func (m Machine) SelectCores(workers, threads int) []int {
	var units []cpuUnit
	for _, cpus := range m.divideCoresWithSpare(workers, threads, 0) {
		units = append(units, cpus)
	}
	return slices.Compact(flattenUnits(units)) // of several threads for each CPU
}

func (m Machine) divideCoresWithSpare(workers, threads, maxSpare int) [][]int {
	if len(m.CPUs) == 0 || workers < 1 || threads < 1 {
		return nil
	}
	for _, nodes := range [][][]cpuUnit{m.groupUnitsByNode(func(c CPU) int { return c.Core }), m.groupUnitsByNode(func(c CPU) int { return c.ID })} {
		for spare := maxSpare; spare >= 0; spare-- {
			if parts := placeWorkersOnSingleNodes(nodes, workers, threads+spare); parts != nil {
				return parts
			}
		}
		if parts := placeWorkersAcrossNodes(nodes, workers, threads); parts != nil {
			return parts
		}
	}
	return m.placeThreadsRoundRobin(workers, threads)
}

// AssignNUMANodes gives each of the workers all CPUs of one node. The nodes get workers in
// proportion to their CPUs, and workers with consecutive numbers share a node. It returns
// nil if no node has as many CPUs as a worker has threads.
func (m Machine) AssignNUMANodes(workers, threads int) [][]int {
	nodes := m.groupUnitsByNode(func(c CPU) int { return c.ID })
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
	for i, count := range apportionWorkers(workers, sizes, most) {
		for range count {
			parts = append(parts, flattenUnits(nodes[i]))
		}
	}
	return parts
}

// groupUnitsByNode returns the units of each node. CPUs of a node for which key returns the same
// number form a unit.
func (m Machine) groupUnitsByNode(key func(CPU) int) [][]cpuUnit {
	var nodes [][]cpuUnit
	for i, c := range m.CPUs { // sorted by node, core and ID
		switch {
		case i == 0 || c.Node != m.CPUs[i-1].Node:
			nodes = append(nodes, []cpuUnit{{c.ID}})
		case key(c) != key(m.CPUs[i-1]):
			nodes[len(nodes)-1] = append(nodes[len(nodes)-1], cpuUnit{c.ID})
		default:
			last := nodes[len(nodes)-1]
			last[len(last)-1] = append(last[len(last)-1], c.ID)
		}
	}
	return nodes
}

// placeWorkersOnSingleNodes assigns size neighboring units of one node to each worker. It returns
// nil if the nodes do not have enough units.
func placeWorkersOnSingleNodes(nodes [][]cpuUnit, workers, size int) [][]int {
	sizes, most, room := make([]int, len(nodes)), make([]int, len(nodes)), 0
	for i, n := range nodes {
		sizes[i], most[i] = len(n), len(n)/size
		room += most[i]
	}
	if room < workers {
		return nil
	}
	var parts [][]int
	for i, count := range apportionWorkers(workers, sizes, most) {
		for k := range count {
			parts = append(parts, flattenUnits(nodes[i][k*size:(k+1)*size]))
		}
	}
	return parts
}

// placeWorkersAcrossNodes is like placeWorkersOnSingleNodes, but the last workers may get units of several
// nodes.
func placeWorkersAcrossNodes(nodes [][]cpuUnit, workers, size int) [][]int {
	var parts [][]int
	var left []cpuUnit
	for _, n := range nodes {
		for ; len(n) >= size && len(parts) < workers; n = n[size:] {
			parts = append(parts, flattenUnits(n[:size]))
		}
		left = append(left, n...)
	}
	for ; len(parts) < workers; left = left[size:] {
		if len(left) < size {
			return nil
		}
		parts = append(parts, flattenUnits(left[:size]))
	}
	return parts
}

// placeThreadsRoundRobin assigns CPUs to the threads of all workers in turn. It is used if there are
// more threads than CPUs.
func (m Machine) placeThreadsRoundRobin(workers, threads int) [][]int {
	var all []cpuUnit
	for _, n := range m.groupUnitsByNode(func(c CPU) int { return c.ID }) {
		all = append(all, n...)
	}
	parts := make([][]int, workers)
	for w := range parts {
		var own []cpuUnit
		for t := range min(threads, len(all)) {
			own = append(own, all[(w*threads+t)%len(all)])
		}
		parts[w] = flattenUnits(own)
	}
	return parts
}

// apportionWorkers returns the number of workers of each node, in proportion to the sizes of
// the nodes (d'Hondt's method). Node i gets at most most[i] workers. The sum of most must be at
// least workers.
func apportionWorkers(workers int, sizes, most []int) []int {
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

// flattenUnits returns the CPUs in ascending order.
func flattenUnits(units []cpuUnit) []int {
	cpus := slices.Concat(units...)
	slices.Sort(cpus)
	return cpus
}
