package clibtest

import (
	"errors"
	"slices"

	"lockstep/pkg/internal/clib/cuda"
)

// op is one operation in a stream. Exactly one of run, record and wait is set.
type op struct {
	label  string
	cost   float64 // microseconds
	run    func() error
	record *event
	wait   *event
	turn   uint64 // number of the event's recording that is meant
	comm   *comm  // communicator of a collective
}

type stream struct {
	id       cuda.Stream
	name     string
	blocking bool // synchronizes with the legacy default stream
	queue    []*op
	capture  *capture
}

type event struct {
	name    string
	timed   bool
	turn    uint64             // number of recordings so far
	pending map[uint64]*stream // recordings that have not run yet, with their streams
	at      float64            // time when the last recording ran
	capture *capture           // the capture in which it was last recorded
	index   int                // index of its node there
}

func (m *Machine) streamName(s cuda.Stream) string {
	if st := m.byStream[s]; st != nil {
		return st.name
	}
	return m.nameOf(uintptr(s))
}

// enqueue appends an operation to a stream, or to the graph that the stream captures.
func (m *Machine) enqueue(call string, id cuda.Stream, o *op) error {
	s := m.byStream[id]
	if s == nil {
		return fail(call, cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
	}
	if s.capture != nil {
		if s.capture.invalid {
			return fail(call, cuda.ErrorCaptureInvalidated, "%s", s.name)
		}
		s.capture.add(s, o)
		return nil
	}
	if err := m.orderLegacy(call, s); err != nil {
		return err
	}
	s.queue = append(s.queue, o)
	if m.opt.Eager {
		m.drain(s)
	}
	return nil
}

// orderLegacy orders new work in s after the work in the legacy default stream. If s is the
// legacy default stream, the new work comes after all blocking streams. While a blocking
// stream is captured, the legacy stream cannot be used (CUDA driver API, "Stream
// synchronization behavior").
func (m *Machine) orderLegacy(call string, s *stream) error {
	legacy := m.byStream[0]
	if s != legacy {
		if s.blocking {
			m.drain(legacy)
		}
		return nil
	}
	for _, other := range m.streams {
		switch {
		case !other.blocking:
		case other.capture != nil:
			other.capture.invalid = true
			return fail(call, cuda.ErrorCaptureImplicit, "in the legacy default stream while %s, which synchronizes with it, is captured", other.name)
		default:
			m.drain(other)
		}
	}
	return nil
}

// drain runs the work in a stream, and only that work of other streams for which it waits.
func (m *Machine) drain(s *stream) {
	for len(s.queue) > 0 {
		m.step(s)
	}
}

// step runs the first operation in a stream.
func (m *Machine) step(s *stream) {
	o := s.queue[0]
	if o.wait != nil {
		for other := o.wait.pending[o.turn]; other != nil; other = o.wait.pending[o.turn] {
			m.step(other)
		}
	}
	s.queue = s.queue[1:]
	switch {
	case o.record != nil:
		delete(o.record.pending, o.turn)
		o.record.at = m.clock
	case o.run != nil:
		m.perform(o)
	}
}

// perform runs an operation and checks that it has not written outside its memory.
func (m *Machine) perform(o *op) {
	if m.lost != nil {
		return
	}
	begin := m.clock
	m.clock += o.cost
	err := o.run()
	m.watch(o.label, begin)
	if err == nil {
		if damage := m.memory.intact(); damage != nil {
			err = fail(o.label, cuda.ErrorIllegalAddress, "%v", damage)
		}
	}
	if err == nil {
		return
	}
	var e *cuda.Error
	if !errors.As(err, &e) {
		e = &cuda.Error{Call: o.label, Result: cuda.ErrorLaunchFailed, Detail: err.Error()}
	}
	m.lost = e
}

// drainAll runs all work, the newest stream first.
func (m *Machine) drainAll() {
	for _, s := range slices.Backward(m.streams) {
		m.drain(s)
	}
}

// settled returns the error of a call that has waited.
func (m *Machine) settled(call string) error {
	if m.lost == nil {
		return nil
	}
	return m.again(call)
}

// waits returns an error for a call that waits for a stream which is being captured.
func (m *Machine) waits(call string, s *stream) error {
	if s.capture == nil {
		return nil
	}
	s.capture.invalid = true
	return fail(call, cuda.ErrorCaptureUnsupported, "of %s, which is captured", s.name)
}

func (m *Machine) bindStreams(d *cuda.Driver) {
	d.StreamCreate = func(flags uint32, priority int) (id cuda.Stream, err error) {
		err = m.do("cuStreamCreateWithPriority", true, func() error {
			if flags&^cuda.StreamNonBlocking != 0 {
				return fail("cuStreamCreateWithPriority", cuda.ErrorInvalidValue, "with flags %d", flags)
			}
			h, name := m.handle("stream")
			id = cuda.Stream(h)
			s := &stream{id: id, name: name, blocking: flags&cuda.StreamNonBlocking == 0}
			m.streams, m.byStream[id] = append(m.streams, s), s
			m.note("cuStreamCreateWithPriority %d, %d = %s", flags, priority, name)
			return nil
		})
		return id, err
	}
	d.StreamPriorities = func() (least, greatest int, err error) {
		return 0, -5, m.do("cuCtxGetStreamPriorityRange", true, func() error { return nil })
	}
	with := func(call string, id cuda.Stream, f func(*stream) error) error {
		return m.do(call, true, func() error {
			s := m.byStream[id]
			if s == nil {
				return fail(call, cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			}
			return f(s)
		})
	}
	d.StreamDestroy = func(id cuda.Stream) error {
		return with("cuStreamDestroy", id, func(s *stream) error {
			m.drain(s)
			m.note("cuStreamDestroy %s", s.name)
			delete(m.byStream, id)
			m.streams = slices.DeleteFunc(m.streams, func(o *stream) bool { return o == s })
			return nil
		})
	}
	d.StreamSynchronize = func(id cuda.Stream) error {
		return with("cuStreamSynchronize", id, func(s *stream) error {
			if err := m.waits("cuStreamSynchronize", s); err != nil {
				return err
			}
			if id == 0 {
				if err := m.orderLegacy("cuStreamSynchronize", s); err != nil {
					return err
				}
			}
			m.note("cuStreamSynchronize %s", s.name)
			m.drain(s)
			return m.settled("cuStreamSynchronize")
		})
	}
	d.StreamQuery = func(id cuda.Stream) (done bool, err error) {
		err = with("cuStreamQuery", id, func(s *stream) error {
			if err := m.waits("cuStreamQuery", s); err != nil {
				return err
			}
			// Work for which nobody has waited is reported as unfinished once, and then as
			// done.
			done = len(s.queue) == 0
			m.drain(s)
			return m.settled("cuStreamQuery")
		})
		return done && err == nil, err
	}
	d.StreamWaitEvent = func(id cuda.Stream, e cuda.Event) error {
		return with("cuStreamWaitEvent", id, func(s *stream) error {
			ev := m.events[e]
			if ev == nil {
				return fail("cuStreamWaitEvent", cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(e)))
			}
			m.note("cuStreamWaitEvent %s, %s", s.name, ev.name)
			if ev.capture != nil || s.capture != nil {
				return ev.joined(s)
			}
			return m.enqueue("cuStreamWaitEvent", id, &op{label: "cuStreamWaitEvent", wait: ev, turn: ev.turn})
		})
	}
	d.CtxSynchronize = func() error {
		return m.do("cuCtxSynchronize", true, func() error {
			for _, s := range m.streams {
				if err := m.waits("cuCtxSynchronize", s); err != nil {
					return err
				}
			}
			m.note("cuCtxSynchronize")
			m.drainAll()
			return m.settled("cuCtxSynchronize")
		})
	}
}

func (m *Machine) bindEvents(d *cuda.Driver) {
	d.EventCreate = func(flags uint32) (id cuda.Event, err error) {
		err = m.do("cuEventCreate", true, func() error {
			h, name := m.handle("event")
			id = cuda.Event(h)
			m.events[id] = &event{name: name, timed: flags&cuda.EventDisableTiming == 0, pending: map[uint64]*stream{}}
			m.note("cuEventCreate %d = %s", flags, name)
			return nil
		})
		return id, err
	}
	with := func(call string, id cuda.Event, f func(*event) error) error {
		return m.do(call, true, func() error {
			e := m.events[id]
			if e == nil {
				return fail(call, cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(id)))
			}
			return f(e)
		})
	}
	d.EventDestroy = func(id cuda.Event) error {
		return with("cuEventDestroy", id, func(e *event) error {
			m.note("cuEventDestroy %s", e.name)
			delete(m.events, id)
			return nil
		})
	}
	d.EventRecord = func(id cuda.Event, sid cuda.Stream) error {
		return with("cuEventRecord", id, func(e *event) error {
			s := m.byStream[sid]
			if s == nil {
				return fail("cuEventRecord", cuda.ErrorInvalidHandle, "%s", m.nameOf(uintptr(sid)))
			}
			m.note("cuEventRecord %s, %s", e.name, s.name)
			if s.capture != nil {
				if s.capture.invalid {
					return fail("cuEventRecord", cuda.ErrorCaptureInvalidated, "%s", s.name)
				}
				e.capture, e.index = s.capture, s.capture.add(s, &op{label: "record " + e.name, record: e})
				return nil
			}
			e.capture = nil
			e.turn++
			e.pending[e.turn] = s
			return m.enqueue("cuEventRecord", sid, &op{label: "cuEventRecord", record: e, turn: e.turn})
		})
	}
	reach := func(call string, id cuda.Event) (late bool, err error) {
		err = with(call, id, func(e *event) error {
			if e.capture != nil {
				return fail(call, 907, "%s was recorded in a capture", e.name)
			}
			for s := e.pending[e.turn]; s != nil; s = e.pending[e.turn] {
				late = true
				m.step(s)
			}
			return m.settled(call)
		})
		return late, err
	}
	d.EventSynchronize = func(id cuda.Event) error {
		m.mu.Lock()
		if e := m.events[id]; e != nil {
			m.note("cuEventSynchronize %s", e.name)
		}
		m.mu.Unlock()
		_, err := reach("cuEventSynchronize", id)
		return err
	}
	d.EventQuery = func(id cuda.Event) (bool, error) {
		late, err := reach("cuEventQuery", id)
		return !late && err == nil, err
	}
	d.EventElapsed = func(start, end cuda.Event) (ms float32, err error) {
		const call = "cuEventElapsedTime"
		err = m.do(call, true, func() error {
			a, b := m.events[start], m.events[end]
			switch {
			case a == nil || b == nil || !a.timed || !b.timed || a.turn == 0 || b.turn == 0:
				return fail(call, cuda.ErrorInvalidHandle, "of %s and %s: both must be timed and recorded", m.nameOf(uintptr(start)), m.nameOf(uintptr(end)))
			case a.pending[a.turn] != nil || b.pending[b.turn] != nil:
				return fail(call, cuda.ErrorNotReady, "")
			}
			ms = float32((b.at - a.at) / 1e3)
			return nil
		})
		return ms, err
	}
}
