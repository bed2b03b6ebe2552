package figure

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
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
			c.SetColor(pale(blue, 90))
			c.SetLineWidth(3)
			c.Stroke(wave(400, 0.6))
		},
		"filled": func(c vg.Canvas) {
			c.SetColor(pale(blue, 40))
			c.Fill(closed)
		},
		"beyond": func(c vg.Canvas) {
			c.SetLineWidth(2)
			c.Stroke(wave(400, 2))
		},
	} {
		ours := newPixels(width, height, dpi)
		gonums := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
		for _, c := range []vg.Canvas{ours, gonums} {
			c.SetColor(blue)
			draw(c)
		}
		// Coverage is in 256 steps here and in 64 there, and dashes are cut where
		// a line is and not at the next 1/64 of a pixel.
		if d := far(ours.picture, gonums.Image()); d > 0.001 {
			t.Errorf("%s: %.3f %% of the pixels differ", name, 100*d)
		}
		if n := inked(ours.picture); n < 0.01 {
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

// inked is the share of pixels that are not white.
func inked(img *image.RGBA) float64 {
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
		check(t, err)
		if int(n) != b.Len() {
			t.Errorf("%d colours: %d bytes were counted, %d written", colours, n, b.Len())
		}
		data := b.Bytes()
		got, err := png.Decode(bytes.NewReader(data))
		check(t, err)
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

// TestResolution: DPI is that of the PNG, and one that makes no picture is an
// error that says what can be.
func TestResolution(t *testing.T) {
	study := synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 3)
	f, err := Speedup(study)
	check(t, err)
	for dpi, width := range map[int]int{0: 960, 75: 480, 300: 1920} {
		f.DPI = dpi
		b, err := f.encode("png")
		check(t, err)
		size, err := png.DecodeConfig(bytes.NewReader(b))
		check(t, err)
		if size.Width != width {
			t.Errorf("at %d pixels an inch the picture is %d wide, expected %d", dpi, size.Width, width)
		}
	}
	for _, dpi := range []int{-1, 5000} {
		f.DPI = dpi
		if _, err := f.encode("png"); err == nil || !strings.Contains(err.Error(), "use 1 to 2400") {
			t.Errorf("at %d pixels an inch: error %v", dpi, err)
		}
	}
}

// TestPanicInAPanel: what gonum panics at in a panel is an error of the page.
func TestPanicInAPanel(t *testing.T) {
	study := synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 3)
	var all []*Figure
	for range 4 {
		f, err := Speedup(study)
		check(t, err)
		all = append(all, f)
	}
	all[2].Plot().X.Tick.Marker = nil
	page, err := Panels("", all...)
	check(t, err)
	for _, format := range []string{"png", "svg"} {
		if _, err := page.encode(format); err == nil || !strings.Contains(err.Error(), "draw figure panels") {
			t.Errorf("%s: error %v", format, err)
		}
	}
}

// noisy is a study of one run of many epochs whose losses jump.
func noisy(tb testing.TB, epochs int) *scaling.Study {
	tb.Helper()
	r := runs.Run{Dir: "r", Info: runs.Info{Series: "s", Workers: 2, Status: runs.StatusDone}}
	for i := range epochs {
		jump := math.Abs(math.Sin(float64(i*i) * 0.37))
		r.Epochs = append(r.Epochs, runs.Epoch{
			Epoch: i + 1, Seconds: 1, SamplesPerSecond: math.NaN(), TrainLoss: 1 + jump, ValLoss: 2 + jump,
			IoU: math.NaN(), Dice: math.NaN(), ValSeconds: math.NaN(), LearningRate: math.NaN(), Accuracy: math.NaN(), ValAccuracy: math.NaN(),
		})
	}
	s, err := scaling.FromRuns([]runs.Run{r})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestNoise: a curve of many jumps is a solid area of its whole reach.
func TestNoise(t *testing.T) {
	f, err := Options{NoTitle: true}.LossByEpoch(noisy(t, 20_000))
	check(t, err)
	c := newPixels(f.Width, f.Height, 75)
	f.draw(vgdraw.New(c))
	if n := inked(c.picture); n < 0.4 || n > 0.8 {
		t.Errorf("%.0f %% of the picture is drawn on, expected about half: two bands", 100*n)
	}
}

func BenchmarkPage(b *testing.B) {
	for _, epochs := range []int{100, 100_000} {
		b.Run(fmt.Sprint(epochs), func(b *testing.B) {
			study := noisy(b, epochs)
			for b.Loop() {
				figures, err := First(study, 4)
				if err != nil {
					b.Fatal(err)
				}
				page, err := Panels("", figures...)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := page.encode("png"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestKerning compares the right edge of drawn text with its width as the font
// has it. "To" is kerned most: with the kerning of letters of 32 pixels, small
// ones would overlap, and the text would end far too early.
func TestKerning(t *testing.T) {
	const width, height, dpi = 400, 40, 96
	for _, size := range []vg.Length{6, 8, 12, 24} {
		style := textStyle(size)
		text := strings.Repeat("To", 8)
		c := newPixels(vg.Length(width)*72/dpi, vg.Length(height)*72/dpi, dpi)
		canvas := vgdraw.New(c)
		canvas.FillText(style, vg.Point{X: 0, Y: 10}, text)
		edge := 0
		b := c.picture.Bounds()
		for x := b.Min.X; x < b.Max.X; x++ {
			for y := b.Min.Y; y < b.Max.Y; y++ {
				if r, _, _, a := c.picture.At(x, y).RGBA(); a > 0 && r < 0x8000 {
					edge = x + 1
				}
			}
		}
		want := style.Width(text).Dots(dpi)
		if math.Abs(float64(edge)-want) > 2 {
			t.Errorf("%g points: the text ends at pixel %d, want %.1f", size, edge, want)
		}
	}
}
