package events

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/recordtest"
)

// sameEvent reads an Event with readFastEvent and readAnyEvent, compares the
// results, and reports whether readFastEvent accepted it.
func sameEvent(t *testing.T, b []byte) (usual bool) {
	t.Helper()
	a, whole := NewParser(), NewParser()
	usual = a.readFastEvent(b)
	if !usual {
		return false
	}
	if err := whole.readAnyEvent(b); err != nil {
		t.Errorf("%x: %v", b, err)
	}
	told := func(r *Parser) string {
		text := fmt.Sprint(math.Float64bits(r.began), r.scalars, r.dropped, r.restarted)
		for _, c := range r.curves {
			text += fmt.Sprintf(" %q %v %x %x", c.Name, c.Steps, c.Values, c.Times)
		}
		return text
	}
	if got, want := told(a), told(whole); got != want {
		t.Errorf("%x: %s, expected %s", b, got, want)
	}
	return true
}

// TestFastEvents compares readFastEvent with readAnyEvent.
func TestFastEvents(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	usual := 0
	for range 20_000 {
		tag := strings.Repeat("x", rng.IntN(130)*rng.IntN(2)) + "Loss/train"[:rng.IntN(11)]
		b := recordtest.EncodeEvent(rng.Float64(), int(rng.Uint64()>>rng.IntN(64)), recordtest.EncodeScalar(tag, rng.Float32()))
		for range rng.IntN(3) * rng.IntN(2) {
			b[rng.IntN(len(b))] = byte(rng.IntN(256))
		}
		if sameEvent(t, b) {
			usual++
		}
		sameEvent(t, b[:rng.IntN(len(b))])
	}
	if usual < 2000 {
		t.Errorf("%d of 20000 events are usual, expected most of those that are short", usual)
	}
	for _, b := range [][]byte{recordtest.EncodeEvent(5, 0, recordtest.EncodeScalar("a", 1)), recordtest.EncodeEvent(5, 127, recordtest.EncodeScalar("Loss/train", 1)), recordtest.EncodeEvent(5, 1<<28-1, recordtest.EncodeScalar("Loss/train", 1)), recordtest.EncodeEvent(math.NaN(), 300, recordtest.EncodeScalar("", 1))} {
		if !sameEvent(t, b) && len(b) > 22 {
			t.Errorf("%x is not usual", b)
		}
	}
}

// FuzzFastEvents compares readFastEvent with readAnyEvent.
func FuzzFastEvents(f *testing.F) {
	f.Add(recordtest.EncodeEvent(5, 1000, recordtest.EncodeScalar("Loss/train", 1)))
	f.Add(recordtest.EncodeEvent(5, 1<<28-1, recordtest.EncodeScalar("Loss/train", 1)))
	f.Fuzz(func(t *testing.T, b []byte) { sameEvent(t, b) })
}
