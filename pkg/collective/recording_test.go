package collective

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/runs/transfers"
)

// TestRecordAllReduce records each algorithm over each transport. The buffers must be added up;
// all ranks must get the same recording, in which nothing is received before it is sent, no rank
// sends before it has received the chunks of earlier steps, and each chunk ends as a sum of all
// ranks. A ring and recursive halving send 2(n−1)/n of the buffer.
func TestRecordAllReduce(t *testing.T) {
	const length = 240_000 // divides by 1 to 6
	for name, create := range allGroups() {
		for _, algorithm := range schedule.Names() {
			for _, n := range []int{1, 2, 3, 4} {
				groups, err := create(n, Options{Timeout: 20 * time.Second, RanksPerNode: 2})
				if err != nil {
					t.Fatal(err)
				}
				recordings := make([]*transfers.Recording, n)
				err = together(groups, func(g Group) error {
					b := device.Buffer{F32: make([]float32, length)}
					for i := range b.F32 {
						b.F32[i] = float32(i%7 + g.Rank())
					}
					var err error
					recordings[g.Rank()], err = RecordAllReduce(context.Background(), g, b, algorithm)
					for i, v := range b.F32 {
						if v != float32(n*(i%7)+n*(n-1)/2) {
							t.Errorf("%s, %s, %d ranks: element %d of the sum is %v", name, algorithm, n, i, v)
							break
						}
					}
					return err
				})
				if err != nil {
					t.Fatalf("%s, %s, %d ranks: %v", name, algorithm, n, err)
				}
				checkRecording(t, name, recordings, length*4)
				b := device.Buffer{F32: make([]float32, 9)} // the group goes on as before
				if err := together(groups, func(g Group) error { return g.AllReduce(context.Background(), device.Buffer{F32: slices.Clone(b.F32)}) }); err != nil {
					t.Fatal(err)
				}
				if err := closeAll(groups); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// checkRecording checks the recordings of all ranks of an all-reduce of bytes bytes.
func checkRecording(t *testing.T, transport string, all []*transfers.Recording, bytes int) {
	t.Helper()
	r, n := all[0], len(all)
	for _, other := range all {
		if !slices.Equal(other.Transfers, r.Transfers) {
			t.Fatalf("%s, %s, %d ranks: the ranks' recordings differ", transport, r.Algorithm, n)
		}
	}
	if err := r.Validate(); err != nil {
		t.Fatalf("%s, %s, %d ranks: %v", transport, r.Algorithm, n, err)
	}
	if r.Bytes != bytes || r.Ranks != n || n > 1 && r.PerNode != 2 {
		t.Errorf("%s: the recording has %d bytes, %d ranks and %d ranks per node", r.Algorithm, r.Bytes, r.Ranks, r.PerNode)
	}
	for i, a := range r.Transfers {
		if a.Received < a.Sent {
			t.Errorf("%s, %s: transfer %d is received at %v, before it is sent at %v", transport, r.Algorithm, i, a.Received, a.Sent)
		}
		for _, b := range r.Transfers {
			if b.To == a.From && b.Step < a.Step && b.Received > a.Sent {
				t.Errorf("%s, %s: rank %d sends in step %d before it has received in step %d", transport, r.Algorithm, a.From, a.Step, b.Step)
			}
		}
	}
	for rank, chunks := range r.Contributions(r.Steps()) {
		for c, count := range chunks {
			if count != n {
				t.Errorf("%s: chunk %d of rank %d ends with the numbers of %d of %d ranks", r.Algorithm, c, rank, count, n)
			}
		}
	}
	if r.Algorithm == schedule.Ring || r.Algorithm == schedule.Halving && n&(n-1) == 0 {
		for rank, sent := range r.SentBytes() {
			if want := 2 * (n - 1) * bytes / n; sent != want {
				t.Errorf("%s: rank %d of %d sends %d bytes, want %d", r.Algorithm, rank, n, sent, want)
			}
		}
	}
}

// TestRecordAllReduceErrors checks that algorithms without messages are refused with a hint.
func TestRecordAllReduceErrors(t *testing.T) {
	groups := InProcess(1)
	for algorithm, want := range map[string]string{"direct": "use ring, halving, tree or hierarchical", "rinng": "did you mean ring?"} {
		_, err := RecordAllReduce(context.Background(), groups[0], device.Buffer{F32: make([]float32, 4)}, algorithm)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", algorithm, err, want)
		}
	}
	if err := closeAll(groups); err != nil {
		t.Fatal(err)
	}
}
