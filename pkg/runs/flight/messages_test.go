package flight

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestExplainMessages: if all ranks have finished all collective operations, the records show
// which rank did not send or receive a message that others waited for.
func TestExplainMessages(t *testing.T) {
	bucket := 2
	// rank's record with a message that failed 5 s after its beginning, or with an unfinished one
	record := func(rank, peer int, kind, err string, waited float64) Record {
		r := newRecord(rank, 800, 812, false, err)
		c := Call{Kind: kind, Elements: 64, Bits: 32, Peer: peer, Step: 407, Bucket: &bucket, Begin: at(813), Failed: err != ""}
		r.Written = c.Begin.Add(time.Duration(waited * float64(time.Second)))
		if err != "" {
			c.End = r.Written
		}
		r.Calls = append(r.Calls, c)
		return r
	}
	idle := newRecord(3, 800, 812, false, "")
	const lost = "receive 9 from rank 3: rank 3 (last seen in all-reduce 812) did not send it within 5s"
	for _, tt := range []struct {
		name    string
		records []Record
		want    []string
	}{
		{"stopped", []Record{record(0, 3, "receive", lost, 5), newRecord(1, 800, 812, false, lost), newRecord(2, 800, 812, false, lost)}, []string{
			"rank 3 (process 31 on c) did not send 64 float32 to rank 0 (bucket 2 of step 407), which waited 5s: it wrote no record, so it was killed, stopped or cut off, or failed elsewhere",
		}},
		{"stopped receiver", []Record{record(0, 3, "send", lost, 5)}, []string{
			"rank 3 (process 31 on c) did not receive 64 float32 from rank 0 (bucket 2 of step 407), which waited 5s: it wrote no record, so it was killed, stopped or cut off, or failed elsewhere",
		}},
		{"chain of stages", []Record{record(0, 1, "receive", lost, 5), record(1, 2, "receive", lost, 5), record(2, 3, "receive", lost, 4.5)}, []string{
			"rank 3 (process 31 on c) did not send 64 float32 to rank 2 (bucket 2 of step 407), which waited 4.5s: it wrote no record, so it was killed, stopped or cut off, or failed elsewhere",
		}},
		{"late", []Record{record(0, 3, "receive", lost, 5), idle}, []string{
			"rank 3 (process 703 on node1) did not send 64 float32 to rank 0 (bucket 2 of step 407), which waited 5s: its last collective, all-reduce 812 (bucket 0 of step 406) of 1024 float32, ended at 15:13:32.500",
		}},
		{"each waits for the other", []Record{record(0, 1, "receive", lost, 5), record(1, 0, "receive", lost, 5)}, []string{
			"rank 0 (process 700 on node0) did not send 64 float32 to rank 1 (bucket 2 of step 407), which waited 5s: its last collective, all-reduce 812 (bucket 0 of step 406) of 1024 float32, ended at 15:13:32.500",
			"rank 1 (process 701 on node0) did not send 64 float32 to rank 0 (bucket 2 of step 407), which waited 5s: its last collective, all-reduce 812 (bucket 0 of step 406) of 1024 float32, ended at 15:13:32.500",
		}},
		{"asked for", []Record{record(0, 3, "receive", "", 3)}, []string{
			"rank 3 (process 31 on c) did not send 64 float32 to rank 0 (bucket 2 of step 407), which waited 3s: send SIGUSR2 to rank 3 too, to see its last collective",
		}},
		{"asked for between two messages", []Record{record(0, 3, "receive", "", 0.5), idle}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Explain(tt.records, map[int]Place{3: {"c", 31}}); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}
