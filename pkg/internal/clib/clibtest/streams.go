package clibtest

import (
	"errors"
	"slices"

	"lockstep/pkg/internal/clib/cuda"
)

// streamOp is one operation in a stream. Exactly one of run, record and wait is set.
type streamOp struct {
	label     string
	cost      float64 // microseconds
	run       func() error
	record    *event
	wait      *event
	recording uint64        // for record and wait: number of the event's recording
	comm      *communicator // communicator of a collective
}

type stream struct {
	id       cuda.Stream
	name     string
	blocking bool // synchronizes with the legacy default stream
	queue    []*streamOp
	capture  *streamCapture
}

type event struct {
	name      string
	timed     bool
	recording uint64             // number of recordings so far
	pending   map[uint64]*stream // recordings that have not run yet, with their streams
	at        float64            // time of the last recording that ran, in microseconds
	capture   *streamCapture     // the capture in which it was last recorded
	index     int                // index of its node in that capture
}

func (m *Machine) streamName(s cuda.Stream) string {
	if st := m.byStream[s]; st != nil {
		return st.name
	}
	return m.handleName(uintptr(s))
}

// enqueueStreamOp appends o to the stream, or to its capture if the stream is being captured.
func (m *Machine) enqueueStreamOp(call string, id cuda.Stream, o *streamOp) error {
	s := m.byStream[id]
	if s == nil {
		return newDriverError(call, cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
	}
	if s.capture != nil {
		if s.capture.invalid {
			return newDriverError(call, cuda.ErrorCaptureInvalidated, "%s", s.name)
		}
		s.capture.addNode(s, o)
		return nil
	}
	if err := m.orderWithLegacyStream(call, s); err != nil {
		return err
	}
	s.queue = append(s.queue, o)
	return nil
}

// orderWithLegacyStream applies CUDA's rules for the legacy default stream. New work in s runs
// after the work in the legacy default stream; new work in the legacy default stream runs after
// the work in all blocking streams. While a blocking stream is captured, the legacy stream cannot
// be used (CUDA driver API, "Stream synchronization behavior").
func (m *Machine) orderWithLegacyStream(call string, s *stream) error {
	legacy := m.byStream[0]
	if s != legacy {
		if s.blocking {
			m.drainStream(legacy)
		}
		return nil
	}
	for _, other := range m.streams {
		switch {
		case !other.blocking:
		case other.capture != nil:
			other.capture.invalid = true
			return newDriverError(call, cuda.ErrorCaptureImplicit, "the legacy default stream cannot be used while %s, which synchronizes with it, is being captured", other.name)
		default:
			m.drainStream(other)
		}
	}
	return nil
}

func (m *Machine) drainStream(s *stream) {
	for len(s.queue) > 0 {
		m.runNextOp(s)
	}
}

// runNextOp runs the first operation in a stream. If the operation waits for an event, runNextOp
// first runs other streams until the event is recorded.
func (m *Machine) runNextOp(s *stream) {
	o := s.queue[0]
	if o.wait != nil {
		for other := o.wait.pending[o.recording]; other != nil; other = o.wait.pending[o.recording] {
			m.runNextOp(other)
		}
	}
	s.queue = s.queue[1:]
	switch {
	case o.record != nil:
		delete(o.record.pending, o.recording)
		o.record.at = m.clock
	case o.run != nil:
		m.runOp(o)
	}
}

// runOp runs an operation and advances the clock by its cost. The device is lost if the
// operation returns an error or has written outside the allocations.
func (m *Machine) runOp(o *streamOp) {
	if m.lost != nil {
		return
	}
	begin := m.clock
	m.clock += o.cost
	err := o.run()
	m.recordKernel(o.label, begin)
	if err == nil {
		if damage := m.memory.checkGuardBytes(); damage != nil {
			err = newDriverError(o.label, cuda.ErrorIllegalAddress, "%v", damage)
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

func (m *Machine) drainAllStreams() {
	for _, s := range slices.Backward(m.streams) {
		m.drainStream(s)
	}
}

func (m *Machine) checkDeviceNotLost(call string) error {
	if m.lost == nil {
		return nil
	}
	return m.newDeviceLostError(call)
}

// checkStreamNotCaptured returns an error and invalidates the capture if s is being captured. Calls
// that wait for a stream check this first.
func (m *Machine) checkStreamNotCaptured(call string, s *stream) error {
	if s.capture == nil {
		return nil
	}
	s.capture.invalid = true
	return newDriverError(call, cuda.ErrorCaptureUnsupported, "%s is being captured", s.name)
}

func (m *Machine) simulateStreamCalls(d *cuda.Driver) {
	d.StreamCreate = func(flags uint32, priority int) (id cuda.Stream, err error) {
		err = m.simulateCall("cuStreamCreateWithPriority", true, func() error {
			if flags&^cuda.StreamNonBlocking != 0 {
				return newDriverError("cuStreamCreateWithPriority", cuda.ErrorInvalidValue, "invalid flags %d", flags)
			}
			h, name := m.newHandle("stream")
			id = cuda.Stream(h)
			s := &stream{id: id, name: name, blocking: flags&cuda.StreamNonBlocking == 0}
			m.streams, m.byStream[id] = append(m.streams, s), s
			m.logCall("cuStreamCreateWithPriority %d, %d = %s", flags, priority, name)
			return nil
		})
		return id, err
	}
	d.StreamPriorities = func() (least, greatest int, err error) {
		return 0, -5, m.simulateCall("cuCtxGetStreamPriorityRange", true, func() error { return nil })
	}
	doWithStream := func(call string, id cuda.Stream, f func(*stream) error) error {
		return m.simulateCall(call, true, func() error {
			s := m.byStream[id]
			if s == nil {
				return newDriverError(call, cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			}
			return f(s)
		})
	}
	d.StreamDestroy = func(id cuda.Stream) error {
		return doWithStream("cuStreamDestroy", id, func(s *stream) error {
			m.drainStream(s)
			m.logCall("cuStreamDestroy %s", s.name)
			delete(m.byStream, id)
			m.streams = slices.DeleteFunc(m.streams, func(o *stream) bool { return o == s })
			return nil
		})
	}
	d.StreamSynchronize = func(id cuda.Stream) error {
		return doWithStream("cuStreamSynchronize", id, func(s *stream) error {
			if err := m.checkStreamNotCaptured("cuStreamSynchronize", s); err != nil {
				return err
			}
			if id == 0 {
				if err := m.orderWithLegacyStream("cuStreamSynchronize", s); err != nil {
					return err
				}
			}
			m.logCall("cuStreamSynchronize %s", s.name)
			m.drainStream(s)
			return m.checkDeviceNotLost("cuStreamSynchronize")
		})
	}
	d.StreamQuery = func(id cuda.Stream) (done bool, err error) {
		err = doWithStream("cuStreamQuery", id, func(s *stream) error {
			if err := m.checkStreamNotCaptured("cuStreamQuery", s); err != nil {
				return err
			}
			// Work for which nobody has waited is reported as unfinished once, and then as
			// done.
			done = len(s.queue) == 0
			m.drainStream(s)
			return m.checkDeviceNotLost("cuStreamQuery")
		})
		return done && err == nil, err
	}
	d.StreamWaitEvent = func(id cuda.Stream, e cuda.Event) error {
		return doWithStream("cuStreamWaitEvent", id, func(s *stream) error {
			ev := m.events[e]
			if ev == nil {
				return newDriverError("cuStreamWaitEvent", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(e)))
			}
			m.logCall("cuStreamWaitEvent %s, %s", s.name, ev.name)
			if ev.capture != nil || s.capture != nil {
				return ev.addStreamToCapture(s)
			}
			return m.enqueueStreamOp("cuStreamWaitEvent", id, &streamOp{label: "cuStreamWaitEvent", wait: ev, recording: ev.recording})
		})
	}
	d.CtxSynchronize = func() error {
		return m.simulateCall("cuCtxSynchronize", true, func() error {
			for _, s := range m.streams {
				if err := m.checkStreamNotCaptured("cuCtxSynchronize", s); err != nil {
					return err
				}
			}
			m.logCall("cuCtxSynchronize")
			m.drainAllStreams()
			return m.checkDeviceNotLost("cuCtxSynchronize")
		})
	}
}

func (m *Machine) simulateEventCalls(d *cuda.Driver) {
	d.EventCreate = func(flags uint32) (id cuda.Event, err error) {
		err = m.simulateCall("cuEventCreate", true, func() error {
			h, name := m.newHandle("event")
			id = cuda.Event(h)
			m.events[id] = &event{name: name, timed: flags&cuda.EventDisableTiming == 0, pending: map[uint64]*stream{}}
			m.logCall("cuEventCreate %d = %s", flags, name)
			return nil
		})
		return id, err
	}
	doWithEvent := func(call string, id cuda.Event, f func(*event) error) error {
		return m.simulateCall(call, true, func() error {
			e := m.events[id]
			if e == nil {
				return newDriverError(call, cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			}
			return f(e)
		})
	}
	d.EventDestroy = func(id cuda.Event) error {
		return doWithEvent("cuEventDestroy", id, func(e *event) error {
			m.logCall("cuEventDestroy %s", e.name)
			delete(m.events, id)
			return nil
		})
	}
	d.EventRecord = func(id cuda.Event, sid cuda.Stream) error {
		return doWithEvent("cuEventRecord", id, func(e *event) error {
			s := m.byStream[sid]
			if s == nil {
				return newDriverError("cuEventRecord", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(sid)))
			}
			m.logCall("cuEventRecord %s, %s", e.name, s.name)
			if s.capture != nil {
				if s.capture.invalid {
					return newDriverError("cuEventRecord", cuda.ErrorCaptureInvalidated, "%s", s.name)
				}
				e.capture, e.index = s.capture, s.capture.addNode(s, &streamOp{label: "record " + e.name, record: e})
				return nil
			}
			e.capture = nil
			e.recording++
			e.pending[e.recording] = s
			return m.enqueueStreamOp("cuEventRecord", sid, &streamOp{label: "cuEventRecord", record: e, recording: e.recording})
		})
	}
	waitFor := func(call string, id cuda.Event) (late bool, err error) {
		err = doWithEvent(call, id, func(e *event) error {
			if e.capture != nil {
				return newDriverError(call, 907, "%s was recorded in a capture", e.name)
			}
			for s := e.pending[e.recording]; s != nil; s = e.pending[e.recording] {
				late = true
				m.runNextOp(s)
			}
			return m.checkDeviceNotLost(call)
		})
		return late, err
	}
	d.EventSynchronize = func(id cuda.Event) error {
		m.mu.Lock()
		if e := m.events[id]; e != nil {
			m.logCall("cuEventSynchronize %s", e.name)
		}
		m.mu.Unlock()
		_, err := waitFor("cuEventSynchronize", id)
		return err
	}
	d.EventQuery = func(id cuda.Event) (bool, error) {
		late, err := waitFor("cuEventQuery", id)
		return !late && err == nil, err
	}
	d.EventElapsed = func(start, end cuda.Event) (ms float32, err error) {
		const call = "cuEventElapsedTime"
		err = m.simulateCall(call, true, func() error {
			a, b := m.events[start], m.events[end]
			switch {
			case a == nil || b == nil || !a.timed || !b.timed || a.recording == 0 || b.recording == 0:
				return newDriverError(call, cuda.ErrorInvalidHandle, "%s and %s must both be recorded, with timing enabled", m.handleName(uintptr(start)), m.handleName(uintptr(end)))
			case a.pending[a.recording] != nil || b.pending[b.recording] != nil:
				return newDriverError(call, cuda.ErrorNotReady, "")
			}
			ms = float32((b.at - a.at) / 1e3)
			return nil
		})
		return ms, err
	}
}
