package notebook

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
)

// Display shows v now, without waiting for the end of the cell.
//
// In a notebook v is shown in the richest form that it has: by a method
// HTML() string, SVG() string, Markdown() string, Latex() string, PNG() []byte,
// JPEG() []byte, PDF() []byte or JSON() map[string]any, as a picture if it is
// an image.Image, as a table or a drawing if it is a gota DataFrame or a
// *plot.Plot, and otherwise as text. In a terminal v is printed as text on
// standard output. An error says that v could not be drawn.
func Display(v any) error {
	if h := hook.Load(); h != nil {
		return h.Display(v, "", false)
	}
	return printText(v)
}

// printText writes v on standard output, ending with a newline.
func printText(v any) error {
	text := fmt.Sprint(v)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if _, err := os.Stdout.WriteString(text); err != nil {
		return fmt.Errorf("display value: %w", err)
	}
	return nil
}

// A Live is one place in a cell's output whose content is replaced: a table or
// a curve that follows a run. It is not safe for use by several goroutines at
// once.
type Live struct {
	id    string
	shown bool
}

// NewLive returns a place that shows nothing yet.
func NewLive() *Live { return &Live{id: rand.Text()} }

// Show puts v there, in the form that Display gives it. In a terminal, where
// nothing can be replaced, every value is printed below the last.
func (l *Live) Show(v any) error {
	h := hook.Load()
	if h == nil {
		return printText(v)
	}
	update := l.shown
	l.shown = true
	return h.Display(v, l.id, update)
}
