package figure

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	_ "gonum.org/v1/plot/vg/vgpdf" // registers PDF
	_ "gonum.org/v1/plot/vg/vgsvg" // registers SVG
)

// Figure is a picture of a study: a plot, the legend above it, the numbers
// that are drawn and a caption. A notebook shows it by its SVG method.
type Figure struct {
	// Width and Height are those of the whole picture; a constructor sets a
	// size that is legible in a notebook.
	Width, Height vg.Length

	name    string
	plot    *plot.Plot
	legend  []entry
	table   dataframe.DataFrame
	caption string
}

// Name is a name for files: epoch_time, throughput, speedup, iou,
// loss_by_epoch or loss_by_time.
func (f *Figure) Name() string { return f.name }

// String is the caption: what is shown where pictures cannot be.
func (f *Figure) String() string { return f.Caption() }

// Caption says in a sentence or two what is drawn, and by what rule.
func (f *Figure) Caption() string { return f.caption }

// Table holds the numbers that are drawn: columns of Study.Table, or for the
// losses of Study.Epochs.
func (f *Figure) Table() dataframe.DataFrame { return f.table }

// Plot is the figure's plot, to change its title, axes and styles, or to add
// to it. The legend is not part of it: the figure draws it above the plot,
// where it covers nothing.
func (f *Figure) Plot() *plot.Plot { return f.plot }

// SVG is the picture as a document that can stand in a page. What cannot be
// drawn is said in its place.
func (f *Figure) SVG() string {
	var b bytes.Buffer
	if err := f.write(&b, "svg"); err != nil {
		return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="640" height="40"><text x="4" y="24">%s</text></svg>`,
			strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(err.Error()))
	}
	text := fixTextWidths(b.String())
	if i := strings.Index(text, "<svg"); i > 0 { // the XML declaration has no place inside a page
		text = text[i:]
	}
	return text
}

// fixTextWidths names other fonts for a machine that lacks ours, and fixes the
// width of each text as it was laid out, so that a wider font covers nothing.
func fixTextWidths(svg string) string {
	svg = strings.ReplaceAll(svg, "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	element := regexp.MustCompile(`<text ([^>]*font-size:([0-9.]+)px[^>]*)>([^<]+)</text>`)
	return element.ReplaceAllStringFunc(svg, func(text string) string {
		m := element.FindStringSubmatch(text)
		size, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return text
		}
		length := textStyle(vg.Length(size)).Width(html.UnescapeString(m[3]))
		return fmt.Sprintf(`<text textLength="%.2f" lengthAdjust="spacingAndGlyphs" %s>%s</text>`, length.Points(), m[1], m[3])
	})
}

// Save writes the picture to a file, as its extension says: .png, .svg or
// .pdf. Missing folders are made.
func (f *Figure) Save(path string) error {
	format := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	var b bytes.Buffer
	switch format {
	case "svg":
		b.WriteString(`<?xml version="1.0"?>` + "\n" + f.SVG())
	case "png", "pdf":
		if err := f.write(&b, format); err != nil {
			return fmt.Errorf("save figure %s: %w", f.name, err)
		}
	default:
		return fmt.Errorf("save figure %s: %q does not end in .png, .svg or .pdf", f.name, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("save figure %s: %w", f.name, err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("save figure %s: %w", f.name, err)
	}
	return nil
}

// write draws the figure in a format that package draw knows. What gonum
// panics at, such as an axis that the caller made empty, becomes an error.
func (f *Figure) write(w io.Writer, format string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.Join(err, fmt.Errorf("draw figure %s: %v", f.name, r))
		}
	}()
	if f.plot == nil {
		return errors.New("draw figure: it is empty; make one with figure.Speedup(study) or another constructor")
	}
	canvas, err := f.canvas(format)
	if err != nil {
		return err
	}
	f.draw(draw.New(canvas))
	_, err = canvas.WriteTo(w)
	return err
}

// pngDPI makes the width of a PNG 960 pixels: sharp on a page, and small.
const pngDPI = 150

func (f *Figure) canvas(format string) (vg.CanvasWriterTo, error) {
	if format == "png" {
		c := vgimg.NewWith(vgimg.UseWH(f.Width, f.Height), vgimg.UseDPI(pngDPI), vgimg.UseBackgroundColor(color.White))
		return vgimg.PngCanvas{Canvas: c}, nil
	}
	return draw.NewFormattedCanvas(f.Width, f.Height, format)
}

// draw puts title, legend and plot below each other.
func (f *Figure) draw(c draw.Canvas) {
	c.SetColor(f.plot.BackgroundColor)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	title := f.plot.Title
	if title.Text != "" {
		style := title.TextStyle
		c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y}, title.Text)
		c.Max.Y -= style.Rectangle(title.Text).Size().Y + title.Padding
	}
	p := *f.plot
	p.Title.Text = ""
	left := p.DataCanvas(c).Min.X
	c.Max.Y -= drawLegend(draw.Crop(c, left-c.Min.X, 0, 0, 0), f.legend)
	p.Draw(c)
}
