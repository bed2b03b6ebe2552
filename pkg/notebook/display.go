package notebook

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
)

// Display shows v at once, without waiting for the end of the cell.
//
// In a notebook v is shown in its richest form: the result of a method HTML() string, SVG() string,
// Markdown() string, Latex() string, PNG() []byte, JPEG() []byte, PDF() []byte or JSON() map[string]any; an
// image.Image as an image; a gota DataFrame as a table; a *plot.Plot as a figure; anything else as text. In
// a terminal v is printed as text. Display returns an error if v cannot be drawn or written.
func Display(v any) error {
	if h := currentHook.Load(); h != nil {
		return h.Display(v, "", false)
	}
	return printText(v)
}

// printText writes v to standard output, and a newline unless v ends with one.
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

// A Live is a part of a cell's output whose content can be replaced, such as a table or a
// curve that is updated during a run. It must not be used by several goroutines at once.
type Live struct {
	id    string
	shown bool
}

// NewLive returns a Live that shows nothing yet.
func NewLive() *Live { return &Live{id: rand.Text()} }

// Show replaces the content by v, shown as Display shows it. In a terminal it prints v below the previous
// value.
func (l *Live) Show(v any) error {
	h := currentHook.Load()
	if h == nil {
		return printText(v)
	}
	update := l.shown
	l.shown = true
	return h.Display(v, l.id, update)
}
