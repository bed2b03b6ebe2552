package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/runs"
)

// Names of the trials that tell a bottleneck, as benchy calls them.
const (
	TrialIO        = "IO"
	TrialSynthetic = "SYNTHETIC"
	TrialFull      = "FULL"
)

// Values of BottleneckRow.Bound.
const (
	BoundInput   = "input"
	BoundCompute = "compute"
	BoundUnclear = "unclear" // the trials of the two scatter over each other, or FULL is faster than the slower one
)

// BottleneckRow is what a run's trials say of where its time goes. Rates are
// samples per second; the interval of a rate is what the log says of its
// spread (value ± spread), Min and Max those of the single trials.
type BottleneckRow struct {
	Series  string
	Workers int
	Run     string
	// IO is the loader alone, Synthetic the training on data that is there
	// already, Full both together.
	IO, Synthetic, Full Span
	Bound               string  // the slower of the two, "input" (IO) or "compute" (Synthetic), where the trials tell them apart, else "unclear"
	Share               float64 // Full over the slower of the two: 1 is all that can be had without making that faster
	// Overlap is how much of the time that loading and training could pass side
	// by side they do: 0 where one waits for the other all the time
	// (1/Full = 1/IO + 1/Synthetic), 1 where Full is as fast as the slower one.
	Overlap  float64
	Headroom float64 // how many times as fast Full could be at most, were what bounds it free: the faster of the two over Full
	Sentence string
}

// Bottleneck is what bounds each run that has trials. A cell shows it as a
// table.
type Bottleneck struct{ Rows []BottleneckRow }

// Bottleneck says of each run with the trials IO, SYNTHETIC and FULL whether
// loading or computing bounds it: FULL can be no faster than the slower of IO
// and SYNTHETIC, and the two tell how far it is from that.
func (s *Study) Bottleneck() (*Bottleneck, error) {
	b := &Bottleneck{}
	for _, g := range s.grouped() {
		for _, r := range g.runs {
			if row, ok := bottleneck(g.name, r); ok {
				b.Rows = append(b.Rows, row)
			}
		}
	}
	if len(b.Rows) == 0 {
		return nil, errors.New("find bottleneck: no run has the trials IO, SYNTHETIC and FULL, as benchy's logs have them")
	}
	slices.SortStableFunc(b.Rows, func(x, y BottleneckRow) int {
		return cmp.Or(runs.NaturalCompare(x.Series, y.Series), cmp.Compare(x.Workers, y.Workers))
	})
	return b, nil
}

func bottleneck(series string, r runs.Run) (BottleneckRow, bool) {
	row := BottleneckRow{Series: series, Workers: r.Info.Workers, Run: r.Dir}
	for name, into := range map[string]*Span{TrialIO: &row.IO, TrialSynthetic: &row.Synthetic, TrialFull: &row.Full} {
		i := slices.IndexFunc(r.Trials, func(t runs.Trial) bool { return strings.EqualFold(t.Name, name) })
		if i < 0 || !(r.Trials[i].Rate > 0) {
			return row, false
		}
		*into = trialSpan(r.Trials[i])
	}
	io, synthetic, full := row.IO.Value, row.Synthetic.Value, row.Full.Value
	slower, faster := min(io, synthetic), max(io, synthetic)
	switch {
	case !apart(row.IO, row.Synthetic):
		row.Bound = BoundUnclear
	case io < synthetic:
		row.Bound = BoundInput
	default:
		row.Bound = BoundCompute
	}
	row.Share, row.Headroom = full/slower, faster/full
	if slowest := row.slower(); row.Share > 1 && apart(row.Full, slowest) {
		row.Bound = BoundUnclear
	}
	serial, best := 1/io+1/synthetic, 1/slower
	row.Overlap = min(1, max(0, (serial-1/full)/(serial-best)))
	row.Sentence = row.say()
	return row, true
}

// trialSpan is a trial's rate with what the log says of its spread.
func trialSpan(t runs.Trial) Span {
	s := Span{Value: t.Rate, Min: t.Rate, Max: t.Rate, Low: math.NaN(), High: math.NaN(), N: 1}
	if len(t.Rates) > 0 {
		s.Min, s.Max, s.N = slices.Min(t.Rates), slices.Max(t.Rates), len(t.Rates)
	}
	if t.Spread >= 0 {
		s.Low, s.High = t.Rate-t.Spread, t.Rate+t.Spread
	}
	return s
}

