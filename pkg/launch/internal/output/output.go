// Package output collects the output of worker processes.
package output

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
)

// MaxKeptLines is the number of last lines of each worker kept for errors.
const MaxKeptLines = 8

// maxLineBytes limits the size of a line. Longer lines are split.
const maxLineBytes = 8 << 10

// LineWriter writes the lines of all workers to one writer, one line at a time.
type LineWriter struct {
	mu sync.Mutex
	w  io.Writer // nil: discard all lines
}

// NewLineWriter returns a LineWriter that writes to w, or discards all lines if w is nil.
func NewLineWriter(w io.Writer) *LineWriter { return &LineWriter{w: w} }

// WriteLine writes one line.
func (o *LineWriter) WriteLine(text string) {
	if o.w == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// The training must continue if the terminal window was closed.
	_, _ = io.WriteString(o.w, text+"\n")
}

// WorkerWriter receives the output of one worker. It copies the output to the worker's log, unchanged
// except for long goroutine dumps, and line by line to the output that all workers share. It also
// keeps the last lines.
type WorkerWriter struct {
	prefix string
	log    io.Writer
	out    *LineWriter

	mu    sync.Mutex
	dump  dumpLimiter
	part  []byte // start of a line that has not ended
	last  []string
	count int
	err   error // of writing to the log
}

// NewWriter returns a Writer for the output of a worker. prefix is the text before each line in the
// shared output out.
func NewWriter(prefix string, log io.Writer, out *LineWriter) *WorkerWriter {
	return &WorkerWriter{prefix: prefix, log: log, out: out}
}

// Write receives output of the worker. It always succeeds: if the disk is full, Flush returns the
// error, and the worker does not see a broken pipe.
func (l *WorkerWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(l.dump.limit(p))
	return len(p), nil
}

// write writes p to the log, and its complete lines to the shared output. The caller holds mu.
func (l *WorkerWriter) write(p []byte) {
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
			return
		}
		l.addLine(string(l.part[:end]))
		l.part = slices.Delete(l.part, 0, next)
	}
}

func (l *WorkerWriter) addLine(text string) {
	text = strings.TrimRight(text, "\r")
	// A progress bar overwrites its line: only the last version counts.
	text = text[strings.LastIndexByte(text, '\r')+1:]
	if l.last = append(l.last, text); len(l.last) > MaxKeptLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.count++
	l.out.WriteLine(l.prefix + text)
}

// Flush adds a last line that has no line end. It returns the first error of writing to the log.
func (l *WorkerWriter) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(l.dump.flush())
	if len(l.part) > 0 {
		l.addLine(string(l.part))
		l.part = nil
	}
	return l.err
}

// LastLines returns the last lines, indented for an error message.
func (l *WorkerWriter) LastLines() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n    ")
}

// LastLine returns the number of lines so far, and the last of them.
func (l *WorkerWriter) LastLine() (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		return 0, ""
	}
	return l.count, l.last[len(l.last)-1]
}

// ReadLastLines returns the last lines of a file, at most n, indented, or "" if it has none or
// cannot be read.
func ReadLastLines(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-maxLineBytes), io.SeekStart)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n    ")
}

// LastLinesIntro introduces the last lines of a worker's output in an error message.
const LastLinesIntro = "its last lines:\n    "

// NotebookEndedText is the text of the error of a sweep that ended because its notebook's kernel did.
const NotebookEndedText = "ended with the notebook's kernel"

// SummarizeError shortens an error message to its first line, for a table that has no room for a
// worker's output. If a user or the end of the kernel stopped the sweep, the summary says so in
// plain words, and if resumable is set, it also says how to continue the sweep.
func SummarizeError(text string, resumable bool) string {
	text, _, _ = strings.Cut(text, "\n")
	announcement, _, _ := strings.Cut(LastLinesIntro, "\n")
	text = strings.TrimSuffix(text, "; "+announcement)
	if before, ok := strings.CutSuffix(text, context.Canceled.Error()); ok {
		text = before + "stopped before its end"
	} else if !strings.HasSuffix(text, NotebookEndedText) {
		return text
	}
	if resumable {
		text += "; the same launch with Resume (--resume) continues it"
	}
	return text
}
