package raster

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// wave is a path of n parts; step says how far a part goes.
func wave(n int, step float64) vg.Path {
	var p vg.Path
	for i := range n {
		at := vg.Point{X: vg.Length(20 + step*float64(i)), Y: vg.Length(100 + 60*math.Sin(float64(i)/7) + 20*math.Sin(float64(i)*1.7))}
		if i == 0 {
			p.Move(at)
		} else {
			p.Line(at)
		}
	}
	return p
}

// TestLongPaths: a path that is too long for gonum's rasteriser looks as gonum
// draws it: whole, dashed, see-through, and filled.
func TestLongPaths(t *testing.T) {
	const width, height, dpi = 300, 200, 96
	closed := wave(400, 0.6)
	closed.Line(vg.Point{X: 260, Y: 190})
	closed.Line(vg.Point{X: 20, Y: 190})
	closed.Close()
	blue := color.NRGBA{R: 0, G: 114, B: 178, A: 255}
	for name, draw := range map[string]func(vg.Canvas){
		"whole": func(c vg.Canvas) {
			c.SetLineWidth(1.6)
			c.Stroke(wave(400, 0.6))
		},
		"thick": func(c vg.Canvas) {
			c.SetLineWidth(7)
			c.Stroke(wave(400, 0.6))
		},
		"dashed": func(c vg.Canvas) {
			c.SetLineWidth(1.6)
			c.SetLineDash([]vg.Length{5, 3}, 2)
			c.Stroke(wave(400, 0.6))
		},
		"pale": func(c vg.Canvas) {
			c.SetColor(color.NRGBA{R: 0, G: 114, B: 178, A: 90})
			c.SetLineWidth(3)
			c.Stroke(wave(400, 0.6))
		},
		"filled": func(c vg.Canvas) {
			c.SetColor(color.NRGBA{R: 0, G: 114, B: 178, A: 40})
			c.Fill(closed)
		},
		"beyond": func(c vg.Canvas) {
			c.SetLineWidth(2)
			c.Stroke(wave(400, 2))
		},
	} {
		ours := New(width, height, dpi)
		gonums := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
		for _, c := range []vg.Canvas{ours, gonums} {
			c.SetColor(blue)
			draw(c)
		}
		// Coverage is in 256 steps here and in 64 there, and dashes are cut where
		// a line is and not at the next 1/64 of a pixel.
		if d := far(ours.Picture, gonums.Image()); d > 0.001 {
			t.Errorf("%s: %.3f %% of the pixels differ", name, 100*d)
		}
		if n := drawnShare(ours.Picture); n < 0.01 {
			t.Errorf("%s: %.2f %% of the picture is not white, expected a drawing", name, 100*n)
		}
	}
}

// far is the share of pixels that differ by more than a shade.
func far(a, b image.Image) float64 {
	n := 0
	for y := range a.Bounds().Dy() {
		for x := range a.Bounds().Dx() {
			r, g, bl, _ := a.At(x, y).RGBA()
			r2, g2, b2, _ := b.At(x, y).RGBA()
			for _, d := range [][2]uint32{{r, r2}, {g, g2}, {bl, b2}} {
				if math.Abs(float64(d[0])-float64(d[1])) > 0.2*math.MaxUint16 {
					n++
					break
				}
			}
		}
	}
	return float64(n) / float64(a.Bounds().Dx()*a.Bounds().Dy())
}

// drawnShare returns the share of pixels that are not white.
func drawnShare(img *image.RGBA) float64 {
	n := 0
	for i := 0; i < len(img.Pix); i += 4 {
		if img.Pix[i] != 255 {
			n++
		}
	}
	return float64(n) / float64(len(img.Pix)/4)
}

// TestPNG: a picture of few and one of many colours come back as they were,
// and say how large they are.
func TestPNG(t *testing.T) {
	for _, colours := range []int{1, 2, 256, 257, 5000} {
		img := image.NewRGBA(image.Rect(0, 0, 101, 67))
		for i := range len(img.Pix) / 4 {
			c := i % colours
			copy(img.Pix[4*i:], []byte{byte(c), byte(c >> 8), byte(7 * c), 255})
		}
		var b bytes.Buffer
		n, err := writePNG(&b, img, 150)
		if err != nil {
			t.Fatal(err)
		}
		if int(n) != b.Len() {
			t.Errorf("%d colours: %d bytes were counted, %d written", colours, n, b.Len())
		}
		data := b.Bytes()
		got, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if _, indexed := got.(*image.Paletted); indexed != (colours <= 256) {
			t.Errorf("%d colours: a picture of type %T", colours, got)
		}
		for y := range 67 {
			for x := range 101 {
				if r, g, b, a := got.At(x, y).RGBA(); [4]uint32{r, g, b, a} != at(img, x, y) {
					t.Fatalf("%d colours: pixel %d, %d is %v, expected %v", colours, x, y, got.At(x, y), img.At(x, y))
				}
			}
		}
		// 150 pixels an inch are 5906 a metre.
		if !bytes.Contains(data, []byte("pHYs\x00\x00\x17\x12\x00\x00\x17\x12\x01")) {
			t.Errorf("%d colours: no resolution in it", colours)
		}
	}
}

func at(img image.Image, x, y int) [4]uint32 {
	r, g, b, a := img.At(x, y).RGBA()
	return [4]uint32{r, g, b, a}
}

// TestKerning compares the right edge of drawn text with its width as the font
// has it. "To" is kerned most: with the kerning of letters of 32 pixels, small
// ones would overlap, and the text would end far too early.
func TestKerning(t *testing.T) {
	const width, height, dpi = 400, 40, 96
	for _, size := range []vg.Length{6, 8, 12, 24} {
		style := text.Style{
			Color:   color.Black,
			Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
			Handler: plot.DefaultTextHandler,
		}
		words := strings.Repeat("To", 8)
		c := New(vg.Length(width)*72/dpi, vg.Length(height)*72/dpi, dpi)
		canvas := vgdraw.New(c)
		canvas.FillText(style, vg.Point{X: 0, Y: 10}, words)
		edge := 0
		b := c.Picture.Bounds()
		for x := b.Min.X; x < b.Max.X; x++ {
			for y := b.Min.Y; y < b.Max.Y; y++ {
				if r, _, _, a := c.Picture.At(x, y).RGBA(); a > 0 && r < 0x8000 {
					edge = x + 1
				}
			}
		}
		want := style.Width(words).Dots(dpi)
		if math.Abs(float64(edge)-want) > 2 {
			t.Errorf("%g points: the text ends at pixel %d, want %.1f", size, edge, want)
		}
	}
}
