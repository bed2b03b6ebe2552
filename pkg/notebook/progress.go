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

// A Progress shows how far a piece of work has come. Where it stands decides
// how it looks:
//
//   - in a cell, one line that is replaced in place;
//   - in a terminal, one line of standard error that is rewritten;
//   - in a file or a pipe, a plain line of standard error now and then.
//
// Set may be called as often as the work likes: what is shown is bounded. A
// Progress may be used by several goroutines.
type Progress struct {
	label string
	total int
	begin time.Time
	now   func() time.Time
	show  surface

	mu    sync.Mutex
	count int
	note  string
	shown time.Time // when a line was last shown
	tenth int       // tenths of the work done when a line was last shown
	done  bool
}

// A surface is a place that shows a Progress.
type surface interface {
	// due reports whether another line may be shown, given the time since the
	// last one and whether another tenth of the work was done meanwhile.
	due(since time.Duration, tenth bool) bool
	// line shows the line; last is true for the one that stays.
	line(s string, last bool)
}

// NewProgress starts a display named label over total units of work. A total
// of 0 or less means that it is not known, and a count is shown in place of a
// bar.
func NewProgress(label string, total int) *Progress {
	return newProgress(label, total, newSurface(), time.Now)
}

// newProgress lets a test bring its own surface and clock.
func newProgress(label string, total int, show surface, now func() time.Time) *Progress {
	p := &Progress{label: label, total: total, begin: now(), now: now, show: show}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh(true)
	return p
}

func newSurface() surface {
	if InNotebook() {
		return &cellSurface{live: NewLive()}
	}
	if fd := int(os.Stderr.Fd()); term.IsTerminal(fd) && os.Getenv("TERM") != "dumb" {
		return &terminalSurface{w: os.Stderr, width: func() int {
			w, _, err := term.GetSize(fd)
			if err != nil || w <= 0 {
				return 80
			}
			return w
		}}
	}
	return fileSurface{os.Stderr}
}

// Set says that n units are done. The note, such as the current loss, is shown
// behind the count; "" leaves it empty. After Done, Set does nothing.
func (p *Progress) Set(n int, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	p.count, p.note = n, note
	p.refresh(false)
}

// Done shows a last line that stays: the count as it is, the time it took and
// the note. Further calls do nothing.
func (p *Progress) Done(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	p.done, p.note = true, note
	p.show.line(p.text(), true)
}

// refresh shows the line if the surface has room for another, or if forced.
func (p *Progress) refresh(force bool) {
	now, tenth := p.now(), p.tenths()
	if !force && !p.show.due(now.Sub(p.shown), tenth > p.tenth) {
		return
	}
	p.shown, p.tenth = now, tenth
	p.show.line(p.text(), false)
}

// tenths returns how many tenths of the work are done.
func (p *Progress) tenths() int {
	if p.total <= 0 {
		return 0
	}
	return 10 * min(max(p.count, 0), p.total) / p.total
}

const barWidth = 24

// text is the line: label, bar, count, times, note.
func (p *Progress) text() string {
	var b strings.Builder
	b.WriteString(p.label)
	elapsed := p.now().Sub(p.begin)
	if p.total > 0 {
		full := barWidth * min(max(p.count, 0), p.total) / p.total
		fmt.Fprintf(&b, " [%s%s] %d/%d %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
			p.count, p.total, clock(elapsed))
		if left := p.remaining(elapsed); left > 0 {
			fmt.Fprintf(&b, ", %s left", clock(left))
		}
	} else {
		fmt.Fprintf(&b, " %d %s", p.count, clock(elapsed))
	}
	if p.note != "" {
		b.WriteString("  " + p.note)
	}
	return b.String()
}

// remaining estimates the time that is left from the rate so far; 0 means that
// there is nothing to say.
func (p *Progress) remaining(elapsed time.Duration) time.Duration {
	if p.done || p.count <= 0 || p.count >= p.total || elapsed < time.Second {
		return 0
	}
	return time.Duration(float64(elapsed) * float64(p.total-p.count) / float64(p.count))
}

// clock writes a duration as minutes:seconds or hours:minutes:seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// cellSurface replaces one output of the cell. A carriage return on standard
// output would do on the screen, but every line would be kept in the notebook
// file.
type cellSurface struct{ live *Live }

func (c *cellSurface) due(since time.Duration, _ bool) bool { return since >= 250*time.Millisecond }

// line shows s as text; a display that fails must not end the work that it
// follows, so its error is dropped.
func (c *cellSurface) line(s string, _ bool) { _ = c.live.Show(s) }

// terminalSurface rewrites one line of a terminal.
type terminalSurface struct {
	w     io.Writer
	width func() int
}

func (t *terminalSurface) due(since time.Duration, _ bool) bool { return since >= 100*time.Millisecond }

func (t *terminalSurface) line(s string, last bool) {
	// A line as wide as the terminal would wrap, and a wrapped line cannot be
	// rewritten.
	s = truncate(s, t.width()-1)
	end := ""
	if last {
		end = "\n"
	}
	fmt.Fprintf(t.w, "\r%s\x1b[K%s", s, end)
}

// truncate cuts s to at most n characters.
func truncate(s string, n int) string {
	if n < 1 || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}

// fileSurface writes a plain line at each tenth of the work, and twice a minute
// when a tenth takes longer.
type fileSurface struct{ w io.Writer }

func (f fileSurface) due(since time.Duration, tenth bool) bool {
	return tenth && since >= time.Second || since >= 30*time.Second
}

func (f fileSurface) line(s string, _ bool) { fmt.Fprintln(f.w, s) }
