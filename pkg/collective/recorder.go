package collective

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/runs/flight"
)

// Recorder is a Group that records the last flight.MaxCalls operations of this rank in memory.
// It writes them to the run folder when an operation fails, and when Write is called; package
// flight explains what the ranks have written. An operation's record needs no allocation.
//
// It also adds the process, the host, the last collective and the stack of the rank that an error
// names. A Recorder must be created by the goroutine that trains, whose stack it writes.
type Recorder struct {
	Group
	dir     string
	trainer flight.Goroutine
	places  []rankLocation  // by rank; nil before ShareHosts
	stackOf rankStackFinder // finds the stack of the rank that the first error names
	writing sync.Mutex      // held by Write

	mu           sync.Mutex
	calls        [flight.MaxCalls]recordedCall // the call with sequence number n is at n%MaxCalls
	sequence     uint64                        // calls so far
	number       uint64                        // collective operations so far
	step, bucket int
	failure      string // the error of the first operation that failed, which ends the recording; empty: none
	lost         *flight.Lost
	stack        []string // of the last record
	answers      bool     // HandleRequests has been called
	stackAt      uint64   // 1 more than sequence when stack was written because it was asked for
}

// recordedCall is an entry of a Recorder. Times are in ns since 1970; end is 0 while the
// operation runs.
type recordedCall struct {
	sequence, number uint64
	begin, end       int64
	elements         int
	peer, step       int
	bucket           int
	kind             opKind
	bits             uint8
	failed           bool
}

// noBucket is the bucket of an operation that does not exchange gradients.
const noBucket = -1

// NewRecorder returns a Recorder of group's operations that writes to the run folder dir.
func NewRecorder(group Group, dir string) *Recorder {
	r := &Recorder{Group: group, dir: dir, bucket: noBucket, trainer: flight.CurrentGoroutine()}
	if g, ok := group.(interface{ operations() uint64 }); ok { // such as those that have measured algorithms
		r.number = g.operations()
	}
	return r
}

// SetStep sets the optimizer step, counted from 1, to which the next operations of group
// belong; 0 means none. It does nothing unless group is a Recorder.
func SetStep(group Group, step int) {
	if r, ok := group.(*Recorder); ok {
		r.mu.Lock()
		r.step = step
		r.mu.Unlock()
	}
}

// SetBucket sets the gradient bucket, counted from 0, to which the next operations of group
// belong; a negative one means none. It does nothing unless group is a Recorder.
func SetBucket(group Group, bucket int) {
	if r, ok := group.(*Recorder); ok {
		r.mu.Lock()
		r.bucket = bucket
		r.mu.Unlock()
	}
}

// AllReduce implements Group.
func (r *Recorder) AllReduce(ctx context.Context, b device.Buffer) error {
	n := r.beginCall(kindAllReduce, b, 0)
	return r.endCall(n, r.Group.AllReduce(ctx, b))
}

// Broadcast implements Group.
func (r *Recorder) Broadcast(ctx context.Context, b device.Buffer, root int) error {
	n := r.beginCall(kindBroadcast, b, root)
	return r.endCall(n, r.Group.Broadcast(ctx, b, root))
}

// ReduceScatter implements Group.
func (r *Recorder) ReduceScatter(ctx context.Context, b device.Buffer) error {
	n := r.beginCall(kindReduceScatter, b, 0)
	return r.endCall(n, r.Group.ReduceScatter(ctx, b))
}

// AllGather implements Group.
func (r *Recorder) AllGather(ctx context.Context, b device.Buffer) error {
	n := r.beginCall(kindAllGather, b, 0)
	return r.endCall(n, r.Group.AllGather(ctx, b))
}

// Barrier implements Group.
func (r *Recorder) Barrier(ctx context.Context) error {
	n := r.beginCall(kindBarrier, device.Buffer{}, 0)
	return r.endCall(n, r.Group.Barrier(ctx))
}

// Send implements Group.
func (r *Recorder) Send(ctx context.Context, b device.Buffer, to int) error {
	n := r.beginCall(kindSend, b, to)
	return r.endCall(n, r.Group.Send(ctx, b, to))
}

// Recv implements Group.
func (r *Recorder) Recv(ctx context.Context, b device.Buffer, from int) error {
	n := r.beginCall(kindReceive, b, from)
	return r.endCall(n, r.Group.Recv(ctx, b, from))
}

