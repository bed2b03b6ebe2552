package figure

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"math"
	"strings"
	"testing"

	vgdraw "gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/raster"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

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
	c := raster.New(f.Width, f.Height, 75)
	f.draw(vgdraw.New(c))
	if n := inked(c.Picture); n < 0.4 || n > 0.8 {
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
