package notebook

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Progress shows how much of some work is done:
//
//   - in a cell, as one line that is replaced in place;
//   - in a terminal, as one line on standard error that is rewritten;
//   - in a file or a pipe, as a plain line on standard error from time to time.
//
// Set may be called often: only some of the calls show a line. A Progress may be used by
// several goroutines.
type Progress struct {
	label string
	total int
	begin time.Time
	now   func() time.Time
	show  progressOutput

	mu    sync.Mutex
	count int
	note  string
	shown time.Time // time of the last line
	tenth int       // tenths of the work that were done at the last line
	done  bool
}

// A progressOutput displays the lines of a Progress.
type progressOutput interface {
	// isDue reports whether another line may be shown. since is the time since the last line; tenth is true
	// if another tenth of the work has been done since.
	isDue(since time.Duration, tenth bool) bool
	// showLine shows a line. The line with last = true stays.
	showLine(s string, last bool)
}

// NewProgress shows the progress of work that consists of total units, after label. If total is 0 or
// less, it is unknown, and a count replaces the bar.
func NewProgress(label string, total int) *Progress {
	return newProgress(label, total, newProgressOutput(), time.Now)
}

func newProgress(label string, total int, show progressOutput, now func() time.Time) *Progress {
	p := &Progress{label: label, total: total, begin: now(), now: now, show: show}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh(true)
	return p
}

func newProgressOutput() progressOutput {
	if InNotebook() {
		return &notebookCellOutput{live: NewLive()}
	}
	if fd := int(os.Stderr.Fd()); term.IsTerminal(fd) && os.Getenv("TERM") != "dumb" {
		return &terminalOutput{w: os.Stderr, width: func() int {
			w, _, err := term.GetSize(fd)
			if err != nil || w <= 0 {
				return 80
			}
			return w
		}}
	}
	return fileOutput{os.Stderr}
}

// Set sets the number of units that are done. The note, such as the current loss, may be empty. After
// Done, Set does nothing.
func (p *Progress) Set(n int, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	p.count, p.note = n, note
	p.refresh(false)
}

// Done shows a last line with the current count, the elapsed time and the note. Further calls do nothing.
func (p *Progress) Done(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	p.done, p.note = true, note
	p.show.showLine(p.formatLine(), true)
}

// refresh shows a line if one is due or force is true.
func (p *Progress) refresh(force bool) {
	now, tenth := p.now(), p.tenthsDone()
	if !force && !p.show.isDue(now.Sub(p.shown), tenth > p.tenth) {
		return
	}
	p.shown, p.tenth = now, tenth
	p.show.showLine(p.formatLine(), false)
}

// tenthsDone returns how many tenths of the work are done, or 0 if the total is unknown.
func (p *Progress) tenthsDone() int {
	if p.total <= 0 {
		return 0
	}
	return 10 * min(max(p.count, 0), p.total) / p.total
}

const barWidth = 24

// formatLine returns the line to show: label, bar, count, times and note.
func (p *Progress) formatLine() string {
	var b strings.Builder
	b.WriteString(p.label)
	elapsed := p.now().Sub(p.begin)
	if p.total > 0 {
		full := barWidth * min(max(p.count, 0), p.total) / p.total
		fmt.Fprintf(&b, " [%s%s] %d/%d %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
			p.count, p.total, formatDuration(elapsed))
		if left := p.estimateRemaining(elapsed); left > 0 {
			fmt.Fprintf(&b, ", %s left", formatDuration(left))
		}
	} else {
		fmt.Fprintf(&b, " %d %s", p.count, formatDuration(elapsed))
	}
	if p.note != "" {
		b.WriteString("  " + p.note)
	}
	return b.String()
}

// estimateRemaining extrapolates the rate so far. It returns 0 if no estimate is possible or needed.
func (p *Progress) estimateRemaining(elapsed time.Duration) time.Duration {
	if p.done || p.count <= 0 || p.count >= p.total || elapsed < time.Second {
		return 0
	}
	return time.Duration(float64(elapsed) * float64(p.total-p.count) / float64(p.count))
}

// formatDuration formats a duration as minutes:seconds or hours:minutes:seconds.
func formatDuration(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// notebookCellOutput replaces the previous line in the cell's output. Carriage returns on standard output would
// look the same, but the notebook file would contain every line.
type notebookCellOutput struct{ live *Live }

func (c *notebookCellOutput) isDue(since time.Duration, _ bool) bool {
	return since >= 250*time.Millisecond
}

// showLine ignores errors, because a failed display must not end the work.
func (c *notebookCellOutput) showLine(s string, _ bool) { _ = c.live.Show(s) }

// terminalOutput overwrites the previous line in a terminal with each new line.
type terminalOutput struct {
	w     io.Writer
	width func() int
}

func (t *terminalOutput) isDue(since time.Duration, _ bool) bool {
	return since >= 100*time.Millisecond
}

func (t *terminalOutput) showLine(s string, last bool) {
	// A line as wide as the terminal would wrap, and a wrapped line cannot be
	// rewritten.
	s = truncate(s, t.width()-1)
	end := ""
	if last {
		end = "\n"
	}
	fmt.Fprintf(t.w, "\r%s\x1b[K%s", s, end)
}

func truncate(s string, n int) string {
	if n < 1 || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}

// fileOutput writes a plain line after each tenth of the work, or after 30 seconds if a tenth
// takes longer.
type fileOutput struct{ w io.Writer }

func (f fileOutput) isDue(since time.Duration, tenth bool) bool {
	return tenth && since >= time.Second || since >= 30*time.Second
}

func (f fileOutput) showLine(s string, _ bool) { fmt.Fprintln(f.w, s) }
