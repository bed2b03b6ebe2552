package cuda

import (
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// completionFromResult converts the result of a query for completion, such as cuStreamQuery. It returns
// true if the work is complete, and false if it is not. name is the C function, for the error.
func completionFromResult(name string, r Result) (bool, error) {
	if r == ErrorNotReady {
		return false, nil
	}
	err := clib.CheckResult(name, r)
	return err == nil, err
}

func bindStreamFunctions(d *Driver, need func(string) uintptr) {
	create, priorities := need("cuStreamCreateWithPriority"), need("cuCtxGetStreamPriorityRange")
	destroy, synchronize := need("cuStreamDestroy_v2"), need("cuStreamSynchronize")
	query, wait := need("cuStreamQuery"), need("cuStreamWaitEvent")

	d.StreamCreate = func(flags uint32, priority int) (Stream, error) {
		var s Stream
		r := call(create, uintptr(unsafe.Pointer(&s)), uintptr(flags), uintptr(priority))
		return s, clib.CheckResult("cuStreamCreateWithPriority", r)
	}
	d.StreamPriorities = func() (int, int, error) {
		var v [2]int32
		r := call(priorities, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])))
		return int(v[0]), int(v[1]), clib.CheckResult("cuCtxGetStreamPriorityRange", r)
	}
	d.StreamDestroy = func(s Stream) error { return clib.CheckResult("cuStreamDestroy", call(destroy, uintptr(s))) }
	d.StreamSynchronize = func(s Stream) error { return clib.CheckResult("cuStreamSynchronize", call(synchronize, uintptr(s))) }
	d.StreamQuery = func(s Stream) (bool, error) { return completionFromResult("cuStreamQuery", call(query, uintptr(s))) }
	d.StreamWaitEvent = func(s Stream, e Event) error {
		return clib.CheckResult("cuStreamWaitEvent", call(wait, uintptr(s), uintptr(e), 0))
	}
}

func bindEventFunctions(d *Driver, need func(string) uintptr) {
	create, destroy, record := need("cuEventCreate"), need("cuEventDestroy_v2"), need("cuEventRecord")
	synchronize, query, elapsed := need("cuEventSynchronize"), need("cuEventQuery"), need("cuEventElapsedTime")

	d.EventCreate = func(flags uint32) (Event, error) {
		var e Event
		r := call(create, uintptr(unsafe.Pointer(&e)), uintptr(flags))
		return e, clib.CheckResult("cuEventCreate", r)
	}
	d.EventDestroy = func(e Event) error { return clib.CheckResult("cuEventDestroy", call(destroy, uintptr(e))) }
	d.EventRecord = func(e Event, s Stream) error {
		return clib.CheckResult("cuEventRecord", call(record, uintptr(e), uintptr(s)))
	}
	d.EventSynchronize = func(e Event) error { return clib.CheckResult("cuEventSynchronize", call(synchronize, uintptr(e))) }
	d.EventQuery = func(e Event) (bool, error) { return completionFromResult("cuEventQuery", call(query, uintptr(e))) }
	d.EventElapsed = func(start, end Event) (float32, error) {
		var ms float32
		r := call(elapsed, uintptr(unsafe.Pointer(&ms)), uintptr(start), uintptr(end))
		return ms, clib.CheckResult("cuEventElapsedTime", r)
	}
}
