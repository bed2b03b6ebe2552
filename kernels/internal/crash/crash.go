// Package crash records in a file how a kernel ended, for the notebook's next kernel.
//
// The file begins with a line of fixed length with the number of the running cell. If the Go runtime ends
// the process, another process, the recorder, appends the runtime's message and the stacks of all goroutines
// (see recorder.go). An orderly shutdown removes the file, so a new kernel that finds one knows that its
// kernel crashed.
package crash

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	headSize = 32
	running  = "cell %d runs"
	idle     = "cell %d ended"
	maxRead  = 64 << 10 // bytes; enough for the cause, which precedes the stacks of all goroutines
	maxCause = 1000     // maximum number of bytes of a cause to show
)

// A File is the crash file of a running kernel. The methods of a nil File do nothing.
type File struct{ f *os.File }

// crashPath returns the path of the crash file for a connection file, which a restarted kernel gets again. Jupyter
// ignores hidden files, whose names begin with a period.
func crashPath(connection string) string {
	name := strings.TrimSuffix(filepath.Base(connection), ".json")
	return filepath.Join(filepath.Dir(connection), ".lockstep-"+name+".crash")
}

// Open creates the crash file of a kernel, to which the Go runtime writes if it ends the process. previous
// describes how the previous kernel of this connection ended. It is "" if there was none, if that kernel
// shut down in order, or if it ended between two cells without a message.
func Open(connection string) (file *File, previous string, err error) {
	old, err := os.Open(crashPath(connection))
	if err == nil {
		awaitRecorder(old)
		var text []byte
		text, err = io.ReadAll(io.LimitReader(old, maxRead))
		err = errors.Join(err, old.Close(), os.Remove(crashPath(connection)))
		previous = describeEnd(string(text))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, previous, fmt.Errorf("read crash file of the previous kernel: %w", err)
	}
	removeLeftoverFiles(filepath.Dir(connection))
	f, err := os.OpenFile(crashPath(connection), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, previous, fmt.Errorf("create crash file: %w", err)
	}
	file = &File{f}
	if _, err = f.WriteString(formatState(idle, 0)); err == nil { // the recorder appends to this line
		err = startRecorder(f.Name())
	}
	if err != nil {
		return nil, previous, errors.Join(fmt.Errorf("create crash file: %w", err), file.Remove())
	}
	return file, previous, nil
}

// removeLeftoverFiles removes the crash files of kernels that will not be restarted, because Jupyter has removed
// their connection files.
func removeLeftoverFiles(dir string) {
	files, _ := filepath.Glob(crashPath(filepath.Join(dir, "*"))) // the pattern is valid
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), ".lockstep-"), ".crash")
		_, withSuffix := os.Stat(filepath.Join(dir, name+".json"))
		_, without := os.Stat(filepath.Join(dir, name))
		if errors.Is(withSuffix, fs.ErrNotExist) && errors.Is(without, fs.ErrNotExist) {
			_ = os.Remove(file) // it may belong to another user
		}
	}
}

// formatState returns the first line of a crash file, padded to headSize bytes. format is running or idle.
func formatState(format string, cell int) string {
	return fmt.Sprintf("%-*s\n", headSize-1, fmt.Sprintf(format, cell))
}

// Begin records that the cell with the given number is running.
func (c *File) Begin(cell int) { c.writeState(running, cell) }

// End records that the cell with the given number has ended.
func (c *File) End(cell int) { c.writeState(idle, cell) }

func (c *File) writeState(format string, cell int) {
	if c != nil {
		_, _ = c.f.WriteAt([]byte(formatState(format, cell)), 0) // a full disk must not fail the cell
	}
}

// WriteCause records why the kernel is about to exit.
func (c *File) WriteCause(cause string) {
	if c != nil {
		_, _ = c.f.WriteString(cause + "\n") // the kernel exits even if this fails
	}
}

// Remove removes the file in an orderly shutdown.
func (c *File) Remove() error {
	if c == nil {
		return nil
	}
	return errors.Join(os.Remove(c.f.Name()), c.f.Close())
}

// describeEnd describes how a kernel ended, from the text of its crash file. It returns "" if the kernel
// ended between two cells without a message.
func describeEnd(text string) string {
	var cell int
	var where string
	if n, _ := fmt.Sscanf(text, running, &cell); n == 1 && strings.HasPrefix(text, fmt.Sprintf(running, cell)) {
		where = fmt.Sprintf("while cell [%d] ran", cell)
	} else if n == 1 && cell > 0 {
		where = fmt.Sprintf("after cell [%d]", cell)
	} else {
		where = "before its first cell"
	}
	why := ""
	if len(text) > headSize {
		why = parseCause(text[headSize:])
	}
	const lost = "; its variables are lost"
	switch {
	case why != "":
		return "the kernel ended " + where + ": " + why + lost
	case strings.HasPrefix(where, "while"):
		return "the kernel ended " + where + " without a message: it was killed, by the system for lack of memory or by a user, " +
			"or compiled code called os.Exit or log.Fatal" + lost
	}
	return ""
}

// parseCause returns the runtime's message: the lines before the goroutines' stacks. Some fatal errors have
// none; then the functions in the first stack determine the message.
func parseCause(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" && len(lines) > 0 || strings.HasPrefix(line, "goroutine ") || line == "runtime stack:" {
			break
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	first := strings.ToValidUTF8(strings.Join(lines, "; "), "\ufffd")
	switch {
	case len(first) > maxCause:
		return strings.ToValidUTF8(first[:maxCause], "") + "…"
	case first != "":
		return first
	case strings.TrimSpace(text) == "":
		return ""
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n\n") // the stack in which it happened
	for _, known := range [][2]string{
		{"internal/runtime/maps.fatal(", "fatal error: several goroutines used a map at once, and one of them wrote to it"},
		{"internal/sync.fatal(", "fatal error: a mutex was unlocked that was not locked"},
		{"sync.fatal(", "fatal error: a mutex was unlocked that was not locked"},
		{"runtime.newstack(", "fatal error: stack overflow: a function calls itself without end"},
		{"runtime.mallocgc(", "fatal error: out of memory"},
		{"runtime.(*mheap).grow(", "fatal error: out of memory"},
	} {
		if strings.Contains(text, "\n"+known[0]) {
			return known[1]
		}
	}
	return "fatal error, see the log of the Jupyter server"
}
