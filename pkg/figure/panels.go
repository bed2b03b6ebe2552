package figure

import (
	"errors"
	"fmt"
	"image/color"
	"slices"
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

// panel is a figure on a page. It is an interface because the notebook's interpreter does not see
// the methods of a type that contains pointers to itself.
type panel interface {
	size() (w, h vg.Length)
	drawOnWhite(c draw.Canvas)
	sizeProblem(w, h vg.Length) string
	zoomFactor(w, h vg.Length) vg.Length
}

func (f *Figure) size() (w, h vg.Length) { return f.Width, f.Height }

// Panels arranges figures on one page in two columns, each with a letter that the caption refers
// to. The page is a Figure too. Its table lists the panels; the numbers are in the tables of the
// panels.
func Panels(title string, figures ...*Figure) (*Figure, error) {
	if len(figures) == 0 {
		return nil, errors.New("draw panels: no figures; make some with figure.All(study)")
	}
	page := &Figure{name: "panels", columns: min(2, len(figures)), title: title, heading: title}
	var letters, names, captions []string
	for i, f := range figures {
		if f == nil || f.plot == nil {
			return nil, fmt.Errorf("draw panels: figure %d of %d is empty or a page of panels", i+1, len(figures))
		}
		page.panels = append(page.panels, f)
		letters, names, captions = append(letters, panelLetters(i)), append(names, f.name), append(captions, f.caption)
	}
	page.Width = vg.Length(page.columns) * page.panelWidth()
	for row := range page.panelRows() {
		page.Height += page.rowHeight(row)
	}
	page.Height += page.titleHeight()
	page.natural = page.Height
	page.caption = joinCaptions(letters, captions)
	for _, f := range figures {
		for _, text := range []struct{ all, own *string }{{&page.origin, &f.origin}, {&page.method, &f.method}} {
			if !strings.Contains(*text.all, *text.own) {
				*text.all = strings.TrimSpace(*text.all + " " + *text.own)
			}
		}
	}
	page.table = dataframe.New(series.New(letters, series.String, "panel"), series.New(names, series.String, "figure"), series.New(captions, series.String, "caption"))
	return page, nil
}

// joinCaptions joins the captions of panels. Sentences that occur in all captions are moved to the
// end and appear once.
func joinCaptions(letters, captions []string) string {
	split := func(text string) []string { return strings.SplitAfter(text+" ", ". ") }
	shared := slices.DeleteFunc(split(captions[0]), func(sentence string) bool {
		return slices.ContainsFunc(captions, func(c string) bool { return !slices.Contains(split(c), sentence) })
	})
	if len(captions) == 1 {
		shared = nil
	}
	var out strings.Builder
	for i, c := range captions {
		own := slices.DeleteFunc(split(c), func(sentence string) bool { return slices.Contains(shared, sentence) })
		fmt.Fprintf(&out, "(%s) %s", letters[i], strings.Join(own, ""))
	}
	if text := strings.Join(shared, ""); strings.TrimSpace(text) != "" {
		out.WriteString("All panels: " + text)
	}
	return strings.TrimSpace(out.String())
}

// panelLetters returns the letters of the i-th panel: a to z, then aa, ab and so on.
func panelLetters(i int) string {
	if i >= 26 {
		return panelLetters(i/26-1) + panelLetters(i%26)
	}
	return string(rune('a' + i))
}

func (f *Figure) panelRows() int { return (len(f.panels) + f.columns - 1) / f.columns }

func (f *Figure) panelWidth() vg.Length {
	w := vg.Length(0)
	for _, p := range f.panels {
		each, _ := p.size()
		w = max(w, each)
	}
	return w
}

func (f *Figure) rowHeight(row int) vg.Length {
	h := vg.Length(0)
	for i := row * f.columns; i < min((row+1)*f.columns, len(f.panels)); i++ {
		_, each := f.panels[i].size()
		h = max(h, each)
	}
	return h
}

// titleHeight returns the height of the page's title, or 0 if it has none.
func (f *Figure) titleHeight() vg.Length {
	if f.title == "" {
		return 0
	}
	return f.titleStyle().FontExtents().Height + element.Margin
}

// titleStyle returns the style of a page's title. It is smaller on a small page.
func (f *Figure) titleStyle() text.Style {
	smaller := min(1, f.Width/(vg.Length(f.columns)*f.panelWidth()))
	return element.TextStyle((element.FontSize + 3) * max(minZoom, smaller))
}

func (f *Figure) areaBelowTitle(page vg.Rectangle) vg.Rectangle {
	page.Max.Y -= f.titleHeight()
	return page
}

// panelRects returns the rectangles of the panels within a rectangle. They are scaled in proportion
// if the caller has changed the page's size.
func (f *Figure) panelRects(all vg.Rectangle) []vg.Rectangle {
	natural := vg.Length(0)
	for row := range f.panelRows() {
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

func (f *Figure) drawPanels(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	if f.title != "" {
		style := f.titleStyle()
		style.XAlign, style.YAlign = draw.XCenter, draw.YTop
		c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y - element.Margin/2}, f.title)
	}
	var drawing taskGroup
	defer drawing.wait()
	for i, place := range f.panelRects(f.areaBelowTitle(c.Rectangle)) {
		if page, ok := c.Canvas.(*raster.Canvas); ok {
			tile, at := page.Tile(place)
			drawing.start(func() { f.drawPanel(i, draw.Canvas{Canvas: tile, Rectangle: place.Add(at)}) })
			continue
		}
		f.drawPanel(i, draw.Canvas{Canvas: c.Canvas, Rectangle: place})
	}
}

// taskGroup runs functions concurrently. If one panics, wait panics with the same value.
type taskGroup struct {
	doing  sync.WaitGroup
	mu     sync.Mutex
	reason any // value of the first panic
}

func (a *taskGroup) start(f func()) {
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
		f()
	})
}

func (a *taskGroup) wait() {
	a.doing.Wait()
	if a.reason != nil {
		panic(a.reason) // Figure.write turns it into an error
	}
}

func (f *Figure) drawPanel(i int, place draw.Canvas) {
	f.panels[i].drawOnWhite(place)
	if len(f.panels) > 1 {
		w, h := place.Size().X, place.Size().Y
		style := element.TextStyle((element.FontSize + 1) * f.panels[i].zoomFactor(w, h))
		style.YAlign = draw.YTop
		place.FillText(style, vg.Point{X: place.Min.X + element.Margin, Y: place.Max.Y - element.Margin}, "("+panelLetters(i)+")")
	}
}
