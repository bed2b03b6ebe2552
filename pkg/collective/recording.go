package collective

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	"unsafe"

	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/runs/transfers"
)

// RecordAllReduce replaces b by its sum over all ranks, by an algorithm of package schedule, and
// returns what each rank sent to whom, and when. All ranks must call it with the same algorithm;
// each gets the complete recording. Over sockets, the ring follows its schedule step by step,
// where AllReduce also divides each shard into pieces that overlap. Groups of MPI and NCCL
// cannot be recorded, because their libraries send the messages.
func RecordAllReduce(ctx context.Context, g Group, b device.Buffer, algorithm string) (*transfers.Recording, error) {
	if r, ok := g.(*Recorder); ok {
		g = r.Group
	}
	t, ok := g.(tunableGroup)
	if !ok {
		return nil, fmt.Errorf("record all-reduce: the transfers of %s cannot be recorded: use shared memory, unix sockets or TCP", g.Name())
	}
	a := t.selection()
	pieces := schedule.Pieces(b.Bytes())
	full, err := schedule.New(algorithm, a.topology, pieces)
	if err != nil {
		return nil, fmt.Errorf("record all-reduce: no transfers of %q can be recorded%s: use %s", algorithm, nearest.Hint(algorithm, schedule.Names()), english.JoinOr(schedule.Names()))
	}
	own, err := a.findSchedule(algorithm, b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("record all-reduce: %w", err)
	}
	// A common origin of the times, in whole seconds, which a float64 holds exactly.
	origin := device.Buffer{F64: []float64{float64(time.Now().Unix())}}
	if err := g.Broadcast(ctx, origin, 0); err != nil {
		return nil, fmt.Errorf("record all-reduce: %w", err)
	}
	start := time.Unix(int64(origin.F64[0]), 0)
	numbers := map[schedule.Transfer]int{}
	for i, t := range full.Transfers {
		numbers[t] = i
	}
	times := device.Buffer{F64: make([]float64, int(transferEvents)*len(full.Transfers))}
	own.record = func(t schedule.Transfer, e transferEvent) {
		times.F64[numbers[t]*int(transferEvents)+int(e)] = float64(time.Since(start))
	}
	err = g.Barrier(ctx)
	if err == nil {
		native, name := a.native, a.name
		a.native, a.name = "", algorithm // so that the schedule is executed
		err = g.AllReduce(ctx, b)
		a.native, a.name = native, name
	}
	own.record = nil
	if err == nil && len(times.F64) > 0 {
		err = g.AllReduce(ctx, times) // each rank knows some of the times, the others have zeros
	}
	if err != nil {
		return nil, fmt.Errorf("record all-reduce: %w", err)
	}
	transport, _, _ := strings.Cut(g.Name(), ",") // without an algorithm
	return newRecording(full, a.topology, strings.TrimSuffix(transport, " ring"), b, times.F64), nil
}

// newRecording returns the recording of a schedule that was executed on b. times has the times of
// the events of each transfer in ns.
func newRecording(s *schedule.Schedule, t schedule.Topology, transport string, b device.Buffer, times []float64) *transfers.Recording {
	r := &transfers.Recording{Algorithm: s.Algorithm, Transport: transport, Ranks: s.Ranks, PerNode: t.PerNode, Chunks: s.Chunks, Bytes: b.Bytes()}
	first := math.Inf(1)
	for i := range s.Transfers {
		first = min(first, times[i*int(transferEvents)+int(transferSent)])
	}
	size := int(unsafe.Sizeof(float32(0)))
	if b.F64 != nil {
		size = int(unsafe.Sizeof(float64(0)))
	}
	for i, t := range s.Transfers {
		lo, _ := Shard(b.Len(), s.Chunks, t.Lo)
		_, hi := Shard(b.Len(), s.Chunks, t.Hi-1)
		at := func(e transferEvent) time.Duration {
			return time.Duration(max(0, times[i*int(transferEvents)+int(e)]-first))
		}
		r.Transfers = append(r.Transfers, transfers.Transfer{
			Step: t.Step, From: t.From, To: t.To, Lo: t.Lo, Hi: t.Hi, Add: t.Add, Bytes: size * (hi - lo),
			Sent: at(transferSent), Waited: at(transferWaited), Received: at(transferReceived),
		})
	}
	return r
}
