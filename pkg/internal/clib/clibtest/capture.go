package clibtest

import (
	"slices"

	"lockstep/pkg/internal/clib/cuda"
)

// capture collects the work of streams in a graph.
type capture struct {
	origin  *stream
	mode    cuda.CaptureMode
	thread  int
	nodes   []*node
	last    map[*stream]int
	invalid bool
}

// node is captured work, with the nodes that must run before it.
type node struct {
	op     *op
	stream *stream
	after  []int
}

type graph struct {
	name  string
	nodes []*node
}

// hold adds n to the number of graphs of each communicator that has a collective in g.
func (g *graph) hold(n int) {
	seen := map[*comm]bool{nil: true}
	for _, node := range g.nodes {
		if k := node.op.comm; !seen[k] {
			seen[k] = true
			k.hold(n)
		}
	}
}

// add appends work to a captured stream and returns the index of its node.
func (c *capture) add(s *stream, o *op, after ...int) int {
	if i, ok := c.last[s]; ok {
		after = append(after, i)
	}
	c.nodes = append(c.nodes, &node{op: o, stream: s, after: after})
	c.last[s] = len(c.nodes) - 1
	return len(c.nodes) - 1
}

// joined makes s wait for a captured event, so that s becomes part of the capture.
func (e *event) joined(s *stream) error {
	const call = "cuStreamWaitEvent"
	switch {
	case e.capture == nil:
		s.capture.invalid = true
		return fail(call, cuda.ErrorCaptureIsolation, "%s is captured, %s was recorded outside of the capture", s.name, e.name)
	case s.capture != nil && s.capture != e.capture:
		return fail(call, 902, "%s and %s belong to two captures", s.name, e.name)
	case e.capture.invalid:
		return fail(call, cuda.ErrorCaptureInvalidated, "%s", e.name)
	}
	s.capture = e.capture
	e.capture.add(s, &op{label: call}, e.index)
	return nil
}

// unsafeInCapture returns an error for calls that may wait, such as allocations, if the
// thread captures.
func (m *Machine) unsafeInCapture(call string) error {
	for _, s := range m.streams {
		c := s.capture
		if c == nil || c.mode == cuda.CaptureRelaxed || (c.mode == cuda.CaptureThreadLocal && c.thread != thread()) {
			continue
		}
		c.invalid = true
		return fail(call, cuda.ErrorCaptureUnsupported, "while %s is captured", s.name)
	}
	return nil
}

// unjoined returns a stream whose work is not joined to the origin stream at the end of the
// capture, or nil.
func (c *capture) unjoined() *stream {
	reached := make([]bool, len(c.nodes))
	var visit func(int)
	visit = func(i int) {
		if reached[i] {
			return
		}
		reached[i] = true
		for _, j := range c.nodes[i].after {
			visit(j)
		}
	}
	if i, ok := c.last[c.origin]; ok {
		visit(i)
	}
	for i, n := range c.nodes {
		if !reached[i] {
			return n.stream
		}
	}
	return nil
}

// replay runs a graph stream by stream, the last stream first. A node runs only after the
// nodes before it.
func (m *Machine) replay(g *graph) {
	defer m.enter(g)()
	done := make([]bool, len(g.nodes))
	var visit func(int)
	visit = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		for _, j := range g.nodes[i].after {
			visit(j)
		}
		if o := g.nodes[i].op; o.run != nil {
			m.perform(o)
		}
	}
	var order []*stream
	for _, n := range g.nodes {
		if !slices.Contains(order, n.stream) {
			order = append(order, n.stream)
		}
	}
	for _, s := range slices.Backward(order) {
		for i, n := range g.nodes {
			if n.stream == s {
				visit(i)
			}
		}
	}
}

