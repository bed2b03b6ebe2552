package figure

import (
	"errors"
	"fmt"
	"image/color"
	"strings"
	"sync"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// panel is a figure on a page. It is an interface because a notebook's
// interpreter sees no methods of a type that holds pointers to itself.
type panel interface {
	extent() (w, h vg.Length)
	drawOnWhite(c draw.Canvas)
}

func (f *Figure) extent() (w, h vg.Length) { return f.Width, f.Height }

// drawOnWhite draws the figure where the ground is white already, which it
// mostly wants.
func (f *Figure) drawOnWhite(c draw.Canvas) {
	if f.plot != nil && f.plot.BackgroundColor == color.White {
		f.drawPlot(c)
		return
	}
	f.draw(c)
}

// Panels puts figures onto one page, two beside each other, each with a letter
// that the caption names. The page is a figure as well: it can be shown and
// saved. Its table lists the panels; the numbers are in theirs.
func Panels(title string, figures ...*Figure) (*Figure, error) {
	if len(figures) == 0 {
		return nil, errors.New("draw panels: no figures; make some with figure.All(study)")
	}
	page := &Figure{name: "panels", columns: min(2, len(figures)), title: title}
	var letters, names, captions []string
	for i, f := range figures {
		if f == nil || f.plot == nil {
			return nil, fmt.Errorf("draw panels: figure %d of %d is empty or itself a page", i+1, len(figures))
		}
		page.panels = append(page.panels, f)
		letters, names, captions = append(letters, letter(i)), append(names, f.name), append(captions, f.caption)
	}
	page.Width = vg.Length(page.columns) * page.panelWidth()
	for row := range page.rows() {
		page.Height += page.rowHeight(row)
	}
	page.Height += page.titleHeight()
	var caption strings.Builder
	for i, c := range captions {
		fmt.Fprintf(&caption, "(%s) %s ", letters[i], c)
	}
	page.caption = strings.TrimSpace(caption.String())
	page.table = dataframe.New(series.New(letters, series.String, "panel"), series.New(names, series.String, "figure"), series.New(captions, series.String, "caption"))
	return page, nil
}

func letter(i int) string {
	if i >= 26 {
		return letter(i/26-1) + letter(i%26)
	}
	return string(rune('a' + i))
}

func (f *Figure) rows() int { return (len(f.panels) + f.columns - 1) / f.columns }

func (f *Figure) panelWidth() vg.Length {
	w := vg.Length(0)
	for _, p := range f.panels {
		each, _ := p.extent()
		w = max(w, each)
	}
	return w
}

func (f *Figure) rowHeight(row int) vg.Length {
	h := vg.Length(0)
	for i := row * f.columns; i < min((row+1)*f.columns, len(f.panels)); i++ {
		_, each := f.panels[i].extent()
		h = max(h, each)
	}
	return h
}

func (f *Figure) titleHeight() vg.Length {
	if f.title == "" {
		return 0
	}
	return textStyle(fontSize+3).FontExtents().Height + margin
}

// drawPanels draws the page. A caller who changed its size gets panels that
// are larger or smaller in proportion; letters keep their size.
func (f *Figure) drawPanels(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	if f.title != "" {
		style := textStyle(fontSize + 3)
		style.XAlign, style.YAlign = draw.XCenter, draw.YTop
		c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y - margin/2}, f.title)
		c.Max.Y -= f.titleHeight()
	}
	natural := vg.Length(0)
	for row := range f.rows() {
		natural += f.rowHeight(row)
	}
	size := c.Size()
	top := c.Max.Y
	var drawing atOnce
	defer drawing.wait()
	for row := range f.rows() {
		h := f.rowHeight(row) / natural * size.Y
		for column := range f.columns {
			i := row*f.columns + column
			if i >= len(f.panels) {
				break
			}
			w := size.X / vg.Length(f.columns)
			x := c.Min.X + vg.Length(column)*w
			place := vg.Rectangle{Min: vg.Point{X: x, Y: top - h}, Max: vg.Point{X: x + w, Y: top}}
			if page, ok := c.Canvas.(*pixels); ok {
				tile, at := page.tile(place)
				drawing.do(func() { f.drawPanel(i, draw.Canvas{Canvas: tile, Rectangle: place.Add(at)}) })
				continue
			}
			f.drawPanel(i, draw.Canvas{Canvas: c.Canvas, Rectangle: place})
		}
		top -= h
	}
}

// atOnce does things at the same time. What panics does so in wait.
type atOnce struct {
	doing  sync.WaitGroup
	mu     sync.Mutex
	reason any // of the first panic
}

func (a *atOnce) do(what func()) {
	a.doing.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				a.mu.Lock()
				defer a.mu.Unlock()
				if a.reason == nil {
					a.reason = r
				}
			}
		}()
		what()
	})
}

func (a *atOnce) wait() {
	a.doing.Wait()
	if a.reason != nil {
		panic(a.reason) // Figure.write makes an error of it
	}
}

// drawPanel draws the i-th panel, with its letter.
func (f *Figure) drawPanel(i int, place draw.Canvas) {
	f.panels[i].drawOnWhite(place)
	if len(f.panels) > 1 {
		style := textStyle(fontSize + 1)
		style.YAlign = draw.YTop
		place.FillText(style, vg.Point{X: place.Min.X + margin, Y: place.Max.Y - margin}, "("+letter(i)+")")
	}
}
