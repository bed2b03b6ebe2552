package launch

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
)

const (
	lastLines = 8       // of a worker, kept for an error
	maxLine   = 8 << 10 // a longer one is shown in parts
)

// output is where all workers' lines meet.
type output struct {
	mu sync.Mutex
	w  io.Writer // nil: nowhere
}

func (o *output) line(text string) {
	if o.w == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// A window that was closed must not end the training behind it.
	_, _ = io.WriteString(o.w, text+"\n")
}

// lines takes what one worker writes: unchanged into its log, line by line to
// the output, and keeps the last of them.
type lines struct {
	prefix string
	log    io.Writer
	out    *output

	mu    sync.Mutex
	part  []byte // of a line that has not ended
	last  []string
	count int
	err   error // of the log
}

// Write always succeeds, so that a full disk shows in the launcher's error and
// not as a broken pipe in the worker.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.log.Write(p); err != nil && l.err == nil {
		l.err = err
	}
	l.part = append(l.part, p...)
	for {
		end := bytes.IndexByte(l.part, '\n')
		next := end + 1
		if end < 0 && len(l.part) > maxLine {
			end, next = maxLine, maxLine
		}
		if end < 0 {
			return len(p), nil
		}
		l.add(string(l.part[:end]))
		l.part = slices.Delete(l.part, 0, next)
	}
}

func (l *lines) add(text string) {
	text = strings.TrimRight(text, "\r")
	// A progress bar overwrites its line: what counts is what stood there last.
	text = text[strings.LastIndexByte(text, '\r')+1:]
	if l.last = append(l.last, text); len(l.last) > lastLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.count++
	l.out.line(l.prefix + text)
}

// flush shows a last line that has no end, and reports what went wrong.
func (l *lines) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.part) > 0 {
		l.add(string(l.part))
		l.part = nil
	}
	return l.err
}

// tail is the last lines, for an error.
func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n    ")
}

// latest is the number of lines and the last of them.
func (l *lines) latest() (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		return 0, ""
	}
	return l.count, l.last[len(l.last)-1]
}
