package output

import (
	"bytes"
	"regexp"
)

// maxDumpBytes limits how much of a goroutine dump is kept from a worker's output. A Go program
// that crashes writes the stacks of all its goroutines, which can be hundreds of MB.
const maxDumpBytes = 1 << 20

// omittedStacksLine replaces the rest of a dump that is longer than maxDumpBytes.
const omittedStacksLine = "[the stacks of the other goroutines are left out]\n"

// stackLinePattern matches a line of a goroutine dump: the header of a goroutine, a call, a source
// position, or a note of the runtime. It hardly matches other output, and counts only inside a
// dump.
var stackLinePattern = regexp.MustCompile(`^(goroutine \d+ .*\]:|\t.*|[^\s(]+\(.*\)|panic\(.*\)|created by .*|\.\.\.\d* ?.*frames elided\.\.\.|runtime stack:|)\r?\n$`)

var goroutineHeader = []byte("goroutine ")

// dumpLimiter shortens each goroutine dump in a worker's output to maxDumpBytes.
type dumpLimiter struct {
	dumped    int    // bytes of the dump so far; 0: no dump
	part      []byte // start of a line of a dump
	midOfLine bool   // whether the last byte was in the middle of a line, outside of a dump
}

// limit returns the part of the output p that is to be kept. It holds back an incomplete line of a dump.
func (d *dumpLimiter) limit(p []byte) []byte {
	if d.dumped == 0 && !bytes.Contains(p, goroutineHeader) { // the usual case
		d.midOfLine = len(p) > 0 && p[len(p)-1] != '\n' || len(p) == 0 && d.midOfLine
		return p
	}
	var kept []byte
	p = append(d.part, p...)
	d.part = nil
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			if d.dumped > 0 && len(p) <= maxLineBytes {
				d.part = bytes.Clone(p)
			} else {
				kept, d.dumped, d.midOfLine = append(kept, p...), 0, true
			}
			break
		}
		line := p[:end]
		p = p[end:]
		inDump := d.dumped > 0 || !d.midOfLine && bytes.HasPrefix(line, goroutineHeader)
		d.midOfLine = false
		if !inDump || !stackLinePattern.Match(line) {
			kept, d.dumped = append(kept, line...), 0
			continue
		}
		before := d.dumped
		if d.dumped += len(line); d.dumped <= maxDumpBytes {
			kept = append(kept, line...)
		} else if before <= maxDumpBytes {
			kept = append(kept, omittedStacksLine...)
		}
	}
	return kept
}

func (d *dumpLimiter) flush() []byte {
	part := d.part
	if d.part = nil; d.dumped > maxDumpBytes {
		return nil
	}
	return part
}
