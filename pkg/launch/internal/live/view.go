package live

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
)

// View shows a table and a curve, and replaces them when they change. It ignores output errors,
// because a failed display must not end the sweep.
type View interface {
	// Show shows t, and c below it unless it is nil. last is true for the last call.
	Show(t RunTable, c *SpeedupCurve, last bool)
	// DrawsFigures reports whether the view shows the figure of a curve.
	DrawsFigures() bool
}

// NewView returns a view in the running cell. In a program without a kernel, the view writes to w:
// it redraws its lines in place if w is a terminal, and otherwise writes plain lines.
func NewView(w io.Writer) View {
	if notebook.InNotebook() {
		return &notebookCellView{table: notebook.NewLive(), curve: notebook.NewLive()}
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		return &terminalView{w: f, size: func() (width, height int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil || width <= 0 || height <= 0 {
				return 80, 24
			}
			return width, height
		}}
	}
	return &lineView{w: w, shown: map[string]shownRun{}}
}

type notebookCellView struct {
	table, curve *notebook.Live
	shownTable   string
	shownCurve   *SpeedupCurve
}

func (v *notebookCellView) DrawsFigures() bool { return true }

func (v *notebookCellView) Show(t RunTable, c *SpeedupCurve, _ bool) {
	if text := t.HTML(); text != v.shownTable {
		v.shownTable = text
		_ = v.table.Show(t)
	}
	if c != nil && c != v.shownCurve {
		v.shownCurve = c
		_ = v.curve.Show(c)
	}
}

type terminalView struct {
	w     io.Writer
	size  func() (width, height int)
	shown []string
}

func (v *terminalView) DrawsFigures() bool { return false }

func (v *terminalView) Show(t RunTable, c *SpeedupCurve, last bool) {
	width, height := v.size()
	var curve []string
	if c != nil {
		curve = append([]string{""}, c.formatLines()...)
	}
	if last {
		height = 1 << 20 // the last lines stay, and may scroll
	}
	lines := t.formatLines(height - 1 - len(curve))
	lines = append(lines, curve...)
	for i, line := range lines {
		lines[i] = truncate(line, width-1) // a wrapped line cannot be redrawn
	}
	if !last && len(lines) > height-1 {
		lines = lines[:max(1, height-1)]
	}
	text := strings.Join(lines, "\n")
	if text == strings.Join(v.shown, "\n") {
		return
	}
	var b strings.Builder
	if len(v.shown) > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", len(v.shown)) // to the first line
	}
	for _, line := range lines {
		b.WriteString("\r" + line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J") // clear what is below
	v.shown = lines
	_, _ = io.WriteString(v.w, b.String())
}

func truncate(s string, n int) string {
	if n < 1 || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}

// lineView writes one line about a run whenever its state changes or another tenth of its epochs is
// done. If a run has new epochs, at most lineInterval passes between two of its lines.
type lineView struct {
	w       io.Writer
	shown   map[string]shownRun
	heading string
	notes   string
}

type shownRun struct {
	state, note string
	epoch       int
	at          time.Time
}

const lineInterval = 30 * time.Second

func (v *lineView) DrawsFigures() bool { return false }

func (v *lineView) Show(t RunTable, c *SpeedupCurve, last bool) {
	if t.Heading != v.heading {
		v.heading = t.Heading
		_, _ = fmt.Fprintln(v.w, t.Heading)
	}
	for _, r := range t.Rows {
		before, known := v.shown[r.Run]
		if r.State == stateWaiting && r.Job == "" {
			continue // until its turn
		}
		note := r.Note
		if r.State == runs.StatusRunning {
			note = "" // its lines change all the time
		}
		tenth := r.Epochs > 0 && 10*r.Epoch/r.Epochs > 10*before.epoch/r.Epochs && time.Since(before.at) >= time.Second
		if known && before.state == r.State && before.note == note && !tenth &&
			(r.Epoch == before.epoch || time.Since(before.at) < lineInterval) {
			continue
		}
		v.shown[r.Run] = shownRun{r.State, note, r.Epoch, time.Now()}
		_, _ = fmt.Fprintln(v.w, r.formatLine())
	}
	if notes := strings.Join(t.Notes, "\n"); notes != v.notes {
		if v.notes = notes; notes != "" {
			_, _ = fmt.Fprintln(v.w, notes)
		}
	}
	if last && c != nil {
		_, _ = fmt.Fprintln(v.w, c)
	}
}

func (r RunRow) formatLine() string {
	parts := []string{r.State}
	if r.Epoch > 0 {
		parts = append(parts, "epoch "+r.formatEpoch())
	}
	for _, p := range []struct {
		format string
		v      float64
	}{{"%.1f samples/s", r.SamplesPerSecond}, {"loss %.4f", r.Loss}, {"IoU %.4f", r.IoU}} {
		if text := formatNumber(p.format, p.v); text != unknownText {
			parts = append(parts, text)
		}
	}
	if !r.End.IsZero() {
		parts = append(parts, "ends about "+formatEstimatedEnd(r.End, time.Now()))
	}
	line := r.Run + ": " + strings.Join(parts, ", ")
	if r.Note != "" {
		line += ": " + r.Note
	}
	return line
}
