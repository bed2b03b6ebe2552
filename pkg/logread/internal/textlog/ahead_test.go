package textlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/logread/internal/recordtest"
)

// TestAheadOfClockSetBack checks that a clock that was set back is reported if
// the stamp at which it happens begins a chunk that was read ahead.
func TestAheadOfClockSetBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for _, back := range []time.Duration{time.Hour, 1500 * time.Millisecond, 500 * time.Millisecond} {
		text := sc21Text(rng, 1, 200)
		at := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
		var b bytes.Buffer
		for i := range 2000 { // every epoch's first line, with which a piece may begin
			for k, line := range []string{fmt.Sprintf("Time taken for epoch %d is 750.5 sec, avg 87.25 samples/sec", 201+i), "  Avg train loss=0.5", "  Avg val loss=0.25"} {
				if at = at.Add(10 * time.Second); k == 0 {
					at = at.Add(-back - 10*time.Second)
				}
				fmt.Fprintf(&b, "%s - root - INFO - %s\n", at.Format("2006-01-02 15:04:05,000"), line)
			}
		}
		text = append(text, b.Bytes()...)
		want := slowText(text)
		if told := strings.Contains(want, "the clock goes back"); told != (back > time.Second) {
			t.Fatalf("back by %s: told of %v", back, told)
		}
		for _, abreast := range []int{2, 3} {
			for _, least := range []int64{1 << 11, 1 << 14} {
				if got := fastText(t.Context(), text, least, abreast, int(least)); got != want {
					t.Errorf("back by %s, pieces of %d bytes, %d abreast: %s", back, least, abreast, recordtest.DescribeDifference(got, want))
				}
			}
		}
	}
}
