package flight

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// at returns the time s seconds after an arbitrary start.
func at(s float64) time.Time {
	return time.Date(2026, 11, 24, 15, 0, 0, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
}

// newRecord returns the record of a rank that calls one all-reduce of 1024 float32 for each
// second, from number first to number last, in buckets 0 and 1 of each step. The last one
// fails after 5 s, if waits is true.
func newRecord(rank int, first, last uint64, waits bool, err string) Record {
	r := Record{Header: Header{Rank: rank, World: 4, Host: fmt.Sprintf("node%d", rank/2), PID: 700 + rank, Transport: "tcp ring", Written: at(float64(last) + 5), Error: err}}
	for n := first; n <= last; n++ {
		bucket := int(n % 2)
		c := Call{Number: n, Kind: "all-reduce", Elements: 1024, Bits: 32, Step: int(n / 2), Bucket: &bucket, Begin: at(float64(n)), End: at(float64(n) + 0.5)}
		if waits && n == last {
			c.End, c.Failed = at(float64(n)+5), true
		}
		r.Calls = append(r.Calls, c)
	}
	return r
}

// TestExplain checks the sentences about each kind of failure.
func TestExplain(t *testing.T) {
	healthy := func(err string) []Record {
		return []Record{newRecord(0, 800, 812, true, err), newRecord(1, 800, 812, true, err), newRecord(2, 800, 812, true, err)}
	}
	barrier := newRecord(3, 800, 812, true, "")
	barrier.Calls[12] = Call{Number: 812, Kind: "barrier", Begin: at(812), End: at(817), Failed: true}
	stuck := newRecord(3, 800, 811, false, "")
	stuck.Stack = []string{"data.load (load.go:7)", "train.main (main.go:9)"}
	late := newRecord(3, 800, 812, true, "all-reduce 812: rank 0 failed (last seen in all-reduce 812)")
	late.Calls[12].Begin, late.Calls[12].End, late.Stack = at(812+7), at(812+7), stuck.Stack
	lost := healthy("all-reduce 812: rank 3 (last seen in all-reduce 811) did not arrive within 5s")
	lost[1].Lost = &Lost{Rank: 3, Reason: "its process is stopped (state T)"}
	running := newRecord(0, 800, 812, true, "")
	running.Calls[12].End, running.Calls[12].Failed = time.Time{}, false
	for _, tt := range []struct {
		name    string
		records []Record
		want    []string
	}{
		{"nothing", nil, nil},
		{"no rank waits", []Record{newRecord(0, 1, 812, false, ""), newRecord(1, 1, 811, false, "")}, nil},
		{"asked for on one rank", []Record{running}, []string{"rank 0 waited in all-reduce 812 (bucket 0 of step 406) for others: send SIGUSR2 to rank 1, 2 and 3 too, to see which one has not entered it"}},
		{"slow", append(healthy(""), newRecord(3, 800, 811, false, "")), []string{
			"rank 3 (process 703 on node1) never entered all-reduce 812 (bucket 0 of step 406): its last collective, all-reduce 811 (bucket 1 of step 405) of 1024 float32, ended at 15:13:31.500; ranks 0, 1 and 2 waited up to 5s",
		}},
		{"stuck", append(healthy(""), stuck), []string{
			"rank 3 (process 703 on node1) never entered all-reduce 812 (bucket 0 of step 406): its last collective, all-reduce 811 (bucket 1 of step 405) of 1024 float32, ended at 15:13:31.500; ranks 0, 1 and 2 waited up to 5s; its stack (stacks-3.txt): data.load (load.go:7) < train.main (main.go:9)",
		}},
		{"too late", append(healthy("all-reduce 812: rank 3 (last seen in all-reduce 811) did not arrive within 5s"), late), []string{
			"rank 3 (process 703 on node1) entered all-reduce 812 (bucket 0 of step 406) too late, 7s after rank 0, which had waited 5s; its stack (stacks-3.txt): data.load (load.go:7) < train.main (main.go:9)",
		}},
		{"failed by itself", append(healthy("all-reduce 812: rank 3 has left the group (last seen in all-reduce 811)"), newRecord(3, 800, 811, false, "load batches: out of order")), []string{
			"rank 3 (process 703 on node1) never entered all-reduce 812 (bucket 0 of step 406): its last collective, all-reduce 811 (bucket 1 of step 405) of 1024 float32, ended at 15:13:31.500; ranks 0, 1 and 2 waited up to 5s; its error: load batches: out of order",
		}},
		{"stopped, as another rank found out", lost, []string{
			"rank 3 (process 31 on c) never entered all-reduce 812 (bucket 0 of step 406): its last collective was all-reduce 811 (bucket 1 of step 405) of 1024 float32, and no stack: its process is stopped (state T); ranks 0, 1 and 2 waited up to 5s",
		}},
		{"stopped", healthy("all-reduce 812: rank 3 (last seen in all-reduce 811) did not arrive within 5s"), []string{
			"rank 3 (process 31 on c) never entered all-reduce 812 (bucket 0 of step 406): its last collective was all-reduce 811 (bucket 1 of step 405) of 1024 float32, and it wrote no record, so it was killed, stopped or cut off, or failed elsewhere; ranks 0, 1 and 2 waited up to 5s",
		}},
		{"stopped long ago", healthy("all-reduce 812: rank 3 (last seen in all-reduce 5) did not arrive within 5s"), []string{
			"rank 3 (process 31 on c) never entered all-reduce 812 (bucket 0 of step 406): its last collective was number 5, and it wrote no record, so it was killed, stopped or cut off, or failed elsewhere; ranks 0, 1 and 2 waited up to 5s",
		}},
		{"killed within the operation", healthy("all-reduce 812: rank 3 is gone: its connection has ended (last seen in all-reduce 812)"), []string{
			"rank 3 (process 31 on c) entered all-reduce 812 (bucket 0 of step 406) and did not finish it: it wrote no record, so it was killed, stopped or cut off, or failed elsewhere; ranks 0, 1 and 2 waited up to 5s",
		}},
		{"not named", healthy("all-reduce 812: i/o"), []string{
			"rank 3 (process 31 on c) did not finish all-reduce 812 (bucket 0 of step 406): it wrote no record, so it was killed, stopped or cut off, or failed elsewhere; ranks 0, 1 and 2 waited up to 5s",
		}},
		{"last seen in a message", healthy("receive 805 from rank 3: rank 3 (last seen in send 804) did not send it within 5s"), []string{
			"rank 3 (process 31 on c) did not finish all-reduce 812 (bucket 0 of step 406): it wrote no record, so it was killed, stopped or cut off, or failed elsewhere; ranks 0, 1 and 2 waited up to 5s",
		}},
		{"after another rank", healthy("send 2 to rank 3: another operation of this rank failed: all-reduce 812: rank 3 (not seen in any operation), rank 2 (last seen in all-reduce 811) did not arrive within 5s"), []string{
			"rank 3 (process 31 on c) did not finish all-reduce 812 (bucket 0 of step 406): it wrote no record, so it was killed, stopped or cut off, or failed elsewhere; ranks 0, 1 and 2 waited up to 5s",
		}},
		{"another operation", append(healthy(""), barrier), []string{
			"rank 3 (process 703 on node1) called barrier as collective 812, but rank 0 called all-reduce of 1024 float32: every rank must call the same operations in the same order",
		}},
		{"asked for while a rank waits", []Record{running, newRecord(1, 800, 812, false, ""), newRecord(2, 800, 812, false, ""), newRecord(3, 812, 811, false, "")}, []string{
			"rank 3 (process 703 on node1) never entered all-reduce 812 (bucket 0 of step 406): it had called no collective; rank 0 waited 5s",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Explain(tt.records, map[int]Place{3: {"c", 31}}); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
	many := newRecord(0, 1, 2, true, "")
	many.World, many.Error = 100, "failed"
	if got := Explain([]Record{many}, nil); len(got) != maxListedRanks+1 || got[maxListedRanks] != "more ranks were missing" {
		t.Errorf("%d sentences about 99 ranks, the last is %q", len(got), got[len(got)-1])
	}
}

// TestWriteAndRead checks that a record is read as it was written, and the errors for files that
// are none.
func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	want := newRecord(2, 1, MaxCalls, true, "all-reduce 1000: failed")
	for range 2 { // the second replaces the first
		if err := Write(dir, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadFile(dir, FileName(2))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %d calls, %v, want the record that was written", len(got.Calls), err)
	}
	for name, text := range map[string]string{
		"empty":      "",
		"no JSON":    "rank 2\n",
		"rank":       `{"rank":4,"world":4}` + "\n",
		"world":      `{"rank":0,"world":4611686018427387904}`,
		"too long":   `{"rank":0,"world":1}` + strings.Repeat("\n{}", MaxCalls+1),
		"long line":  `{"rank":0,"world":1,"host":"` + strings.Repeat("x", maxLineBytes) + `"}`,
		"torn":       `{"rank":0,"world":1}` + "\n" + `{"number":1,`,
		"wrong type": `{"rank":"0"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, FileName(0)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := ReadFile(dir, FileName(0)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, r)
		}
	}
	for range 2 { // the second finds nothing
		if err := Remove(dir, 2); err != nil {
			t.Error(err)
		}
	}
	if _, err := ReadFile(dir, FileName(2)); err == nil {
		t.Error("the record is left")
	}
}
