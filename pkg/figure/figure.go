package figure

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image/color"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgpdf" // registers PDF
	_ "gonum.org/v1/plot/vg/vgsvg" // registers SVG

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/figure/internal/raster"
	"lockstep/pkg/internal/clean"
)

// Figure is a picture of a study: a plot, the legend above it, the numbers
// that are drawn and a caption. A notebook shows it by its SVG method.
type Figure struct {
	// Width and Height are those of the whole picture; a constructor sets a
	// size that is legible in a notebook.
	Width, Height vg.Length
	// DPI is how many pixels an inch of a PNG has; 0 stands for 150, which makes
	// a figure of usual width 960 pixels wide: sharp on a page, and small.
	DPI int

	name    string
	plot    *plot.Plot
	right   *element.RightAxis // nil where there is none
	legend  []element.LegendEntry
	table   dataframe.DataFrame
	brief   *dataframe.DataFrame // what TeX shows of a long table; nil for the table
	fill    func()               // makes table and brief when somebody asks for them; nil where they are there
	caption string
	heading string    // the title, also where the picture shows none
	natural vg.Length // height at which text has its usual size
	options Options   // by which it was made

	// Of a page of panels, which has no plot of its own.
	panels  []panel
	columns int
	title   string
}

// Name is a name for files, one of Names, or the metric and axis of a Curve.
func (f *Figure) Name() string { return f.name }

// String is the caption: what is shown where pictures cannot be.
func (f *Figure) String() string { return f.Caption() }

// Caption says in a sentence or two what is drawn, and by what rule.
func (f *Figure) Caption() string { return f.caption }

// Table holds the numbers that are drawn: columns of Study.Table, or for the
// losses of Study.Epochs, or those of the result that is drawn, such as
// scaling.Cost.
func (f *Figure) Table() dataframe.DataFrame {
	f.filled()
	return f.table
}

// filled makes the table if nobody has asked for it yet: that of many epochs
// takes longer than their picture.
func (f *Figure) filled() {
	if f.fill != nil {
		f.fill()
		f.fill = nil
	}
}

// Plot is the figure's plot, to change its title, axes and styles, or to add
// to it. Sizes of text, lines and marks are those of a figure of usual size; a
// smaller one draws them smaller. The legend is not part of the plot: the
// figure draws it beside the data, where it covers nothing. A page of panels
// has no plot, and Plot returns nil.
func (f *Figure) Plot() *plot.Plot { return f.plot }

// SVG is the picture as a document that can stand in a page. What cannot be
// drawn is said in its place.
func (f *Figure) SVG() string {
	var b bytes.Buffer
	if err := f.write(&b, "svg"); err != nil {
		return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="640" height="40"><text x="4" y="24">%s</text></svg>`,
			strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(clean.Text(err.Error())))
	}
	return inPage(b.String())
}

// inPage is a drawing without its XML declaration, which has no place inside a
// page.
func inPage(svg string) string {
	text := clean.Lines(fixTextWidths(svg)) // XML allows few controls
	if i := strings.Index(text, "<svg"); i > 0 {
		text = text[i:]
	}
	return text
}

// fixTextWidths names other fonts for a machine that lacks ours, and fixes the
// width of each text as it was laid out, so that a wider font covers nothing.
func fixTextWidths(svg string) string {
	svg = strings.ReplaceAll(svg, "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	pattern := regexp.MustCompile(`<text ([^>]*font-size:([0-9.]+)px[^>]*)>([^<]+)</text>`)
	return pattern.ReplaceAllStringFunc(svg, func(text string) string {
		m := pattern.FindStringSubmatch(text)
		size, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return text
		}
		length := element.TextStyle(vg.Length(size)).Width(html.UnescapeString(m[3]))
		return fmt.Sprintf(`<text textLength="%.2f" lengthAdjust="spacingAndGlyphs" %s>%s</text>`, length.Points(), m[1], m[3])
	})
}

// write draws the figure in a format that package draw knows. What gonum
// panics at, such as an axis that the caller made empty, becomes an error.
func (f *Figure) write(w io.Writer, format string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.Join(err, fmt.Errorf("draw figure %s: %v", f.name, r))
		}
	}()
	if f.plot == nil && len(f.panels) == 0 {
		return errors.New("draw figure: it is empty; make one with figure.Speedup(study) or another constructor")
	}
	if err := f.readable(); err != nil {
		return err
	}
	canvas, err := f.canvas(format)
	if err != nil {
		return err
	}
	f.draw(draw.New(canvas))
	_, err = canvas.WriteTo(w)
	return err
}

// Resolutions of a PNG.
const (
	usualDPI = 150
	mostDPI  = 2400 // what the best printers print
	mostDots = 1 << 28
)

func (f *Figure) canvas(format string) (vg.CanvasWriterTo, error) {
	if format == "png" {
		dpi := f.DPI
		if dpi == 0 {
			dpi = usualDPI
		}
		if dpi < 0 || dpi > mostDPI || f.Width.Dots(float64(dpi))*f.Height.Dots(float64(dpi)) > mostDots {
			return nil, fmt.Errorf("a picture of %.3g by %.3g inches with %d pixels an inch: use 1 to %d, and at most %d pixels in all",
				f.Width/vg.Inch, f.Height/vg.Inch, dpi, mostDPI, mostDots)
		}
		return raster.New(f.Width, f.Height, dpi), nil
	}
	c, err := draw.NewFormattedCanvas(f.Width, f.Height, format)
	if format == "pdf" {
		return straightAlpha{c}, err
	}
	return c, err
}

// straightAlpha is a canvas that multiplies colours with their alpha itself.
// Gonum's PDF does so to colours that were multiplied already, as RGBA returns
// them, and what is pale becomes dark.
type straightAlpha struct{ vg.CanvasWriterTo }

// SetColor implements vg.Canvas.
func (s straightAlpha) SetColor(c color.Color) {
	if c == nil {
		c = color.Black
	}
	if n, ok := color.NRGBAModel.Convert(c).(color.NRGBA); ok {
		c = straight(n)
	}
	s.CanvasWriterTo.SetColor(c)
}

// straight is a colour whose parts are not multiplied with its alpha.
type straight color.NRGBA

// RGBA implements color.Color, but for the multiplication.
func (s straight) RGBA() (r, g, b, a uint32) {
	const whole = 0x101 // makes 16 bits of 8
	return uint32(s.R) * whole, uint32(s.G) * whole, uint32(s.B) * whole, uint32(s.A) * whole
}
