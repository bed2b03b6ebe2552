package show

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

func forms(t *testing.T, v any) Bundle {
	t.Helper()
	f, ok, err := Render(v)
	if err != nil || !ok {
		t.Fatalf("Rich(%T) = %v, %v", v, ok, err)
	}
	if text, ok := f[Text].(string); !ok || text == "" {
		t.Errorf("%T has no text form: %v", v, f[Text])
	}
	return f
}

func table(rows int) dataframe.DataFrame {
	x, name := make([]float64, rows), make([]string, rows)
	for i := range rows {
		x[i], name[i] = float64(i)/3, "<b>"
	}
	if rows > 1 {
		x[1] = math.NaN()
	}
	return dataframe.New(series.New(x, series.Float, "x & y"), series.New(name, series.String, "name"),
		series.New(make([]int, rows), series.Int, "n"))
}

// wellFormed fails unless s is well-formed XML, which both an SVG and our
// tables are.
func wellFormed(t *testing.T, s string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(s))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}

func TestDataFrameIsATable(t *testing.T) {
	df := table(3)
	for _, v := range []any{df, &df} {
		page := forms(t, v)[HTML].(string)
		wellFormed(t, "<div>"+page+"</div>")
		if n := strings.Count(page, "<tr>"); n != 4 {
			t.Errorf("%d rows with the head, want 4", n)
		}
		for _, want := range []string{"x &amp; y", "&lt;b&gt;", ">0.666667<", ">NaN<", ">0</td>"} {
			if !strings.Contains(page, want) {
				t.Errorf("table has no %q:\n%s", want, page)
			}
		}
		if strings.Contains(page, "rows, ") {
			t.Error("a small table says that rows are missing")
		}
	}
	long := forms(t, table(1000))[HTML].(string)
	if n := strings.Count(long, "<tr>"); n != 61 || !strings.Contains(long, "60 of 1000 rows") {
		t.Errorf("a table of 1000 rows shows %d and says %q", n-1, long[len(long)-60:])
	}
	if page := forms(t, series.Floats([]float64{1, 2}))[HTML].(string); strings.Count(page, "<tr>") != 3 {
		t.Errorf("a series of 2 is %s", page)
	}
	empty := forms(t, dataframe.New(series.New([]float64{}, series.Float, "x")))[HTML].(string)
	if strings.Count(empty, "<tr>") != 1 {
		t.Errorf("an empty frame is %s", empty)
	}
}

func TestBrokenDataFrameIsAnError(t *testing.T) {
	_, ok, err := Render(table(2).Select("no such column"))
	if !ok || err == nil || !strings.Contains(err.Error(), "no such column") {
		t.Errorf("Rich = %v, %v", ok, err)
	}
}

func TestPlotIsSVG(t *testing.T) {
	p := plot.New()
	p.Title.Text = "Speed-up"
	line, err := plotter.NewLine(plotter.XYs{{X: 1, Y: 1}, {X: 2, Y: 1.9}})
	if err != nil {
		t.Fatal(err)
	}
	p.Add(line)
	f := forms(t, p)
	drawing := f[SVG].(string)
	wellFormed(t, drawing)
	if !strings.Contains(drawing, ">Speed-up<") || f[Text] != "(plot: Speed-up)" {
		t.Errorf("title is missing; text form is %q", f[Text])
	}
	if want := `<img alt="(plot: Speed-up)" src="data:image/svg+xml;base64,` + base64.StdEncoding.EncodeToString([]byte(drawing)) + `"/>`; f[HTML] != want {
		t.Errorf("HTML form is %.200q", f[HTML])
	}
	p.X.Min, p.X.Max = 2, 1 // drawing this panics in gonum/plot
	p.Add(plotter.NewFunction(func(float64) float64 { panic("no value here") }))
	if _, ok, err := Render(p); !ok || err == nil {
		t.Errorf("a plot that cannot be drawn gives %v, %v", ok, err)
	}
}

func TestImageIsPNG(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 3, 2))
	img.SetGray(1, 1, color.Gray{Y: 200})
	f := forms(t, img)
	back, err := png.Decode(bytes.NewReader(f[PNG].([]byte)))
	if err != nil {
		t.Fatal(err)
	}
	if back.Bounds() != img.Bounds() || color.GrayModel.Convert(back.At(1, 1)) != (color.Gray{Y: 200}) {
		t.Error("the picture is another")
	}
	if f[Text] != "image of 3×2 pixels" {
		t.Errorf("text form is %q", f[Text])
	}
}

type page struct{}

func (page) HTML() string         { return "<p>" }
func (page) SVG() string          { return "<svg/>" }
func (page) PNG() []byte          { return []byte("png") }
func (page) Markdown() string     { return "*m*" }
func (page) Latex() string        { return "$l$" }
func (page) JPEG() []byte         { return []byte("jpeg") }
func (page) PDF() []byte          { return []byte("pdf") }
func (page) JSON() map[string]any { return map[string]any{"k": 1} }
func (page) JavaScript() string   { return "js" }

type titled struct{ page }

func (titled) String() string { return "a title" }

type broken struct{}

func (broken) SVG() string { panic("nothing to draw") }

func TestMethodsAreForms(t *testing.T) {
	f := forms(t, page{})
	for _, mime := range []string{HTML, SVG, PNG, Markdown, Latex, JPEG, PDF, JSON, JavaScript} {
		if f[mime] == nil {
			t.Errorf("no %s", mime)
		}
	}
	if f[Text] != "(show.page)" {
		t.Errorf("text form is %q", f[Text])
	}
	if got := forms(t, titled{})[Text]; got != "a title" {
		t.Errorf("text form of a Stringer is %q", got)
	}
	if _, _, err := Render(broken{}); err == nil || !strings.Contains(err.Error(), "nothing to draw") {
		t.Errorf("a method that panics gives %v", err)
	}
}

func TestPlainValuesStayPlain(t *testing.T) {
	for _, v := range []any{1, "text", nil, []float64{1}, errors.New("e"), (*plot.Plot)(nil), (*dataframe.DataFrame)(nil)} {
		if _, ok, err := Render(v); ok || err != nil {
			t.Errorf("Rich(%#v) = %v, %v, want a plain value", v, ok, err)
		}
	}
	f, err := RenderAny(42)
	if err != nil || len(f) != 1 || f[Text] != "42" {
		t.Errorf("All(42) = %v, %v", f, err)
	}
}

func TestElements(t *testing.T) {
	p := plot.New()
	list, ok, err := RenderElements([]*plot.Plot{p, p})
	if err != nil || !ok || len(list) != 2 || list[1][SVG] == nil || list[1][Text] == nil {
		t.Errorf("two plots give %d forms, %v, %v", len(list), ok, err)
	}
	many := make([]*plot.Plot, maxRenderedElements+1)
	for i := range many {
		many[i] = p
	}
	if list, ok, err := RenderElements(many); err != nil || !ok || len(list) != maxRenderedElements+1 || list[maxRenderedElements][Text] != "(50 of 51 elements)" {
		t.Errorf("many plots give %d forms, %v, %v", len(list), ok, err)
	}
	for _, v := range []any{nil, 3, []int{1}, []*plot.Plot{}, []*plot.Plot{nil}, []any{p, 1}, "text"} {
		if list, ok, err := RenderElements(v); ok || list != nil || err != nil {
			t.Errorf("%v gives %v, %v, %v", v, list, ok, err)
		}
	}
}
