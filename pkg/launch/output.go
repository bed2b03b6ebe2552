package launch

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
)

const (
	keptLines    = 8       // number of last lines of each worker that are kept for errors
	maxLineBytes = 8 << 10 // bytes; longer lines are split
)

// lineWriter writes the lines of all workers to one writer, one line at a time.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer // nil: discard all lines
}

// writeLine writes one line.
func (o *lineWriter) writeLine(text string) {
	if o.w == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// The training must continue if the terminal window was closed.
	_, _ = io.WriteString(o.w, text+"\n")
}

// workerOutput receives the output of one worker. It writes the output unchanged to the
// worker's log and line by line to the shared output, and keeps the last lines.
type workerOutput struct {
	prefix string
	log    io.Writer
	out    *lineWriter

	mu    sync.Mutex
	part  []byte // start of a line that has not ended
	last  []string
	count int
	err   error // of writing to the log
}

// Write receives the next bytes of the worker's output. It always succeeds, so that a full
// disk causes an error of the launcher and not a broken pipe in the worker.
func (l *workerOutput) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.log.Write(p); err != nil && l.err == nil {
		l.err = err
	}
	l.part = append(l.part, p...)
	for {
		end := bytes.IndexByte(l.part, '\n')
		next := end + 1
		if end < 0 && len(l.part) > maxLineBytes {
			end, next = maxLineBytes, maxLineBytes
		}
		if end < 0 {
			return len(p), nil
		}
		l.addLine(string(l.part[:end]))
		l.part = slices.Delete(l.part, 0, next)
	}
}

// addLine writes a line to the shared output and keeps it as the last line. It leaves out
// everything before the last carriage return in the line.
func (l *workerOutput) addLine(text string) {
	text = strings.TrimRight(text, "\r")
	// A progress bar overwrites its line: only the last version counts.
	text = text[strings.LastIndexByte(text, '\r')+1:]
	if l.last = append(l.last, text); len(l.last) > keptLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.count++
	l.out.writeLine(l.prefix + text)
}

// flush adds a last line that has no line end. It returns the first error of writing to the
// log.
func (l *workerOutput) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.part) > 0 {
		l.addLine(string(l.part))
		l.part = nil
	}
	return l.err
}

// formatLastLines returns the last lines, indented for an error message.
func (l *workerOutput) formatLastLines() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n    ")
}

// lastLine returns the number of lines so far, and the last of them.
func (l *workerOutput) lastLine() (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		return 0, ""
	}
	return l.count, l.last[len(l.last)-1]
}
