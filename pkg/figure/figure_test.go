package figure

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"flag"
	"image"
	"image/draw"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-gota/gota/dataframe"
	vgdraw "gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/figure/internal/raster"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

var update = flag.Bool("update", false, "write the golden images anew; then look at them")

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fixtures are the studies of the golden images.
func fixtures(t *testing.T) map[string]*scaling.Study {
	one := synthetic(t, []string{"ddp"}, []int{1}, 1, 1)
	one, err := one.WithRule(scaling.Rule{}) // its only epoch counts
	check(t, err)
	return map[string]*scaling.Study{
		"one":     one,
		"two":     synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 5),
		"seeds":   synthetic(t, []string{"ddp", "horovod"}, []int{1, 2, 4, 8}, 3, 12),
		"series":  synthetic(t, []string{"mirrored", "native", "horovod", "ring"}, []int{1, 2, 4, 6, 8, 10, 12, 14}, 1, 30),
		"unet":    published(t, "unet2d-v100.csv"),
		"booster": published(t, "resnet50-booster.csv"),
		"weak":    published(t, "sc21-weak-scaling.csv"),
		"trials":  published(t, "sc21-trials.csv"),
		"trace":   traced(t),
		"traces":  tracedSeries(t),
		"classes": classified(t, []int{1}, nil),
	}
}

// golden lists which figures of which fixture are kept as images.
func golden() map[string][]string {
	return map[string][]string{
		"one":     {"loss_by_time"},
		"two":     {"epoch_time", "speedup"},
		"seeds":   {"throughput", "speedup", "efficiency", "iou", "loss_by_epoch", "train_test_time", "quality"},
		"series":  {"speedup", "speedup_iou"},
		"unet":    {"pareto", "strong_scaling"},
		"booster": {"speedup", "fit"},
		"weak":    {"weak_scaling", "overhead"},
		"trials":  {"trials"},
		"trace":   {"timeline", "time_use"},
		"traces":  {"timelines"},
		"classes": {"iou"},
	}
}

func TestGoldenImages(t *testing.T) {
	all := fixtures(t)
	for name, names := range golden() {
		for _, figure := range names {
			f, err := Make(figure, all[name])
			check(t, err)
			compareImage(t, name+"-"+figure, f)
		}
	}
	page, err := All(all["two"])
	check(t, err)
	panels, err := Panels("cells", page[:4]...)
	check(t, err)
	compareImage(t, "two-panels", panels)
	smooth, err := Options{Smooth: 0.6, LogY: true, Workers: []int{1, 8}}.LossByTime(all["seeds"])
	check(t, err)
	compareImage(t, "seeds-smooth", smooth)
}

// compareImage compares a figure with its golden image, which is small.
func compareImage(t *testing.T, name string, f *Figure) {
	t.Helper()
	const dpi = 75
	canvas := raster.New(f.Width, f.Height, dpi)
	f.draw(vgdraw.New(canvas))
	path := filepath.Join("testdata", name+".png")
	if *update {
		var b bytes.Buffer
		check(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, canvas.Picture))
		check(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	if d := difference(canvas.Picture, readPNG(t, path)); d > tolerance {
		t.Errorf("%s: %.2f %% of the pixels differ, at most %.2f %% may; look at both, then run the test with -update", path, 100*d, 100*tolerance)
	}
}

// tolerance is the share of pixels that may differ: rounding differs between
// processors, and moves the edges of letters by a shade.
const tolerance = 0.001

// TestDifferenceIsSeen makes sure that the comparison can fail.
func TestDifferenceIsSeen(t *testing.T) {
	picture := func(study *scaling.Study) image.Image {
		f, err := Speedup(study)
		check(t, err)
		path := filepath.Join(t.TempDir(), "speedup.png")
		check(t, f.Save(path))
		return readPNG(t, path)
	}
	study := synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 5)
	base := picture(study)
	for i := range study.Runs[1].Epochs {
		study.Runs[1].Epochs[i].Seconds *= 1.1
	}
	study, err := scaling.FromRuns(study.Runs)
	check(t, err)
	if d := difference(picture(study), base); d <= tolerance {
		t.Errorf("a run that is 10 %% slower changes %.3f %% of the pixels: the golden images would not show it", 100*d)
	}
}

func readPNG(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	img, err := png.Decode(f)
	check(t, errors.Join(err, f.Close()))
	return img
}

// difference is the share of pixels that differ by more than a shade.
func difference(a, b image.Image) float64 {
	if a.Bounds() != b.Bounds() {
		return 1
	}
	const shade = 24
	x, y := rgba(a), rgba(b)
	different := 0
	for i := 0; i < len(x); i += 4 {
		if apart(x[i], y[i]) > shade || apart(x[i+1], y[i+1]) > shade || apart(x[i+2], y[i+2]) > shade {
			different++
		}
	}
	return float64(different) / float64(len(x)/4)
}

func apart(a, b uint8) uint8 { return max(a, b) - min(a, b) }

