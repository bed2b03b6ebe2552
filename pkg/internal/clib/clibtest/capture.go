package clibtest

import (
	"slices"

	"lockstep/pkg/internal/clib/cuda"
)

// streamCapture records the operations enqueued in streams during a stream capture, to make a graph of
// them.
type streamCapture struct {
	origin  *stream
	mode    cuda.CaptureMode
	thread  int
	nodes   []*graphNode
	last    map[*stream]int // index of each stream's last node
	invalid bool            // a forbidden call was made during the capture
}

// graphNode is a captured operation. after contains the indexes of the nodes that must run before
// it.
type graphNode struct {
	op     *streamOp
	stream *stream
	after  []int
}

type capturedGraph struct {
	name  string
	nodes []*graphNode
}

// addCommunicatorGraphCounts adds n to the graph count of each communicator that has a collective in g.
func (g *capturedGraph) addCommunicatorGraphCounts(n int) {
	seen := map[*communicator]bool{nil: true}
	for _, node := range g.nodes {
		if k := node.op.comm; !seen[k] {
			seen[k] = true
			k.addGraphCount(n)
		}
	}
}

// addNode appends the operation o of stream s and returns the index of its node. o runs after
// dependencies and after the last node of s.
func (c *streamCapture) addNode(s *stream, o *streamOp, dependencies ...int) int {
	if i, ok := c.last[s]; ok {
		dependencies = append(dependencies, i)
	}
	c.nodes = append(c.nodes, &graphNode{op: o, stream: s, after: dependencies})
	c.last[s] = len(c.nodes) - 1
	return len(c.nodes) - 1
}

// addStreamToCapture makes s wait for e, an event recorded during a capture. s thereby joins that
// capture.
func (e *event) addStreamToCapture(s *stream) error {
	const call = "cuStreamWaitEvent"
	switch {
	case e.capture == nil:
		s.capture.invalid = true
		return newDriverError(call, cuda.ErrorCaptureIsolation, "%s is being captured, but %s was recorded outside the capture", s.name, e.name)
	case s.capture != nil && s.capture != e.capture:
		return newDriverError(call, 902, "%s and %s belong to different captures", s.name, e.name)
	case e.capture.invalid:
		return newDriverError(call, cuda.ErrorCaptureInvalidated, "%s", e.name)
	}
	s.capture = e.capture
	e.capture.addNode(s, &streamOp{label: call}, e.index)
	return nil
}

// checkCaptureAllows returns an error if a capture in progress forbids call, a call that may
// wait, such as an allocation. It also invalidates that capture.
func (m *Machine) checkCaptureAllows(call string) error {
	for _, s := range m.streams {
		c := s.capture
		if c == nil || c.mode == cuda.CaptureRelaxed || (c.mode == cuda.CaptureThreadLocal && c.thread != threadID()) {
			continue
		}
		c.invalid = true
		return newDriverError(call, cuda.ErrorCaptureUnsupported, "not allowed while %s is being captured", s.name)
	}
	return nil
}

