package show

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/gonum/mat"
	"gorgonia.org/tensor"

	"lockstep/pkg/launch"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

type inner struct {
	Name  string
	Count int
}

type outer struct {
	Title  string
	Inner  inner
	Next   *outer
	List   []inner
	hidden float64
}

type stringer struct{ n int }

func (s stringer) String() string { return fmt.Sprintf("number %d", s.n) }

func TestPlain(t *testing.T) {
	loop := &outer{Title: "a"}
	loop.Next = loop
	var none *outer
	for _, tt := range []struct {
		v    any
		want string
	}{
		{42, "42"},
		{1.5, "1.5"},
		{"text\nof two lines", "text\nof two lines"},
		{[]int{1, 2}, "[1 2]"},
		{[]string{"a", "b c"}, "[a b c]"},
		{[]byte("ab"), "[97 98]"},
		{map[string]int{"b": 2, "a": 1}, "map[a:1 b:2]"},
		{map[int]string{10: "x", 9: "y"}, "map[9:y 10:x]"},
		{[2]bool{true, false}, "[true false]"},
		{2 * time.Second, "2s"},
		{stringer{3}, "number 3"},
		{fmt.Errorf("no luck"), "no luck"},
		{[]error{fmt.Errorf("a"), nil}, "[a <nil>]"},
		{none, "<nil>"},
		{inner{"a b", 3}, `show.inner{Name: "a b", Count: 3}`},
		{&inner{"a", 3}, `&show.inner{Name: "a", Count: 3}`},
		{struct{ x int }{1}, "{x: 1}"},
		{struct{ X, Y int }{1, 2}, "{X: 1, Y: 2}"},
		{[]inner{{"a", 1}, {"b", 2}}, "[show.inner{Name: \"a\", Count: 1}\n show.inner{Name: \"b\", Count: 2}]"},
		{outer{Title: "t", Inner: inner{"i", 1}, Next: &outer{Title: "u"}, hidden: 0.5}, `show.outer{
  Title: "t"
  Inner: show.inner{Name: "i", Count: 1}
  Next:  &show.outer{
    Title: "u"
    Inner: show.inner{Name: "", Count: 0}
    Next:  <nil>
    List:  []
  }
  List:  []
}`},
		{struct{ M *mat.Dense }{mat.NewDense(1, 2, []float64{1, 2})}, "{M: [1  2]}"},
	} {
		if got := formatText(tt.v); got != tt.want {
			t.Errorf("%T is shown as\n%s\nwant\n%s", tt.v, got, tt.want)
		}
	}
	if got := formatText(loop); !strings.Contains(got, "Next:  … (cycle)") {
		t.Errorf("a value that points to itself is shown as\n%s", got)
	}
}

func TestConfigsAreYAML(t *testing.T) {
	cfg, err := train.Named("unet2d-cells")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{cfg, &cfg} {
		text := formatText(v)
		if !strings.HasPrefix(text, "name: unet2d-cells\n") || !strings.Contains(text, "\noptimizer:\n    name: adam\n") {
			t.Errorf("a config is shown as\n%s", text)
		}
		again, err := train.Parse("again", []byte(text))
		if err != nil || formatText(again) != text {
			t.Errorf("what is shown does not read back: %v", err)
		}
	}
}

func TestMatrices(t *testing.T) {
	if got, want := formatText(mat.NewDense(2, 3, []float64{1, 2, 3, 4, 5.5, 6})), "⎡1    2  3⎤\n⎣4  5.5  6⎦"; got != want {
		t.Errorf("a matrix is shown as\n%s\nwant\n%s", got, want)
	}
	large := formatText(mat.NewDense(2000, 2000, nil))
	if lines := strings.Count(large, "\n"); lines > 20 || !strings.Contains(large, "Dims(2000, 2000)") {
		t.Errorf("a large matrix is shown as\n%s", large)
	}
	var none *mat.Dense
	if got := formatText(none); got != "<nil>" {
		t.Errorf("a nil matrix is shown as %q", got)
	}
}