// rgba is the bytes of an image, four a pixel.
func rgba(img image.Image) []uint8 {
	out := image.NewRGBA(img.Bounds())
	draw.Draw(out, out.Bounds(), img, img.Bounds().Min, draw.Src)
	return out.Pix
}

// TestTableEqualsScalingCSV compares what is drawn with what `lockstep scaling
// --format csv` writes, column by column, number by number.
func TestTableEqualsScalingCSV(t *testing.T) {
	for name, study := range fixtures(t) {
		if name != "one" && name != "two" && name != "seeds" && name != "series" {
			continue // has not all that is compared here
		}
		var b bytes.Buffer
		check(t, study.Write(&b, scaling.FormatCSV))
		lines, err := csv.NewReader(&b).ReadAll()
		check(t, err)
		for _, construct := range []func(*scaling.Study) (*Figure, error){EpochTime, Throughput, Speedup, IoU} {
			f, err := construct(study)
			check(t, err)
			equalColumns(t, name+" "+f.Name(), f.Table(), lines)
		}
	}
}

// equalColumns fails unless every column of table is one of the CSV.
func equalColumns(t *testing.T, name string, table dataframe.DataFrame, lines [][]string) {
	t.Helper()
	if table.Nrow() != len(lines)-1 || table.Ncol() < 4 {
		t.Fatalf("%s: %d rows and %d columns, the CSV has %d rows", name, table.Nrow(), table.Ncol(), len(lines)-1)
	}
	for _, column := range table.Names() {
		j := slices.Index(lines[0], column)
		if j < 0 {
			t.Errorf("%s: column %s is not in the CSV %v", name, column, lines[0])
			continue
		}
		for i, line := range lines[1:] {
			elem := table.Col(column).Elem(i)
			want, err := strconv.ParseFloat(line[j], 64)
			switch {
			case line[j] == "":
				if !math.IsNaN(elem.Float()) {
					t.Errorf("%s: row %d of %s is %v, the CSV is empty", name, i, column, elem)
				}
			case err != nil:
				if elem.String() != line[j] {
					t.Errorf("%s: row %d of %s is %q, the CSV says %q", name, i, column, elem, line[j])
				}
			case elem.Float() != want:
				t.Errorf("%s: row %d of %s is %v, the CSV says %v", name, i, column, elem.Float(), want)
			}
		}
	}
}

func TestLossTableIsOfTheEpochs(t *testing.T) {
	study := synthetic(t, []string{"ddp"}, []int{1, 2}, 2, 5)
	f, err := LossByEpoch(study)
	check(t, err)
	epochs := study.Epochs()
	for _, column := range f.Table().Names() {
		if got, want := f.Table().Col(column).Records(), epochs.Col(column).Records(); !slices.Equal(got, want) {
			t.Errorf("column %s is %v, expected %v", column, got, want)
		}
	}
	if f.Table().Nrow() != 2*2*5 {
		t.Errorf("%d rows, expected workers × seeds × epochs = 20", f.Table().Nrow())
	}
}

func TestSVG(t *testing.T) {
	study := synthetic(t, []string{"a<b & c"}, []int{1, 2}, 2, 4)
	for _, construct := range []func(*scaling.Study) (*Figure, error){EpochTime, Throughput, Speedup, IoU, LossByEpoch, LossByTime} {
		f, err := construct(study)
		check(t, err)
		text := f.SVG()
		if !strings.HasPrefix(text, "<svg") {
			t.Errorf("%s begins with %.40q, expected <svg", f.Name(), text)
		}
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			if _, err := d.Token(); err != nil {
				if err != io.EOF {
					t.Errorf("%s: %v", f.Name(), err)
				}
				break
			}
		}
		if texts, fixed := strings.Count(text, "<text "), strings.Count(text, "<text textLength="); texts < 10 || fixed != texts {
			t.Errorf("%s: %d of %d texts have a width", f.Name(), fixed, texts)
		}
		if f.SVG() != text {
			t.Errorf("%s: two drawings differ", f.Name())
		}
		again, err := construct(study)
		check(t, err)
		if again.SVG() != text {
			t.Errorf("%s: two figures of one study differ", f.Name())
		}
		if f.Caption() == "" || !strings.Contains(text, f.Plot().X.Label.Text) {
			t.Errorf("%s: no caption, or no label of the axis", f.Name())
		}
	}
}

func TestSave(t *testing.T) {
	f, err := Speedup(synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 4))
	check(t, err)
	dir := filepath.Join(t.TempDir(), "new", "folder")
	for ext, magic := range map[string]string{"png": "\x89PNG", "svg": "<?xml", "pdf": "%PDF", "csv": "series,workers,", "txt": "Speed-up over", "tex": "\\begin{table}"} {
		var texts [2][]byte
		for i := range texts {
			path := filepath.Join(dir, "f."+ext)
			check(t, f.Save(path))
			texts[i], err = os.ReadFile(path)
			check(t, err)
		}
		if !bytes.HasPrefix(texts[0], []byte(magic)) {
			t.Errorf("%s begins with %.10q", ext, texts[0])
		}
		if !bytes.Equal(texts[0], texts[1]) {
			t.Errorf("%s: two files differ", ext)
		}
	}
	if err := f.Save(filepath.Join(dir, "f.gif")); err == nil || !strings.Contains(err.Error(), ".svg, .pdf, .png, .csv, .txt or .tex") {
		t.Errorf("error %v, expected one that names the formats", err)
	}
}