// findUnjoinedStream returns a stream whose captured work the origin stream does not wait for, or
// nil if there is none. CUDA does not allow a capture to end with such a stream.
func (c *streamCapture) findUnjoinedStream() *stream {
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

// replayGraph runs the nodes of g stream by stream, starting with the stream that joined the
// capture last. Before each node, it runs the nodes on which the node depends.
func (m *Machine) replayGraph(g *capturedGraph) {
	defer m.setRunningGraph(g)()
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
			m.runOp(o)
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

func (m *Machine) simulateCaptureCalls(d *cuda.Driver) {
	d.StreamBeginCapture = func(id cuda.Stream, mode cuda.CaptureMode) error {
		const call = "cuStreamBeginCapture"
		return m.simulateCall(call, true, func() error {
			s := m.byStream[id]
			switch {
			case s == nil:
				return newDriverError(call, cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			case id == 0:
				return newDriverError(call, cuda.ErrorCaptureUnsupported, "the default stream cannot be captured")
			case s.capture != nil:
				return newDriverError(call, cuda.ErrorIllegalState, "%s is already being captured", s.name)
			}
			s.capture = &streamCapture{origin: s, mode: mode, thread: threadID(), last: map[*stream]int{}}
			m.logCall("%s %s, %d", call, s.name, mode)
			return nil
		})
	}
	d.StreamEndCapture = func(id cuda.Stream) (g cuda.Graph, err error) {
		err = m.simulateCall("cuStreamEndCapture", true, func() error {
			g, err = m.endCapture(id)
			return err
		})
		return g, err
	}
	d.StreamCapture = func(id cuda.Stream) (status cuda.CaptureStatus, err error) {
		err = m.simulateCall("cuStreamIsCapturing", true, func() error {
			s := m.byStream[id]
			switch {
			case s == nil:
				return newDriverError("cuStreamIsCapturing", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			case s.capture != nil && s.capture.invalid:
				status = cuda.CaptureInvalidated
			case s.capture != nil:
				status = cuda.CaptureActive
			}
			return nil
		})
		return status, err
	}
	m.simulateGraphCalls(d)
}

func (m *Machine) endCapture(id cuda.Stream) (cuda.Graph, error) {
	const call = "cuStreamEndCapture"
	s := m.byStream[id]
	if s == nil {
		return 0, newDriverError(call, cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
	}
	c := s.capture
	switch {
	case c == nil:
		return 0, newDriverError(call, cuda.ErrorIllegalState, "%s is not being captured", s.name)
	case c.origin != s:
		return 0, newDriverError(call, cuda.ErrorCaptureUnmatched, "%s joined the capture of %s", s.name, c.origin.name)
	case c.mode != cuda.CaptureRelaxed && c.thread != threadID():
		return 0, newDriverError(call, cuda.ErrorCaptureWrongThread, "%s", s.name)
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
		return 0, newDriverError(call, cuda.ErrorCaptureInvalidated, "%s", s.name)
	}
	if o := c.findUnjoinedStream(); o != nil {
		return 0, newDriverError(call, cuda.ErrorCaptureUnjoined, "%s has work that %s does not wait for", o.name, s.name)
	}
	h, name := m.newHandle("graph")
	g := &capturedGraph{name: name, nodes: c.nodes}
	m.graphs[cuda.Graph(h)] = g
	g.addCommunicatorGraphCounts(1)
	m.logCall("%s %s = %s", call, s.name, name)
	return cuda.Graph(h), nil
}

func (m *Machine) simulateGraphCalls(d *cuda.Driver) {
	d.GraphNodeCount = func(id cuda.Graph) (n int, err error) {
		err = m.simulateCall("cuGraphGetNodes", true, func() error {
			g := m.graphs[id]
			if g == nil {
				return newDriverError("cuGraphGetNodes", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
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
		return m.simulateCall("cuGraphDestroy", true, func() error {
			if m.graphs[id] == nil {
				return newDriverError("cuGraphDestroy", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			}
			m.logCall("cuGraphDestroy %s", m.handleName(uintptr(id)))
			m.graphs[id].addCommunicatorGraphCounts(-1)
			delete(m.graphs, id)
			return nil
		})
	}
	d.GraphInstantiate = func(id cuda.Graph) (e cuda.GraphExec, err error) {
		err = m.simulateCall("cuGraphInstantiate", true, func() error {
			g := m.graphs[id]
			if g == nil {
				return newDriverError("cuGraphInstantiate", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			}
			h, name := m.newHandle("exec")
			e = cuda.GraphExec(h)
			m.execs[e] = &capturedGraph{name: name, nodes: slices.Clone(g.nodes)}
			m.execs[e].addCommunicatorGraphCounts(1)
			if m.recording != nil {
				m.recording.instantiated[m.execs[e]] = true
			}
			m.logCall("cuGraphInstantiate %s = %s", g.name, name)
			return nil
		})
		return e, err
	}
	d.GraphUpload = func(id cuda.GraphExec, s cuda.Stream) error {
		return m.simulateCall("cuGraphUpload", true, func() error {
			if m.execs[id] == nil || m.byStream[s] == nil {
				return newDriverError("cuGraphUpload", cuda.ErrorInvalidHandle, "%s, %s", m.handleName(uintptr(id)), m.streamName(s))
			}
			m.logCall("cuGraphUpload %s, %s", m.handleName(uintptr(id)), m.streamName(s))
			return nil
		})
	}
	d.GraphLaunch = func(id cuda.GraphExec, s cuda.Stream) error {
		return m.simulateCall("cuGraphLaunch", true, func() error {
			g := m.execs[id]
			if g == nil {
				return newDriverError("cuGraphLaunch", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			}
			m.logCall("cuGraphLaunch %s, %s", g.name, m.streamName(s))
			return m.enqueueStreamOp("cuGraphLaunch", s, &streamOp{label: "cuGraphLaunch " + g.name, run: func() error {
				m.replayGraph(g)
				return nil
			}})
		})
	}
	d.GraphExecDestroy = func(id cuda.GraphExec) error {
		return m.simulateCall("cuGraphExecDestroy", true, func() error {
			if m.execs[id] == nil {
				return newDriverError("cuGraphExecDestroy", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			}
			m.drainAllStreams()
			m.logCall("cuGraphExecDestroy %s", m.handleName(uintptr(id)))
			m.execs[id].addCommunicatorGraphCounts(-1)
			delete(m.execs, id)
			return nil
		})
	}
}