// What is large is not formatted: the text is short, and writing it allocates
// little, however large the value.
func TestLargeValuesAreElided(t *testing.T) {
	const n = 10_000_000
	numbers := make([]int, n)
	many := map[int]float64{}
	for i := range 200_000 {
		many[i] = 1
	}
	deep := any(1)
	for range 1000 {
		deep = []any{deep, deep}
	}
	for _, tt := range []struct {
		what string
		v    any
		want string
	}{
		{"slice", numbers, "(9999900 more of 10000000)"},
		{"array", *(*[n]int)(numbers), "(9999900 more of 10000000)"},
		{"pointer to a slice", &numbers, "(9999900 more of 10000000)"},
		{"slice in a struct", struct{ X []int }{numbers}, "(9999900 more of 10000000)"},
		{"slice in a slice", [][]int{numbers, numbers}, "(9999900 more of 10000000)"},
		{"slice in a map", map[string][]int{"a": numbers}, "(9999900 more of 10000000)"},
		{"string", strings.Repeat("é", n), "(10000 of 20000000 bytes)"},
		{"string in a slice", []string{strings.Repeat("a", n)}, "(100 of 10000000 bytes)"},
		{"string in a struct", inner{Name: strings.Repeat("a", n)}, "(10000000 bytes)"},
		{"buffer", bytes.NewBuffer(make([]byte, 8*n)), "(10000 of 80000000 bytes)"},
		{"strings.Builder", builder(8 * n), "(10000 of 80000000 bytes)"},
		{"stringer in a slice", []fmt.Stringer{bytes.NewBuffer(make([]byte, 8*n))}, "(10000 of 80000000 bytes)"},
		{"tensor", tensor.New(tensor.WithShape(n/100, 100), tensor.WithBacking(make([]float64, n))), "*tensor.Dense of shape (100000, 100): [0 0 "},
		{"tensor in a struct", struct{ T tensor.Tensor }{tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(n))}, "(9999900 more of 10000000)"},
		{"number of 16 MB", new(big.Int).Lsh(big.NewInt(1), 1<<27), "more of 2097153"},
		{"type with a String method", (*wordy)(&numbers), "(9999900 more of 10000000)"},
		{"map", many, "(199900 more of 200000)"},
		{"nested slices", slices.Repeat([][]int{{1, 2, 3}}, n/10), "(999900 more of 1000000)"},
		{"deep", deep, "…"},
		{"structs with large fields", slices.Repeat([]outer{{Title: strings.Repeat("x", 500), List: make([]inner, 1000)}}, 1000), "…"},
		{"config with a large list", struct {
			X []int `yaml:"x"`
		}{numbers}, "(9999900 more of 10000000)"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := formatText(tt.v)
		runtime.ReadMemStats(&after)
		if len(got) > maxText+100 || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %d bytes are shown, ending in %q; want %q in it", tt.what, len(got), got[max(0, len(got)-60):], tt.want)
		}
		// Passing the array copies it; nothing else may grow with the value.
		mib := (after.TotalAlloc - before.TotalAlloc) >> 20
		if mib > 20 && tt.what != "array" {
			t.Errorf("%s: showing it allocates %d MiB", tt.what, mib)
		}
	}
}

// wordy has a String method that takes as long as its value is large.
type wordy []int

func (w *wordy) String() string { return fmt.Sprint([]int(*w)) }

func builder(n int) *strings.Builder {
	var b strings.Builder
	b.WriteString(strings.Repeat("x", n))
	return &b
}

type job []launch.RunStatus

func (job) Dir() string                  { return "logs/a study" }
func (job) Note() string                 { return "already running" }
func (j job) Status() []launch.RunStatus { return j }

func TestJobsAreTables(t *testing.T) {
	j := job{
		{Name: "ddp-n1-s1", Workers: 1, Seed: 1, State: launch.StateDone, Epoch: 3, Epochs: 3, Seconds: 1.25, Last: runs.Epoch{TrainLoss: 0.5, SamplesPerSecond: math.NaN()}},
		{Name: "ddp-n2-s1", Workers: 2, Seed: 1, State: launch.StateFailed, Err: fmt.Errorf("rank 1 <died>")},
	}
	f := forms(t, j)
	text, page := f[Text].(string), f[HTML].(string)
	for _, want := range []string{"run        workers  seed  state   epoch   seconds  train_loss  samples_per_second  error", "ddp-n1-s1  1        1     done    3 of 3  1.25     0.5", "rank 1 <died>", "\nalready running\nlogs/a study"} {
		if !strings.Contains(text, want) {
			t.Errorf("a job is shown as\n%s\nwant %q", text, want)
		}
	}
	wellFormed(t, page)
	if !strings.Contains(page, "rank 1 &lt;died&gt;") || !strings.Contains(page, "3 of 3") {
		t.Errorf("the page of a job is %s", page)
	}
	if list := forms(t, j.Status()); !strings.Contains(list[Text].(string), "ddp-n2-s1") {
		t.Errorf("a status is shown as %v", list[Text])
	}
	var none *launch.Job
	if got, err := RenderAny(none); err != nil || got[Text] != "<nil>" {
		t.Errorf("a nil job is shown as %v, %v", got, err)
	}
}

