package figure

import (
	"errors"
	"fmt"
	"image/color"
	"strings"
	"sync"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/figure/internal/raster"
)

// panel is a figure on a page. It is an interface because a notebook's
// interpreter sees no methods of a type that holds pointers to itself.
type panel interface {
	extent() (w, h vg.Length)
	drawOnWhite(c draw.Canvas)
	tooSmall(w, h vg.Length) string
	zoom(w, h vg.Length) vg.Length
}

func (f *Figure) extent() (w, h vg.Length) { return f.Width, f.Height }

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
	page.natural = page.Height
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
	return f.titleStyle().FontExtents().Height + element.Margin
}

// titleStyle returns the style of a page's title, which is smaller on a small
// page.
func (f *Figure) titleStyle() text.Style {
	smaller := min(1, f.Width/(vg.Length(f.columns)*f.panelWidth()))
	return element.TextStyle((element.FontSize + 3) * max(leastZoom, smaller))
}

// belowTitle returns what the title of a page leaves for the panels.
func (f *Figure) belowTitle(whole vg.Rectangle) vg.Rectangle {
	whole.Max.Y -= f.titleHeight()
	return whole
}

// places returns where the panels are in a rectangle. A caller who changed the
// page's size gets panels that are larger or smaller in proportion.
func (f *Figure) places(all vg.Rectangle) []vg.Rectangle {
	natural := vg.Length(0)
	for row := range f.rows() {
		natural += f.rowHeight(row)
	}
	size, top := all.Size(), all.Max.Y
	places := make([]vg.Rectangle, len(f.panels))
	for i := range f.panels {
		row, column := i/f.columns, i%f.columns
		w, h := size.X/vg.Length(f.columns), f.rowHeight(row)/natural*size.Y
		x := all.Min.X + vg.Length(column)*w
		places[i] = vg.Rectangle{Min: vg.Point{X: x, Y: top - h}, Max: vg.Point{X: x + w, Y: top}}
		if column == f.columns-1 {
			top -= h
		}
	}
	return places
}

// drawPanels draws the page.
func (f *Figure) drawPanels(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	if f.title != "" {
		style := f.titleStyle()
		style.XAlign, style.YAlign = draw.XCenter, draw.YTop
		c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y - element.Margin/2}, f.title)
	}
	var drawing atOnce
	defer drawing.wait()
	for i, place := range f.places(f.belowTitle(c.Rectangle)) {
		if page, ok := c.Canvas.(*raster.Canvas); ok {
			tile, at := page.Tile(place)
			drawing.do(func() { f.drawPanel(i, draw.Canvas{Canvas: tile, Rectangle: place.Add(at)}) })
			continue
		}
		f.drawPanel(i, draw.Canvas{Canvas: c.Canvas, Rectangle: place})
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
		w, h := place.Size().X, place.Size().Y
		style := element.TextStyle((element.FontSize + 1) * f.panels[i].zoom(w, h))
		style.YAlign = draw.YTop
		place.FillText(style, vg.Point{X: place.Min.X + element.Margin, Y: place.Max.Y - element.Margin}, "("+letter(i)+")")
	}
}