func (m *Machine) bindCapture(d *cuda.Driver) {
	d.StreamBeginCapture = func(id cuda.Stream, mode cuda.CaptureMode) error {
		const call = "cuStreamBeginCapture"
		return m.do(call, true, func() error {
			s := m.byStream[id]
			switch {
			case s == nil:
				return fail(call, cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			case id == 0:
				return fail(call, cuda.ErrorCaptureUnsupported, "of the default stream")
			case s.capture != nil:
				return fail(call, cuda.ErrorIllegalState, "%s is captured already", s.name)
			}
			s.capture = &capture{origin: s, mode: mode, thread: thread(), last: map[*stream]int{}}
			m.note("%s %s, %d", call, s.name, mode)
			return nil
		})
	}
	d.StreamEndCapture = func(id cuda.Stream) (g cuda.Graph, err error) {
		err = m.do("cuStreamEndCapture", true, func() error {
			g, err = m.endCapture(id)
			return err
		})
		return g, err
	}
	d.StreamCapture = func(id cuda.Stream) (status cuda.CaptureStatus, err error) {
		err = m.do("cuStreamIsCapturing", true, func() error {
			s := m.byStream[id]
			switch {
			case s == nil:
				return fail("cuStreamIsCapturing", cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			case s.capture != nil && s.capture.invalid:
				status = cuda.CaptureInvalidated
			case s.capture != nil:
				status = cuda.CaptureActive
			}
			return nil
		})
		return status, err
	}
	m.bindGraphs(d)
}

func (m *Machine) endCapture(id cuda.Stream) (cuda.Graph, error) {
	const call = "cuStreamEndCapture"
	s := m.byStream[id]
	if s == nil {
		return 0, fail(call, cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
	}
	c := s.capture
	switch {
	case c == nil:
		return 0, fail(call, cuda.ErrorIllegalState, "%s is not captured", s.name)
	case c.origin != s:
		return 0, fail(call, cuda.ErrorCaptureUnmatched, "%s joined the capture of %s", s.name, c.origin.name)
	case c.mode != cuda.CaptureRelaxed && c.thread != thread():
		return 0, fail(call, cuda.ErrorCaptureWrongThread, "%s", s.name)
	}
	for _, o := range m.streams {
		if o.capture == c {
			o.capture = nil
		}
	}
	for _, e := range m.events {
		if e.capture == c {
			e.capture = nil
		}
	}
	if c.invalid {
		return 0, fail(call, cuda.ErrorCaptureInvalidated, "%s", s.name)
	}
	if o := c.unjoined(); o != nil {
		return 0, fail(call, cuda.ErrorCaptureUnjoined, "%s has work that %s does not wait for", o.name, s.name)
	}
	h, name := m.handle("graph")
	g := &graph{name: name, nodes: c.nodes}
	m.graphs[cuda.Graph(h)] = g
	g.hold(1)
	m.note("%s %s = %s", call, s.name, name)
	return cuda.Graph(h), nil
}

func (m *Machine) bindGraphs(d *cuda.Driver) {
	d.GraphNodeCount = func(id cuda.Graph) (n int, err error) {
		err = m.do("cuGraphGetNodes", true, func() error {
			g := m.graphs[id]
			if g == nil {
				return fail("cuGraphGetNodes", cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			}
			for _, node := range g.nodes {
				if node.op.run != nil {
					n++
				}
			}
			return nil
		})
		return n, err
	}
	d.GraphDestroy = func(id cuda.Graph) error {
		return m.do("cuGraphDestroy", true, func() error {
			if m.graphs[id] == nil {
				return fail("cuGraphDestroy", cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			}
			m.note("cuGraphDestroy %s", m.nameOf(uintptr(id)))
			m.graphs[id].hold(-1)
			delete(m.graphs, id)
			return nil
		})
	}
	d.GraphInstantiate = func(id cuda.Graph) (e cuda.GraphExec, err error) {
		err = m.do("cuGraphInstantiate", true, func() error {
			g := m.graphs[id]
			if g == nil {
				return fail("cuGraphInstantiate", cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			}
			h, name := m.handle("exec")
			e = cuda.GraphExec(h)
			m.execs[e] = &graph{name: name, nodes: slices.Clone(g.nodes)}
			m.execs[e].hold(1)
			if m.watched != nil {
				m.watched.known[m.execs[e]] = true
			}
			m.note("cuGraphInstantiate %s = %s", g.name, name)
			return nil
		})
		return e, err
	}
	d.GraphUpload = func(id cuda.GraphExec, s cuda.Stream) error {
		return m.do("cuGraphUpload", true, func() error {
			if m.execs[id] == nil || m.byStream[s] == nil {
				return fail("cuGraphUpload", cuda.ErrorInvalidHandle, "%s, %s", m.nameOf(uintptr(id)), m.streamName(s))
			}
			m.note("cuGraphUpload %s, %s", m.nameOf(uintptr(id)), m.streamName(s))
			return nil
		})
	}
	d.GraphLaunch = func(id cuda.GraphExec, s cuda.Stream) error {
		return m.do("cuGraphLaunch", true, func() error {
			g := m.execs[id]
			if g == nil {
				return fail("cuGraphLaunch", cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			}
			m.note("cuGraphLaunch %s, %s", g.name, m.streamName(s))
			return m.enqueue("cuGraphLaunch", s, &op{label: "cuGraphLaunch " + g.name, run: func() error {
				m.replay(g)
				return nil
			}})
		})
	}
	d.GraphExecDestroy = func(id cuda.GraphExec) error {
		return m.do("cuGraphExecDestroy", true, func() error {
			if m.execs[id] == nil {
				return fail("cuGraphExecDestroy", cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			}
			m.drainAll()
			m.note("cuGraphExecDestroy %s", m.nameOf(uintptr(id)))
			m.execs[id].hold(-1)
			delete(m.execs, id)
			return nil
		})
	}
}