// A study's table begins with what people read and counts the rest; the frame
// itself keeps all its columns.
func TestTableForPeople(t *testing.T) {
	column := func(name string, v ...float64) series.Series { return series.New(v, series.Float, name) }
	nan := math.NaN()
	df := dataframe.New(series.New([]string{"ddp", "ddp"}, series.String, "series"), series.New([]int{1, 2}, series.Int, "workers"),
		series.New([]int{3, 3}, series.Int, "runs"), column("epoch_seconds", 10, 6), column("throughput", 5, 9), column("speedup", 1, 1.8),
		column("efficiency", 1, 0.9), column("iou", 0.8, 0.7), column("dice", nan, nan), column("train_loss", 0.1, 0.2),
		column("epoch_seconds_min", 9, 5), column("epoch_seconds_low", 9.5, 5.5), column("epoch_seconds_high", 10.5, 6.5),
		column("speedup_low", 1, nan), // the baseline over itself
		column("iou_low", 0.7, 0.6), column("iou_high", 0.9, 0.8), series.New([]int{0, 0}, series.Int, "failed"))
	before := df.Names()
	f := forms(t, df)
	page := f[HTML].(string)
	wellFormed(t, page)
	page = strings.ReplaceAll(page, "<wbr/>", "")
	var head []string
	for _, part := range strings.Split(page, "<th ")[1:] {
		_, name, _ := strings.Cut(part, ">")
		name, _, _ = strings.Cut(name, "<")
		head = append(head, name)
	}
	want := []string{"series", "workers", "runs", "epoch_seconds", "epoch_seconds_low", "epoch_seconds_high", "throughput", "speedup", "efficiency", "iou", "iou_low", "iou_high"}
	if !slices.Equal(head, want) {
		t.Errorf("the table begins with %v, want %v", head, want)
	}
	if !strings.Contains(page, "5 more columns; Names() lists them all") {
		t.Errorf("the page does not count the other columns: %s", page)
	}
	if text := f[Text].(string); !strings.Contains(text, "5 more columns: dice, train_loss, epoch_seconds_min, speedup_low, failed") {
		t.Errorf("the text does not name the other columns:\n%s", text)
	}
	if !slices.Equal(df.Names(), before) {
		t.Errorf("showing the frame changed it to %v", df.Names())
	}
	// Another frame is shown whole.
	if page := forms(t, df.Drop("speedup"))[HTML].(string); !strings.Contains(page, "train_<wbr/>loss") || strings.Contains(page, "more columns") {
		t.Errorf("a frame of another kind is shown as %s", page)
	}
}

// TestWideTable shows the columns of a wide DataFrame whose cells differ, and names the others.
func TestWideTable(t *testing.T) {
	var columns []series.Series
	for i := range 100 {
		cells := []int{i, i}
		if i%10 == 3 {
			cells[1]++
		}
		columns = append(columns, series.New(cells, series.Int, fmt.Sprintf("key%d", i)))
	}
	f := forms(t, dataframe.New(columns...))
	page, text := f[HTML].(string), f[Text].(string)
	if n := strings.Count(page, "<th "); n != 10 || !strings.Contains(page, ">key93<") || !strings.Contains(page, "90 more columns") {
		t.Errorf("%d columns in %s", n, page)
	}
	if !strings.Contains(text, "90 more columns: key0, key1, key2, key4") {
		t.Error(text)
	}
	// Few columns are shown, and so is a table whose cells are all equal.
	if page := forms(t, dataframe.New(columns[:30]...))[HTML].(string); strings.Count(page, "<th ") != 30 {
		t.Error(page)
	}
	if page := forms(t, dataframe.New(columns[4:13]...).CBind(dataframe.New(columns[14:23]...)).CBind(dataframe.New(columns[24:33]...)).CBind(dataframe.New(columns[34:43]...)))[HTML].(string); !strings.Contains(page, "30 of 36 columns") {
		t.Error(page)
	}
}
