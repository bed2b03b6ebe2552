package collective

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/runs/flight"
)

// TestRecorder runs operations until a rank is missing, over each transport. It checks what
// the others have recorded, what their errors say about the missing rank, and that the records
// explain it.
func TestRecorder(t *testing.T) {
	kinds := map[string]func(n int, o Options) ([]Group, error){}
	for name, make := range memoryGroups {
		kinds[name] = make
	}
	for name, make := range ringGroups {
		kinds[name] = make
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			groups, err := make(3, Options{Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			// Operations before the recording count, but are not in the records.
			if err := together(groups, func(g Group) error { return g.Barrier(ctx) }); err != nil {
				t.Fatal(err)
			}
			for i, g := range groups {
				r := NewRecorder(g, dir)
				t.Cleanup(r.HandleRequests())
				groups[i] = r
			}
			err = together(groups, func(g Group) error {
				if err := g.(*Recorder).ShareHosts(ctx); err != nil { // collective 2
					return err
				}
				b := device.Buffer{F64: []float64{1, 2}}
				if err := errors.Join(g.Broadcast(ctx, b, 1), g.ReduceScatter(ctx, b), g.AllGather(ctx, b), g.Barrier(ctx)); err != nil {
					return err
				}
				SetStep(g, 406)
				SetBucket(g, 2)
				return g.AllReduce(ctx, device.Buffer{F32: []float32{1, 2, 3}}) // collective 7
			})
			if err != nil {
				t.Fatal(err)
			}
			errs := [3]error{}
			err = together(groups[:2], func(g Group) error { // rank 2 does not come
				SetBucket(g, 3)
				errs[g.Rank()] = g.AllReduce(ctx, device.Buffer{F32: []float32{1, 2, 3, 4}})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			named := fmt.Sprintf("; rank 2 is process %d on %s, and its last collective was all-reduce 7 (bucket 2 of step 406) of 3 float32; its stack is in %s: ", os.Getpid(), host, filepath.Join(dir, flight.StacksName(2)))
			if text := errors.Join(errs[:]...).Error(); !strings.Contains(text, named) {
				t.Errorf("errors\n%s\ndo not say %q", text, named)
			}
			var records []flight.Record
			for rank := range 2 {
				r, err := flight.ReadFile(dir, flight.FileName(rank))
				if err != nil {
					t.Fatal(err)
				}
				records = append(records, r)
				var list []string
				for i, c := range r.Calls {
					if c.Number != uint64(i+2) || c.Begin.IsZero() || c.End.Before(c.Begin) || c.Failed != (i == 6) {
						t.Errorf("rank %d: call %d is %+v", rank, i, c)
					}
					list = append(list, c.Describe())
				}
				const want = "all-gather 2 of 204 float64, broadcast 3 of 2 float64, reduce-scatter 4 of 2 float64, all-gather 5 of 2 float64, barrier 6, " +
					"all-reduce 7 (bucket 2 of step 406) of 3 float32, all-reduce 8 (bucket 3 of step 406) of 4 float32"
				if got := strings.Join(list, ", "); got != want || r.Error == "" || r.Transport != groups[0].Name() || r.World != 3 {
					t.Errorf("rank %d: got %s\nwant %s\n%+v", rank, got, want, r.Header)
				}
			}
			late, err := flight.ReadFile(dir, flight.FileName(2)) // which rank 2 was asked for
			if err != nil {
				t.Fatal(err)
			}
			sentences := flight.Explain(append(records, late), nil)
			want := fmt.Sprintf("rank 2 (process %d on %s) never entered all-reduce 8 (bucket 3 of step 406): its last collective, all-reduce 7 (bucket 2 of step 406) of 3 float32, ended at ", os.Getpid(), host)
			const where = "; its stack (stacks-2.txt): " // of this test, which has created the Recorder
			if len(sentences) != 1 || !strings.HasPrefix(sentences[0], want) || !strings.Contains(sentences[0], where) || !strings.Contains(sentences[0], "collective.TestRecorder") {
				t.Errorf("explained as %q, want %q and %q with this test", sentences, want, where)
			}
			_ = closeAll(groups)
		})
	}
}

// TestRecorderKeepsTheLastCalls checks that only the last calls are kept, in their order,
// without allocations, and that an interrupted operation writes nothing.
func TestRecorderKeepsTheLastCalls(t *testing.T) {
	dir := t.TempDir()
	r := NewRecorder(Single(), dir)
	b := device.Buffer{F32: []float32{1}}
	const calls = 2*flight.MaxCalls + 500
	if n := testing.AllocsPerRun(calls-1, func() { _ = r.endCall(r.beginCall(kindAllReduce, b, 0), nil) }); n > 0 {
		t.Errorf("%v allocations for each operation, want none", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Barrier(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted operation: %v", err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) > 0 {
		t.Errorf("files %v, %v, want none", files, err)
	}
	n := r.beginCall(kindSend, b, 0) // not a collective
	if err := r.Write(nil); err != nil {
		t.Fatal(err)
	}
	_ = r.endCall(n, nil)
	got, err := flight.ReadFile(dir, flight.FileName(0))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range got.Calls[:flight.MaxCalls-1] {
		if want := uint64(calls + 1 - (flight.MaxCalls - 1) + 1 + i); c.Number != want {
			t.Fatalf("call %d has number %d, want %d", i, c.Number, want)
		}
	}
	if c := got.Calls[flight.MaxCalls-1]; len(got.Calls) != flight.MaxCalls || c.Kind != "send" || c.Number != 0 || !c.End.IsZero() {
		t.Errorf("%d calls, the last is %+v, want a send that has not ended", len(got.Calls), c)
	}
	if SetStep(Single(), 1); r.step != 0 { // no Recorder: nothing happens
		t.Error("step of another group")
	}
}

// TestRecorderNamesLastCollective checks which rank and which operation are added to an error: the
// messages and collectives are counted separately, and each rank has its own last operation.
func TestRecorderNamesLastCollective(t *testing.T) {
	r := NewRecorder(Single(), t.TempDir())
	r.places = []rankLocation{{host: "a", pid: 10}, {host: "b", pid: 11}, {host: "c", pid: 12}}
	for range 3 {
		_ = r.endCall(r.beginCall(kindBarrier, device.Buffer{}, 0), nil)
	}
	for text, want := range map[string]string{
		"barrier 3: rank 1 (last seen in barrier 2) did not arrive":                                                     "rank 1 is process 11 on b, and its last collective was barrier 2",
		"barrier 3: rank 1 is gone: its process 11 has ended (last seen in barrier 2)":                                  "rank 1 is process 11 on b, and its last collective was barrier 2",
		"barrier 3: rank 1 (not seen in any operation), rank 2 (last seen in barrier 2) did not arrive":                 "rank 1 is process 11 on b",
		"receive 3 from rank 1: rank 1 (last seen in send 2) did not send it":                                           "rank 1 is process 11 on b",
		"barrier 3: rank 0 calls barrier, rank 2 calls all-reduce of 1 float32: every rank must call the same":          "rank 2 is process 12 on c",
		"barrier 3: rank 2 calls barrier, rank 0 calls all-reduce of 1 float32: every rank must call the same":          "rank 2 is process 12 on c",
		"send 1 to rank 1: another operation of this rank failed: barrier 3: rank 2 failed (last seen in barrier 2); x": "rank 2 is process 12 on c, and its last collective was barrier 2",
	} {
		if got := r.describeNamedRank(errors.New(text), false).Error(); got != text+"; "+want {
			t.Errorf("got  %s\nwant %s; %s", got, text, want)
		}
	}
}

// TestRecorderKeepsTheFirstCause: operations that a broken group refuses change neither the error
// in the record nor its last operation, also if the record is written again.
func TestRecorderKeepsTheFirstCause(t *testing.T) {
	dir := t.TempDir()
	r := NewRecorder(Single(), dir)
	b := device.Buffer{F32: []float32{1}}
	read := func() flight.Record {
		t.Helper()
		got, err := flight.ReadFile(dir, flight.FileName(0))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	_ = r.endCall(r.beginCall(kindAllReduce, b, 0), errors.New("the cause"))
	first := read()
	if err := r.endCall(r.beginCall(kindBarrier, device.Buffer{}, 0), errors.New("refused")); err == nil || err.Error() != "refused" {
		t.Errorf("the second operation returned %v", err)
	}
	for _, write := range []func() error{func() error { return nil }, func() error { return r.Write(nil) }, func() error { return r.Write(errors.New("later")) }} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if got := read(); got.Error != "the cause" || len(got.Calls) != 1 || got.Calls[0].Describe() != first.Calls[0].Describe() {
			t.Errorf("the record has error %q and calls %+v, want those of %+v", got.Error, got.Calls, first)
		}
	}
}

// TestRecordFailure: an error that no operation has noticed is recorded and names a process.
func TestRecordFailure(t *testing.T) {
	dir := t.TempDir()
	r := NewRecorder(Single(), dir)
	r.places = []rankLocation{{host: "a", pid: 10}, {host: "b", pid: 11, startTime: 1, boot: 1}}
	cause := errors.New("negotiate gradients: rank 1 has not announced fc.weight, but rank 0 did")
	if got, want := fmt.Sprint(RecordFailure(r, cause)), cause.Error()+"; rank 1 is process 11 on b; no stack: it runs on another host or in another container; send SIGUSR2 to process 11 on b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err := flight.ReadFile(dir, flight.FileName(0)); err != nil || got.Error != cause.Error() {
		t.Errorf("recorded %+v, error %v", got, err)
	}
	if got := RecordFailure(Single(), cause); got != cause {
		t.Errorf("without a Recorder: got %v, want %v", got, cause)
	}
}

// BenchmarkRecorder measures what recording adds to an operation.
func BenchmarkRecorder(b *testing.B) {
	r := NewRecorder(Single(), b.TempDir())
	buffer := device.Buffer{F32: []float32{1}}
	b.ReportAllocs()
	for b.Loop() {
		_ = r.endCall(r.beginCall(kindAllReduce, buffer, 0), nil)
	}
}

// TestRecorderKeepsTheStackOfTheDelay: a rank that was asked for its record before it entered the
// operation that failed keeps the stack of that time, but not that of an earlier operation.
func TestRecorderKeepsTheStackOfTheDelay(t *testing.T) {
	dir := t.TempDir()
	stack := func() string {
		t.Helper()
		got, err := flight.ReadFile(dir, flight.FileName(0))
		if err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadFile(filepath.Join(dir, flight.StacksName(0)))
		if err != nil {
			t.Fatal(err)
		}
		if text := string(all); strings.Contains(text, "writeWhileDelayed") != strings.Contains(fmt.Sprint(got.Stack), "writeWhileDelayed") || !strings.Contains(text, "TestRecorderKeepsTheStackOfTheDelay") {
			t.Errorf("stack %v, but %s has\n%.300s", got.Stack, flight.StacksName(0), text)
		}
		return flight.FormatStack(got.Stack)
	}
	for _, between := range []int{0, 1} {
		r := NewRecorder(Single(), dir)
		_ = r.endCall(r.beginCall(kindBarrier, device.Buffer{}, 0), nil)
		if err := writeWhileDelayed(r); err != nil {
			t.Fatal(err)
		}
		for range between {
			_ = r.endCall(r.beginCall(kindBarrier, device.Buffer{}, 0), nil)
		}
		_ = r.endCall(r.beginCall(kindBarrier, device.Buffer{}, 0), errors.New("rank 0 failed"))
		if got, want := strings.Contains(stack(), "writeWhileDelayed"), between == 0; got != want {
			t.Errorf("%d operations in between: the stack is that of the delay: %v, want %v", between, got, want)
		}
	}
}

// writeWhileDelayed writes the record as if SIGUSR2 had asked for it.
func writeWhileDelayed(r *Recorder) error { return r.Write(nil) }