func TestErrorsSayWhatIsMissing(t *testing.T) {
	wantError := func(err error, part string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v, expected one that says %q", err, part)
		}
	}
	_, err := Speedup(nil)
	wantError(err, "no study; read one with scaling.Read")
	_, err = LossByTime(&scaling.Study{})
	wantError(err, "the study contains no runs")

	nan := math.NaN()
	bare, err := scaling.FromRuns([]runs.Run{{Dir: "r", Info: runs.Info{Series: "s", Workers: 1}, Epochs: []runs.Epoch{
		{Epoch: 1, Seconds: 2, TrainLoss: nan, ValLoss: nan, IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan},
		{Epoch: 2, Seconds: 2, TrainLoss: nan, ValLoss: nan, IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan},
	}}})
	check(t, err)
	_, err = Throughput(bare)
	wantError(err, "the logs contain neither throughput nor sample counts")
	_, err = IoU(bare)
	wantError(err, "no run has a value to draw")
	_, err = LossByEpoch(bare)
	wantError(err, "no run has a loss")
	figures, err := All(bare)
	check(t, err)
	if got := namesOf(figures); !slices.Equal(got, []string{"epoch_time", "train_test_time"}) {
		t.Errorf("figures %v of a study with the times of one run alone", got)
	}
	_, err = All(nil)
	wantError(err, "no study")

	if text := new(Figure).SVG(); !strings.Contains(text, "the figure is empty") {
		t.Errorf("SVG of an empty figure: %s", text)
	}
	wantError(new(Figure).Save(filepath.Join(t.TempDir(), "f.png")), "the figure is empty")
}

func TestCaptionNamesWhatIsNotDrawn(t *testing.T) {
	study := synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 2, 4)
	study.Runs[0].Info.Status = runs.StatusFailed // ddp, 1 worker, seed 1
	for i := range study.Runs {
		if study.Runs[i].Info.Workers == 4 {
			study.Runs[i].Epochs = study.Runs[i].Epochs[:1] // left out by the rule
		}
	}
	study, err := scaling.FromRuns(study.Runs)
	check(t, err)
	f, err := EpochTime(study)
	check(t, err)
	for _, part := range []string{"No value: ddp at 4", "1 failed or cancelled run is not drawn", "n = 1 to 2 runs per point", "Bars reach from the lowest to the highest", "Two seeds: no interval drawn"} {
		if !strings.Contains(f.Caption(), part) {
			t.Errorf("caption %q does not say %q", f.Caption(), part)
		}
	}
}

func TestTicks(t *testing.T) {
	labels := func(marks []string) string { return strings.Join(marks, " ") }
	var got []string
	for _, tick := range (element.CountTicks{Counts: []int{1, 2, 4, 8, 16, 32, 64, 128}}).Ticks(-5, 134) {
		got = append(got, tick.Label)
	}
	if want := []string{"1", "", "", "8", "16", "32", "64", "128"}; !slices.Equal(got, want) { // 2 and 4 have no room
		t.Errorf("worker ticks %q, expected %q", got, want)
	}
	for _, c := range []struct {
		hi   float64
		want string
	}{{1, "0.0 0.2 0.4 0.6 0.8 1.0"}, {8.5, "0 2 4 6 8"}, {14, "0.0 2.5 5.0 7.5 10.0 12.5"}, {520, "0 100 200 300 400 500"}, {0.004, "0.000 0.001 0.002 0.003 0.004"}} {
		got = got[:0]
		for _, tick := range (element.ValueTicks{}).Ticks(0, c.hi) {
			got = append(got, tick.Label)
		}
		if labels(got) != c.want {
			t.Errorf("ticks to %g: %q, expected %q", c.hi, labels(got), c.want)
		}
	}
	for _, c := range []struct {
		hi   float64
		want string
	}{{2, "1 2"}, {12, "1 2 3 4 5 6 7 8 9 10 11 12"}, {30, "5 10 15 20 25 30"}, {200, "20 40 60 80 100 120 140 160 180 200"}} {
		got = got[:0]
		for _, tick := range (element.EpochTicks{}).Ticks(1, c.hi) {
			got = append(got, tick.Label)
		}
		if labels(got) != c.want {
			t.Errorf("epoch ticks to %g: %q, expected %q", c.hi, labels(got), c.want)
		}
	}
}

func namesOf(figures []*Figure) []string {
	var names []string
	for _, f := range figures {
		names = append(names, f.Name())
	}
	return names
}
