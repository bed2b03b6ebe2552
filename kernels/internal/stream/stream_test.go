package stream

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// log is a writer that tests read while the pipe writes.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func open(t *testing.T, l *log) *Pipe {
	t.Helper()
	p, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestFlushWaitsForEverything(t *testing.T) {
	var l log
	p := open(t, &l)
	var want strings.Builder
	for i := range 2000 {
		line := fmt.Sprintln("line", i)
		want.WriteString(line)
		if _, err := p.File().WriteString(line); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			p.Flush()
			if got := l.String(); got != want.String() {
				t.Fatalf("after line %d and Flush the output has %d bytes, want %d", i, len(got), want.Len())
			}
		}
	}
}

func TestOutputIsLive(t *testing.T) {
	var l log
	p := open(t, &l)
	if _, err := p.File().WriteString("now"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); l.String() != "now"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was passed on without a Flush")
		}
	}
}

func TestSetOutputDividesAtTheCall(t *testing.T) {
	var first, second log
	p := open(t, &first)
	if _, err := p.File().WriteString("one"); err != nil {
		t.Fatal(err)
	}
	p.SetOutput(&second)
	if _, err := p.File().WriteString("two"); err != nil {
		t.Fatal(err)
	}
	p.Flush()
	if first.String() != "one" || second.String() != "two" {
		t.Errorf("first cell has %q, second has %q", first.String(), second.String())
	}
}

// pieces records each write by itself.
type pieces struct{ got []string }

func (p *pieces) Write(b []byte) (int, error) {
	p.got = append(p.got, string(b))
	return len(b), nil
}

func TestCharacterIsNotTornApart(t *testing.T) {
	var out pieces
	p := &Pipe{out: &out}
	for _, b := range []string{"µ"[:1], "µ"[1:] + "s", "€"[:2], "€"[2:], "\xff", "end"} {
		p.writeCompleteCharacters([]byte(b))
	}
	// A byte that can begin no character is passed on as it is.
	if got, want := fmt.Sprintf("%q", out.got), `["µs" "€" "\xff" "end"]`; got != want {
		t.Errorf("pieces %s, want %s", got, want)
	}
}
