package cuda

import (
	"errors"
	"runtime"
	"sync"
)

var errClosed = errors.New("the executable or its engine is closed")

// osThread is a dedicated operating-system thread in which the GPU's primary context is
// current. It is needed because CUDA's calls act on the context of the calling thread,
// while goroutines move between threads.
type osThread struct {
	calls chan func()
	stop  chan struct{}
	ended chan struct{}
	once  sync.Once
}

// startThread starts a thread that calls begin first and end last. If begin returns an
// error, the thread ends and startThread returns the error.
func startThread(begin func() error, end func()) (*osThread, error) {
	t := &osThread{calls: make(chan func()), stop: make(chan struct{}), ended: make(chan struct{})}
	began := make(chan error)
	go func() {
		// The goroutine never unlocks its thread, so the thread ends with the goroutine,
		// and no other goroutine runs where the context is current.
		runtime.LockOSThread()
		defer close(t.ended)
		err := begin()
		began <- err
		if err != nil {
			return
		}
		defer end()
		for {
			select {
			case f := <-t.calls:
				f()
			case <-t.stop:
				return
			}
		}
	}()
	if err := <-began; err != nil {
		<-t.ended
		return nil, markOutOfMemory(err)
	}
	return t, nil
}

// do runs f on the thread and waits for it. f must not call do. If the thread has ended, do
// returns errClosed.
func (t *osThread) do(f func() error) error {
	var err error
	done := make(chan struct{})
	call := func() {
		defer close(done)
		err = f()
	}
	select {
	case t.calls <- call:
		<-done
		return markOutOfMemory(err)
	case <-t.ended:
		return errClosed
	}
}

// close waits until the thread has ended, after its current function.
func (t *osThread) close() {
	t.once.Do(func() { close(t.stop) })
	<-t.ended
}
