package runs

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs/flight"
)

// TestRecordsOfCollectives checks that the record of a rank that waited in vain is explained if
// the run failed, but not if it was canceled: then the rank only left a moment later than
// another one. A record that was asked for is explained in both cases.
func TestRecordsOfCollectives(t *testing.T) {
	left := "all-reduce 5: rank 1 has left (last seen in all-reduce 4)"
	for _, c := range []struct {
		status, failure string
		explained       bool
	}{
		{StatusFailed, left, true},
		{StatusCanceled, left, false},
		{StatusCanceled, "", true},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		w, err := Create(dir, sampleInfo())
		check(t, err)
		check(t, w.Finish(c.status, errors.New("the reason")))
		begin := time.Date(2026, 11, 24, 15, 0, 0, 0, time.UTC)
		check(t, flight.Write(dir, flight.Record{
			Header: flight.Header{Rank: 0, World: 2, Error: c.failure, Written: begin.Add(time.Second)},
			Calls:  []flight.Call{{Number: 5, Kind: "all-reduce", Elements: 9, Bits: 32, Begin: begin, End: begin.Add(time.Second), Failed: true}},
		}))
		run, err := Read(dir)
		check(t, err)
		explained := false
		for _, p := range run.Problems {
			explained = explained || strings.Contains(p.Reason, "all-reduce 5")
		}
		if explained != c.explained {
			t.Errorf("status %s, record with the error %q: the problems are %v, explained should be %v", c.status, c.failure, run.Problems, c.explained)
		}
	}
}
