package launch

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/runs"
)

// logTail copies the lines that are appended to the log of a worker which another process
// writes.
type logTail struct {
	path   string
	offset int64
	out    *output.Writer
}

// newLogTail returns a logTail for the log of a rank of r.
func (r *run) newLogTail(rank int) *logTail {
	w := &worker{rank: rank, ranks: r.replicasPerProcess()}
	return &logTail{
		path: filepath.Join(r.dir, runs.WorkerLogName(rank)),
		out:  output.NewWriter(r.linePrefix(w), io.Discard, r.out),
	}
}

// linePrefix returns the text before each line of a worker in the shared output.
func (r *run) linePrefix(w *worker) string {
	return "[" + strings.TrimSpace(fmt.Sprintf("%s n%d s%d %s", r.variant.label, r.workers, r.seed, w.name())) + "] "
}

// copyNewLines copies what was appended since the last call. An error means that there is no
// log yet.
func (t *logTail) copyNewLines() {
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
	n, _ := io.Copy(t.out, f)
	t.offset += n
}

// copyLogs copies the new lines of all workers to the output of the sweep.
func (r *slurmRun) copyLogs() {
	for _, t := range r.tails {
		t.copyNewLines()
	}
}

// lastLines returns the last lines of a process of the run, or if it has written none, of the
// first process that has.
func (r *slurmRun) lastLines(process int) string {
	if process < len(r.tails) {
		if text := r.tails[process].out.LastLines(); text != "" {
			return text
		}
	}
	for _, t := range r.tails {
		if text := t.out.LastLines(); text != "" {
			return text
		}
	}
	return ""
}

// Tail returns the last lines of the workers' output of a run, given by its name as in
// RunStatus, at most n lines per worker. A worker without output is left out.
func (j *Job) Tail(run string, n int) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("read output of run %s: got %d lines: use at least 1", run, n)
	}
	var names []string
	for _, s := range j.sweep.status() {
		if names = append(names, s.Name); s.Name != run {
			continue
		}
		var b strings.Builder
		for rank := range s.Workers {
			lines := output.ReadLastLines(filepath.Join(s.Dir, runs.WorkerLogName(rank)), n)
			if lines != "" {
				fmt.Fprintf(&b, "rank %d:\n    %s\n", rank, lines)
			}
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("read output of run %s: unknown run, want one of %s", run, strings.Join(names, ", "))
}
