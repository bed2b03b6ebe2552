package figure

import (
	"bytes"
	"cmp"
	"encoding/base64"
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
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgpdf" // registers PDF
	_ "gonum.org/v1/plot/vg/vgsvg" // registers SVG

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/figure/internal/raster"
	"lockstep/pkg/internal/clean"
)

// Figure is a drawing of a study: a plot with its legend, the numbers that it shows, and a caption.
// Notebooks show it by its HTML method.
type Figure struct {
	// Width and Height are the size of the complete image. The default size is legible in a
	// notebook.
	Width, Height vg.Length
	// DPI is the resolution of a PNG in pixels per inch. 0 means 150, which makes a figure of
	// default width 960 pixels wide: sharp on a web page, and a small file.
	DPI int

	name         string
	plot         *plot.Plot
	right        *element.RightAxis // nil if there is none
	legend       []element.LegendEntry
	table        dataframe.DataFrame
	brief        *dataframe.DataFrame // the shorter table for TeX; nil if it is table
	computeTable func()               // computes table and brief at their first use; nil once they are computed
	caption      string
	origin       string    // see dataOriginNote
	method       string    // see Method
	heading      string    // the title, even if the image shows none
	natural      vg.Length // height at which text has its default size
	options      Options   // the options that it was made with

	// The fields below are set only for a page of panels, which has no plot of its own.
	panels  []panel
	columns int
	title   string
}

// Name returns a name for files: one of Names, or the metric and axis of a figure drawn by Curve.
func (f *Figure) Name() string { return f.name }

// String returns the caption and the method, for output that cannot show images.
func (f *Figure) String() string { return strings.TrimSpace(f.Caption() + " " + f.method) }

// Caption describes what is drawn: the values, the meaning of bars and bands, the number of runs,
// values beyond the axis, and disturbed runs. If the runs were not trained here, it states who
// published or recorded the numbers. It ends with assumptions, such as "workers of 4 runs assumed
// from file names".
func (f *Figure) Caption() string { return strings.TrimSpace(f.caption + " " + f.origin) }

// Method describes how the values were computed: the study's rule and its intervals.
func (f *Figure) Method() string { return f.method }

// HTML returns the drawing and its caption for a notebook or an exported page. The method is in a
// folded section.
func (f *Figure) HTML() string {
	text := html.EscapeString
	// The image is data, not elements, so that its styles do not affect other images.
	out := fmt.Sprintf("<figure style=\"margin:0\"><img alt=\"%s\" src=\"data:image/svg+xml;base64,%s\"/>\n<figcaption style=\"max-width:%dpx\"><small>%s</small>",
		text(clean.EscapeText(f.heading)), base64.StdEncoding.EncodeToString([]byte(f.SVG())), int(f.Width.Dots(cssDPI)), text(clean.EscapeText(f.Caption())))
	if f.method != "" {
		out += fmt.Sprintf("\n<details><summary><small>How the values were computed</small></summary><small>%s</small></details>", text(clean.EscapeText(f.method)))
	}
	return out + "</figcaption></figure>\n"
}

// cssDPI is the number of CSS pixels per inch.
const cssDPI = 96

// Table returns the numbers that are drawn. The columns are those of Study.Table, of Study.Epochs
// for losses, or of the drawn result, such as scaling.Cost.
func (f *Figure) Table() dataframe.DataFrame {
	f.computeTableOnce()
	return f.table
}

// computeTableOnce computes the table when it is first needed, because a table of many epochs takes
// longer than the drawing.
func (f *Figure) computeTableOnce() {
	if f.computeTable != nil {
		f.computeTable()
		f.computeTable = nil
	}
}

// Plot returns the figure's plot, so that the caller can change its title, axes and styles, or add
// to it. The sizes of text, lines and marks apply at the default size of a figure; smaller figures
// scale them down. The legend is not part of the plot. Plot returns nil for a page of panels.
func (f *Figure) Plot() *plot.Plot { return f.plot }