// apart says whether two rates differ by more than their trials scatter: all
// trials of one are faster than all of the other, or, where a log tells the
// spread alone, the rates with it do not meet.
func apart(a, b Span) bool {
	if a.N > 1 && b.N > 1 {
		return a.Max < b.Min || b.Max < a.Min
	}
	low, high := func(s Span) float64 { return s.Low }, func(s Span) float64 { return s.High }
	return orValue(a, high) < orValue(b, low) || orValue(b, high) < orValue(a, low)
}

// orValue is an end of a span's interval, its value where there is none.
func orValue(s Span, end func(Span) float64) float64 {
	if v := end(s); !math.IsNaN(v) {
		return v
	}
	return s.Value
}

// nearEnough is the share of the slower one at which nothing else is to blame.
const nearEnough = 0.9

// slower returns the slower of loading alone and computing alone.
func (r BottleneckRow) slower() Span {
	if r.IO.Value < r.Synthetic.Value {
		return r.IO
	}
	return r.Synthetic
}

func (r BottleneckRow) say() string {
	head := fmt.Sprintf("%s at %s: ", r.Series, plural(r.Workers, "worker"))
	slower, what, cure := r.slower(), "the computation", "a faster loader gains nothing"
	if r.IO.Value < r.Synthetic.Value {
		what, cure = "the input", "faster computation gains nothing"
	}
	switch {
	case r.Share > 1 && apart(r.Full, slower):
		return head + fmt.Sprintf("FULL (%s samples/s) is faster than %s alone (%s), which cannot be: measure the three trials again under equal conditions.",
			short(r.Full.Value), what, short(slower.Value))
	case r.Bound == BoundUnclear:
		return head + fmt.Sprintf("the input alone (%s) and the computation alone (%s samples/s) differ by no more than their trials scatter, so that neither can be said to bound it; FULL is %s; measure again with more trials, on a machine that does nothing else.",
			short(r.IO.Value), short(r.Synthetic.Value), short(r.Full.Value))
	}
	text := head + fmt.Sprintf("%s bounds it: FULL reaches %s of the %s samples/s that %s alone allows", what, percent(r.Share), short(slower.Value), what)
	switch {
	case r.Share >= nearEnough:
		text += "; " + cure
	case !apart(r.Full, slower):
		text += "; " + cure + "; what is missing is no more than the trials scatter"
	default:
		text += fmt.Sprintf(", because loading and computing get into each other's way (%s of the overlap that is possible): give the loader cores, threads or memory of its own", percent(r.Overlap))
	}
	if r.Headroom > 1 {
		text += fmt.Sprintf("; with %s out of the way it would be at most %s times as fast", what, short(r.Headroom))
	}
	return text + "."
}

func (b *Bottleneck) grid() grid[BottleneckRow] {
	g := grid[BottleneckRow]{what: "bottleneck", rows: b.Rows, columns: []column[BottleneckRow]{
		{name: "series", brief: true, text: func(r BottleneckRow) string { return r.Series }},
		{name: "workers", brief: true, count: func(r BottleneckRow) int { return r.Workers }},
		{name: "run", text: func(r BottleneckRow) string { return r.Run }},
		{name: "io", brief: true, value: func(r BottleneckRow) float64 { return r.IO.Value }},
		{name: "synthetic", brief: true, value: func(r BottleneckRow) float64 { return r.Synthetic.Value }},
		{name: "full", brief: true, value: func(r BottleneckRow) float64 { return r.Full.Value }},
		{name: "bound", brief: true, text: func(r BottleneckRow) string { return r.Bound }},
		{name: "share", brief: true, value: func(r BottleneckRow) float64 { return r.Share }},
		{name: "overlap", brief: true, value: func(r BottleneckRow) float64 { return r.Overlap }},
		{name: "headroom", brief: true, value: func(r BottleneckRow) float64 { return r.Headroom }},
		{name: "sentence", text: func(r BottleneckRow) string { return r.Sentence }},
	}}
	for _, r := range b.Rows {
		g.remarks = append(g.remarks, r.Sentence)
	}
	return g
}

// Table has a row a run: series, workers, run, io, synthetic, full (samples
// per second), bound, share, overlap, headroom, sentence.
func (b *Bottleneck) Table() dataframe.DataFrame { return b.grid().table() }

// String is the table for people.
func (b *Bottleneck) String() string { return b.grid().String() }

// HTML is the table for a notebook's cell.
func (b *Bottleneck) HTML() string { return b.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (b *Bottleneck) Write(w io.Writer, format string) error { return b.grid().write(w, format) }
