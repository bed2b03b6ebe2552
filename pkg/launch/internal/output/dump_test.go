package output

import (
	"bytes"
	"strings"
	"testing"
)

// oneGoroutine is a goroutine as the runtime of Go 1.26 writes it.
const oneGoroutine = `goroutine 7 gp=0x3f1a [select (no cases)]:
runtime.gopark(0x0?, 0x0?)
	/usr/local/go/src/runtime/proc.go:460 +0xce fp=0xc00
main.(*T).run[...](...)
	/home/anna/main.go:12 +0x1b
...12 additional frames elided...
created by main.main in goroutine 1
	/home/anna/main.go:11 +0x25

`

// TestDumpIsLimited: the beginning of a huge dump is kept, and so is everything else, however the
// output is divided into writes.
func TestDumpIsLimited(t *testing.T) {
	start := "epoch 1\nfatal error: stack overflow\n\n"
	dump := strings.Repeat(oneGoroutine, 2*maxDumpBytes/len(oneGoroutine))
	after := "epoch 2 (the program has printed stacks only)\n"
	output := start + dump + after + oneGoroutine + "no end of line"
	for _, size := range []int{1<<15 + 1, len(output)} {
		var log, shared bytes.Buffer
		w := NewWriter("", &log, NewLineWriter(&shared))
		for rest := []byte(output); len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		got := log.String()
		if !strings.HasPrefix(got, start+oneGoroutine) || !strings.HasSuffix(got, "\n"+omittedStacksLine+after+oneGoroutine+"no end of line") {
			t.Errorf("writes of %d bytes: got %.300s … %s", size, got, got[max(0, len(got)-700):])
		}
		if most := maxDumpBytes + len(start) + len(omittedStacksLine) + len(after) + len(oneGoroutine) + 20; len(got) > most || len(got) < maxDumpBytes {
			t.Errorf("writes of %d bytes: got %d bytes, want at most %d", size, len(got), most)
		}
		if shared.String() != got+"\n" {
			t.Error("the shared output differs from the log")
		}
	}
}

// TestOtherOutputIsComplete: only dumps of goroutines are limited.
func TestOtherOutputIsComplete(t *testing.T) {
	for name, output := range map[string]string{
		"one-line calls":        strings.Repeat("step(1) done\n", maxDumpBytes/10),
		"stacks between lines":  strings.Repeat(oneGoroutine+"epoch 1: loss 0.5\n", 5*maxDumpBytes/4/len(oneGoroutine)),
		"in the middle":         strings.Repeat("at goroutine 7 [running]:\nmain.f()\n", maxDumpBytes/30),
		"no lines":              strings.Repeat("goroutine ", maxDumpBytes/9),
		"progress bars":         strings.Repeat("\r10 %\r20 %", maxDumpBytes/9),
		"one goroutine, binary": oneGoroutine + strings.Repeat("\x00\xff\n", maxDumpBytes/2),
	} {
		var log bytes.Buffer
		w := NewWriter("", &log, NewLineWriter(nil))
		for rest := []byte(output); len(rest) > 0; {
			n := min(4099, len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil || log.String() != output {
			t.Errorf("%s: got %d of %d bytes, %v", name, log.Len(), len(output), err)
		}
	}
}