// SVG returns the drawing as an SVG element for an HTML page. If drawing fails, the element
// contains the error's text.
func (f *Figure) SVG() string {
	var b bytes.Buffer
	if err := f.writeImage(&b, "svg"); err != nil {
		return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="640" height="40"><text x="4" y="24">%s</text></svg>`,
			strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(clean.EscapeText(err.Error())))
	}
	return withoutXMLDeclaration(b.String())
}

// withoutXMLDeclaration removes the XML declaration, which is not allowed in an HTML page.
func withoutXMLDeclaration(svg string) string {
	text := clean.EscapeMultiline(fixTextWidths(svg)) // XML allows few controls
	if i := strings.Index(text, "<svg"); i > 0 {
		text = text[i:]
	}
	return text
}

// fixTextWidths adds substitute fonts for machines without Liberation Sans. It also fixes the width
// of each text to its width in the layout, so that text in a wider font does not cover anything.
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

// writeImage draws the figure in a format of draw.NewFormattedCanvas. A panic in gonum, for example
// because the caller emptied an axis, becomes an error.
func (f *Figure) writeImage(w io.Writer, format string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.Join(err, fmt.Errorf("draw figure %s: %v", f.name, r))
		}
	}()
	if f.plot == nil && len(f.panels) == 0 {
		return errors.New("draw figure: the figure is empty; make one with figure.Speedup(study) or another constructor")
	}
	if err := f.checkSize(); err != nil {
		return err
	}
	canvas, err := f.newCanvas(format)
	if err != nil {
		return err
	}
	f.draw(draw.New(canvas))
	_, err = canvas.WriteTo(w)
	return err
}

const (
	defaultDPI = 150
	maxDPI     = 2400 // the resolution of the best printers
	maxPixels  = 1 << 28
)

func (f *Figure) newCanvas(format string) (vg.CanvasWriterTo, error) {
	if format == "png" {
		dpi := cmp.Or(f.DPI, defaultDPI)
		if dpi < 0 || dpi > maxDPI || f.Width.Dots(float64(dpi))*f.Height.Dots(float64(dpi)) > maxPixels {
			return nil, fmt.Errorf("invalid size of %.3g by %.3g inches at %d pixels per inch: use 1 to %d pixels per inch, and at most %d pixels in total",
				f.Width/vg.Inch, f.Height/vg.Inch, dpi, maxDPI, maxPixels)
		}
		return raster.New(f.Width, f.Height, dpi), nil
	}
	c, err := draw.NewFormattedCanvas(f.Width, f.Height, format)
	if format == "pdf" {
		return pdfCanvas{c}, err
	}
	return c, err
}

// pdfCanvas works around two defects of gonum's PDF canvas: it embeds complete fonts, and it
// multiplies the premultiplied colors of RGBA by their alpha again, so that pale colors become dark.
type pdfCanvas struct{ vg.CanvasWriterTo }

func (s pdfCanvas) FillString(f font.Face, at vg.Point, text string) {
	s.CanvasWriterTo.FillString(subsetFontForPDF(f), at, text)
}

// SetColor implements vg.Canvas.
func (s pdfCanvas) SetColor(c color.Color) {
	if c == nil {
		c = color.Black
	}
	if n, ok := color.NRGBAModel.Convert(c).(color.NRGBA); ok {
		c = unpremultipliedColor(n)
	}
	s.CanvasWriterTo.SetColor(c)
}

// unpremultipliedColor is a color whose RGBA components are not premultiplied by alpha.
type unpremultipliedColor color.NRGBA

// RGBA violates color.Color: its components are not premultiplied by alpha.
func (s unpremultipliedColor) RGBA() (r, g, b, a uint32) {
	const widen = 0x101 // from 8 to 16 bits
	return uint32(s.R) * widen, uint32(s.G) * widen, uint32(s.B) * widen, uint32(s.A) * widen
}
