package output

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// LogTail copies the lines appended to a worker's log, which another process writes.
type LogTail struct {
	Out *WorkerWriter // receives the lines

	path   string
	offset int64
}

// NewTail returns a Tail for the log at path. prefix is the text before each line in the shared
// output out.
func NewTail(path, prefix string, out *LineWriter) *LogTail {
	return &LogTail{path: path, Out: NewWriter(prefix, io.Discard, out)}
}

// Path returns the path of the log.
func (t *LogTail) Path() string { return t.path }

// SkipExistingLines makes CopyNewLines start at the current end of the log.
func (t *LogTail) SkipExistingLines() {
	if stat, err := os.Stat(t.path); err == nil {
		t.offset = stat.Size()
	}
}

// CopyNewLines copies to Out what was appended to the log since the last call. If the log does not
// exist, it does nothing.
func (t *LogTail) CopyNewLines() {
	f, err := os.Open(t.path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if stat, err := f.Stat(); err == nil && stat.Size() < t.offset { // the file was truncated
		t.offset = 0
	}
	if _, err := f.Seek(t.offset, io.SeekStart); err != nil {
		return
	}
	n, _ := io.Copy(t.Out, f)
	t.offset += n
}

// LineCounter counts the lines of a growing file.
type LineCounter struct {
	Path string

	offset int64
	count  int
	last   string
}

// ReadNewLines reads the lines appended since the last call. It returns the number of complete lines and
// the last of them.
func (c *LineCounter) ReadNewLines() (count int, last string) {
	f, err := os.Open(c.Path)
	if err != nil {
		return c.count, c.last
	}
	defer func() { _ = f.Close() }()
	if stat, err := f.Stat(); err == nil && stat.Size() < c.offset { // the file was truncated
		*c = LineCounter{Path: c.Path}
	}
	if _, err := f.Seek(c.offset, io.SeekStart); err != nil {
		return c.count, c.last
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return c.count, c.last
	}
	complete := text[:bytes.LastIndexByte(text, '\n')+1]
	if len(complete) == 0 {
		return c.count, c.last
	}
	c.offset += int64(len(complete))
	c.count += bytes.Count(complete, []byte("\n"))
	line := strings.TrimRight(string(complete), "\r\n")
	line = line[strings.LastIndexAny(line, "\r\n")+1:]
	c.last = line
	return c.count, c.last
}
