package stage

import (
	"context"
	"fmt"
	"sync"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// messageSender sends messages to one rank in a goroutine, so that a stage of a pipeline does not
// wait until the other rank receives them.
type messageSender struct {
	ctx    context.Context
	cancel context.CancelFunc // cancels the other operations of the strategy after an error
	group  collective.Group
	to     int
	parts  []device.Buffer // of the next message

	mu      sync.Mutex
	changed sync.Cond
	waiting []device.Buffer
	busy    bool
	closed  bool
	err     error
	worker  sync.WaitGroup
}

func newSender(ctx context.Context, cancel context.CancelFunc, group collective.Group, to int) *messageSender {
	s := &messageSender{ctx: ctx, cancel: cancel, group: group, to: to}
	s.changed.L = &s.mu
	s.worker.Go(s.sendUntilClosed)
	return s
}

// addTensor adds b to the next message. b must not be changed before send is called.
func (s *messageSender) addTensor(b device.Buffer) { s.parts = append(s.parts, b) }

// send queues a message with a copy of everything that was added since the previous message, and
// returns its size in bytes. It queues nothing if nothing was added.
func (s *messageSender) send() int {
	if len(s.parts) == 0 {
		return 0
	}
	var message device.Buffer
	for _, b := range s.parts {
		message.F32, message.F64 = append(message.F32, b.F32...), append(message.F64, b.F64...)
	}
	s.parts = s.parts[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, message)
	s.changed.Broadcast()
	return message.Bytes()
}

// flush returns when all messages are sent. If a message could not be sent, it returns the first
// error.
func (s *messageSender) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && (s.busy || len(s.waiting) > 0) {
		s.changed.Wait()
	}
	return s.err
}

// sendError returns the error of the first message that could not be sent, or nil.
func (s *messageSender) sendError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// close waits until the goroutine ends. The context of newSender must be canceled first.
func (s *messageSender) close() {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.worker.Wait()
}

func (s *messageSender) sendUntilClosed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.err == nil {
		if len(s.waiting) == 0 {
			s.changed.Wait()
			continue
		}
		message := s.waiting[0]
		s.waiting, s.busy = s.waiting[1:], true
		s.mu.Unlock()
		err := s.group.Send(s.ctx, message, s.to)
		s.mu.Lock()
		s.busy = false
		if err != nil {
			s.err = fmt.Errorf("send to stage %d: %w", s.to, err)
			s.cancel()
		}
		s.changed.Broadcast()
	}
}