// beginCall records the beginning of an operation and returns its sequence number. After a failure
// it records nothing and returns 0. The group then refuses further operations, and the last
// operation in the record must be the one that failed.
func (r *Recorder) beginCall(k opKind, b device.Buffer, peer int) uint64 {
	c := recordedCall{kind: k, elements: b.Len(), peer: peer, begin: time.Now().UnixNano()}
	switch {
	case b.F64 != nil:
		c.bits = 64
	case k != kindBarrier:
		c.bits = 32
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != "" {
		return 0
	}
	r.sequence++
	c.sequence, c.step, c.bucket = r.sequence, r.step, r.bucket
	if k != kindSend && k != kindReceive {
		r.number++
		c.number = r.number
	}
	r.calls[c.sequence%flight.MaxCalls] = c
	return c.sequence
}

// endCall records the end of an operation that returned err. If err is not nil, it writes the
// record and returns the result of handleFailure.
func (r *Recorder) endCall(sequence uint64, err error) error {
	now := time.Now().UnixNano()
	r.mu.Lock()
	c := &r.calls[sequence%flight.MaxCalls]
	if sequence > 0 && c.sequence == sequence { // a long message may have been overwritten
		c.end, c.failed = now, err != nil
	}
	r.mu.Unlock()
	if err == nil {
		return nil
	}
	return r.handleFailure(err)
}

// handleFailure writes the record if err is the first error of the group. It returns err with a
// description of the rank that err names: its process, its host, its last operation and its stack.
func (r *Recorder) handleFailure(err error) error {
	r.recordFailure(err)
	return r.describeNamedRank(err, !errors.Is(err, context.Canceled))
}

// recordFailure writes the record if err is the first error of the group. A run that the user has
// interrupted did not fail.
func (r *Recorder) recordFailure(err error) {
	r.mu.Lock()
	first := r.failure == "" && !errors.Is(err, context.Canceled)
	if first {
		r.failure = err.Error()
	}
	r.mu.Unlock()
	if first {
		_ = r.Write(err) // err is the error to report
	}
}

// RecordFailure records err as if an operation of the group had failed with it, if group is a
// Recorder. It returns err with a description of the rank that err names, as an operation would.
// Use it for failures that operations do not notice, such as a rank that takes part in them but
// sends nothing useful.
func RecordFailure(group Group, err error) error {
	if r, ok := group.(*Recorder); ok {
		return r.handleFailure(err)
	}
	return err
}

// RecordOwnFailure writes the record after this rank has failed outside of an operation, if group
// is a Recorder. The other ranks can then read why this rank left them. RecordOwnFailure does
// nothing if an operation has failed before, or if err means that the run was interrupted.
func RecordOwnFailure(group Group, err error) {
	if r, ok := group.(*Recorder); ok && err != nil {
		r.recordFailure(err)
	}
}

// Write writes the recorded operations and the stacks of this process to the run folder. cause is
// the error that ended the run, or nil if the record was asked for; if an operation has failed, its
// error is written instead. Write may be called at any time.
//
// If this rank was asked for its record before it entered the operation that failed, the stacks of
// that time stay: they show what kept it.
func (r *Recorder) Write(cause error) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	asked := cause == nil && r.failure == ""
	keep := !asked && r.stackAt > 0 && r.stackAt >= r.sequence
	r.mu.Unlock()
	var err error
	if !keep {
		stacks := flight.CaptureStacks(r.trainer)
		err = flight.WriteStacks(r.dir, r.Rank(), stacks)
		r.mu.Lock()
		r.stack = stacks.Frames
		if asked {
			r.stackAt = r.sequence + 1
		}
		r.mu.Unlock()
	}
	return errors.Join(err, r.writeRecord(cause))
}

func (r *Recorder) writeRecord(cause error) error {
	out := flight.Record{Header: flight.Header{Rank: r.Rank(), World: r.Size(), PID: os.Getpid(), Transport: r.Name(), Written: time.Now()}}
	out.Host, _ = os.Hostname() // for messages only
	if cause != nil {
		out.Error = cause.Error()
	}
	r.mu.Lock()
	calls, sequence := r.calls, r.sequence
	if r.failure != "" {
		out.Error = r.failure
	}
	out.Stack, out.Lost = r.stack, r.lost
	r.mu.Unlock()
	for n := max(1, int64(sequence)-flight.MaxCalls+1); n <= int64(sequence); n++ {
		out.Calls = append(out.Calls, calls[uint64(n)%flight.MaxCalls].toFlightCall())
	}
	return flight.Write(r.dir, out)
}

func (c recordedCall) toFlightCall() flight.Call {
	out := flight.Call{
		Number: c.number, Kind: c.kind.String(), Elements: c.elements, Bits: int(c.bits), Peer: c.peer, Step: c.step,
		Begin: time.Unix(0, c.begin), Failed: c.failed,
	}
	if c.bucket >= 0 && c.step > 0 {
		out.Bucket = &c.bucket
	}
	if c.end > 0 {
		out.End = time.Unix(0, c.end)
	}
	return out
}

// namedRankPattern matches a rank that an error of this package names, and, if the error states it,
// the collective operation in which the rank was last seen. Messages are numbered separately and do
// not match. If the calls of two ranks differ, the error names both of them, and one is this rank.
var namedRankPattern = regexp.MustCompile(`(?:: |calls [^:;]*, )rank (\d+)\b(?:(?: is gone:)?[^;:(]*\(last seen in (?:all-reduce|broadcast|reduce-scatter|all-gather|barrier) (\d+)\))?`)

// describeNamedRank adds to err what is known of the first other rank that err names: its
// process, its host, its last operation, and its stack or why there is none. It asks that rank
// for its stack if ask is true and this has not been done before.
func (r *Recorder) describeNamedRank(err error, ask bool) error {
	all := namedRankPattern.FindAllStringSubmatch(err.Error(), -1)
	i := slices.IndexFunc(all, func(m []string) bool { return m[1] != strconv.Itoa(r.Rank()) })
	if i < 0 {
		return err
	}
	m := all[i]
	rank, aerr := strconv.Atoi(m[1])
	r.mu.Lock()
	if aerr != nil || rank >= len(r.places) {
		r.mu.Unlock()
		return err
	}
	place := r.places[rank]
	text := fmt.Sprintf("rank %d is process %d on %s", rank, place.pid, place.host)
	if number, perr := strconv.ParseUint(m[2], 10, 64); perr == nil {
		for i := range r.calls {
			if c := r.calls[i].toFlightCall(); c.Number == number { // all ranks call the same operations
				text += ", and its last collective was " + c.Describe()
			}
		}
	}
	r.mu.Unlock()
	// A rank that has left because of an error of its own reports it.
	if ask && !errors.Is(err, ErrRankLeft) && !errors.Is(err, ErrRankFailed) {
		text += "; " + r.stackOf.findStack(r, rank)
	}
	return fmt.Errorf("%w; %s", err, text)
}
