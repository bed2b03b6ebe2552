package element

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// LogScale is a logarithmic axis. It places values that are not positive far below the axis, where
// gonum's would panic.
type LogScale struct{}

// Normalize implements plot.Normalizer.
func (LogScale) Normalize(lo, hi, x float64) float64 {
	if !(x > 0) {
		return -1e3
	}
	return math.Log(x/lo) / math.Log(hi/lo)
}

// ValueTicks marks about five round values, all with labels. If maxTicks is not 0, it marks at most
// maxTicks values.
type ValueTicks struct{ maxTicks int }

// defaultMaxTicks is the largest number of marks on an axis with enough space.
const defaultMaxTicks = 6

// Ticks implements plot.Ticker.
func (t ValueTicks) Ticks(lo, hi float64) []plot.Tick {
	if !(hi > lo) {
		return []plot.Tick{{Value: lo, Label: strconv.FormatFloat(lo, 'g', 4, 64)}}
	}
	most := cmp.Or(t.maxTicks, defaultMaxTicks)
	step, digits := roundTickStep((hi - lo) / float64(most))
	var ticks []plot.Tick
	for k := int(math.Ceil(lo/step - 1e-9)); float64(k)*step <= hi*(1+1e-12); k++ {
		v := float64(k) * step
		ticks = append(ticks, plot.Tick{Value: v, Label: formatTick(v, digits)})
	}
	return ticks
}

// formatTick formats a tick's label. It uses exponents for very large and very small numbers.
func formatTick(v float64, digits int) string {
	if a := math.Abs(v); a >= 1e7 || digits > 5 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// roundTickStep returns the smallest step ≥ rough that is 1, 2, 2.5 or 5 times a power of ten, and the
// number of decimals that its multiples need.
func roundTickStep(rough float64) (step float64, digits int) {
	power := int(math.Floor(math.Log10(rough)))
	for _, c := range []struct {
		factor float64
		extra  int
	}{{1, 0}, {2, 0}, {2.5, 1}, {5, 0}, {10, -1}} {
		if step = c.factor * math.Pow10(power); step >= rough*(1-1e-9) {
			return step, max(0, c.extra-power)
		}
	}
	return step, max(0, -power)
}

// LogTicks marks round values of a logarithmic axis: powers of two, or powers of ten and as many of
// their multiples as fit.
type LogTicks struct {
	powersOfTwo bool // mark powers of two
	maxTicks    int  // largest number of marks; 0 means the default
}

// defaultMaxLogTicks is the largest number of marks on a logarithmic axis with enough space.
const defaultMaxLogTicks = 8

// Ticks implements plot.Ticker.
func (l LogTicks) Ticks(lo, hi float64) []plot.Tick {
	if !(lo > 0) || !(hi > lo) {
		return ValueTicks{}.Ticks(lo, hi)
	}
	most := cmp.Or(l.maxTicks, defaultMaxLogTicks)
	if l.powersOfTwo {
		octaves := math.Log2(hi / lo)
		step := max(1, int(math.Ceil(octaves/float64(most))))
		var ticks []plot.Tick
		for k := int(math.Ceil(math.Log2(lo) - 1e-9)); math.Exp2(float64(k)) <= hi*(1+1e-9); k++ {
			t := plot.Tick{Value: math.Exp2(float64(k))}
			if k%step == 0 {
				t.Label = strconv.FormatFloat(t.Value, 'g', 6, 64)
			}
			ticks = append(ticks, t)
		}
		return ticks
	}
	var ticks []plot.Tick
	for _, digits := range [][]float64{{1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 5, 7}, {1, 2, 5}, {1, 3}, {1}} {
		ticks = ticks[:0]
		for k := int(math.Floor(math.Log10(lo))); math.Pow10(k) <= hi; k++ {
			for _, d := range digits {
				v, err := strconv.ParseFloat(strconv.FormatFloat(d, 'g', -1, 64)+"e"+strconv.Itoa(k), 64)
				if err == nil && v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
					ticks = append(ticks, plot.Tick{Value: v, Label: formatLogLabel(v)})
				}
			}
		}
		if len(ticks) <= most {
			break
		}
	}
	if len(ticks) < 2 { // a short axis
		return ValueTicks{min(most, defaultMaxTicks)}.Ticks(lo, hi)
	}
	if step := (len(ticks) + most - 1) / most; step > 1 { // many decades
		for i := range ticks {
			if i%step != 0 {
				ticks[i].Label = ""
			}
		}
	}
	return ticks
}

// formatLogLabel formats a round value without trailing zeros.
func formatLogLabel(v float64) string {
	if v >= 1e-4 && v < 1e7 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'e', -1, 64)
}

// CountTicks marks the measured counts (of workers, nodes or samples per batch), and labels those
// whose labels fit.
type CountTicks struct {
	Counts []int // ascending
	log    bool
	// width returns a label's width as a fraction of the axis. If it is nil, the width in a figure
	// of default size is assumed.
	width func(label string) float64
}

// Ticks implements plot.Ticker.
func (w CountTicks) Ticks(lo, hi float64) []plot.Tick {
	at := func(v float64) float64 { return (v - lo) / (hi - lo) }
	if w.log {
		at = func(v float64) float64 { return LogScale{}.Normalize(lo, hi, v) }
	}
	half := func(i int) float64 { // half of a label's width, as a fraction of the axis: a digit has about 1.6 %
		label := strconv.Itoa(w.Counts[i])
		if w.width != nil {
			return w.width(label) / 2
		}
		return 0.008 + 0.009*float64(len(label))
	}
	ticks := make([]plot.Tick, len(w.Counts))
	left := math.Inf(1) // left edge of the labels so far
	for i := len(w.Counts) - 1; i >= 0; i-- {
		n := float64(w.Counts[i])
		ticks[i].Value = n
		last, first := i == len(w.Counts)-1, i == 0
		room := at(n)+half(i) <= left && at(n)-half(i) >= at(float64(w.Counts[0]))+half(0)
		if last || room || first && at(n)+half(i) <= left { // the last count is always labeled, the first if it fits
			ticks[i].Label = strconv.Itoa(w.Counts[i])
			left = at(n) - half(i)
		}
	}
	return ticks
}

// EpochTicks marks about ten integer epochs, fewer if the labels are long. If maxTicks is not 0, it
// marks at most maxTicks epochs.
type EpochTicks struct{ maxTicks int }

// Ticks implements plot.Ticker.
func (e EpochTicks) Ticks(lo, hi float64) []plot.Tick {
	step := 1
	most := 11.0
	if e.maxTicks > 0 {
		most = float64(e.maxTicks)
	}
	if digits := len(strconv.Itoa(int(hi))); digits > 4 {
		most = 44 / float64(digits)
	}
	for i := 0; (hi-lo)/float64(step) > most; i++ { // 1, 2, 5, 10, 20, 50, …
		if i%3 == 1 {
			step = step * 5 / 2
		} else {
			step *= 2
		}
	}
	var ticks []plot.Tick
	for n := (int(lo)/step - 1) * step; float64(n) <= hi; n += step {
		if v := float64(n); v >= lo && n >= 1 {
			ticks = append(ticks, plot.Tick{Value: v, Label: strconv.Itoa(n)})
		}
	}
	return ticks
}

// ChooseTimeUnit returns the unit, from µs to h, in which to show a duration: its name, and its length in
// seconds.
func ChooseTimeUnit(seconds float64) (name string, unit float64) {
	switch {
	case seconds >= 3*3600:
		return "h", 3600
	case seconds >= 600:
		return "min", 60
	case seconds >= 0.5 || !(seconds > 0):
		return "s", 1
	case seconds >= 5e-4:
		return "ms", 1e-3
	}
	return "µs", 1e-6
}

// Extent is the range of some values, for example those on an axis.
type Extent struct{ Lo, Hi float64 }

// EmptyExtent returns a range that contains no value.
func EmptyExtent() Extent { return Extent{math.Inf(1), math.Inf(-1)} }

// Add extends the range to include all finite values.
func (e *Extent) Add(values ...float64) {
	for _, v := range values {
		if (v < e.Lo || v > e.Hi) && IsFinite(v) { // the first value is below Lo and above Hi
			e.Lo, e.Hi = min(e.Lo, v), max(e.Hi, v)
		}
	}
}

// AddOnAxis is like Add, but omits values that a logarithmic axis (log) cannot show.
func (e *Extent) AddOnAxis(log bool, values ...float64) {
	for _, v := range values {
		if (v < e.Lo || v > e.Hi) && (!log || v > 0) {
			e.Add(v)
		}
	}
}

// SetCountAxis configures an axis for counts, with a margin at both ends.
func SetCountAxis(a *plot.Axis, counts []int, log bool) {
	lo, hi := float64(slices.Min(counts)), float64(slices.Max(counts))
	a.Tick.Marker = CountTicks{Counts: counts, log: log}
	switch {
	case log:
		a.Scale = LogScale{}
		margin := math.Pow(max(hi/lo, 2), 0.05)
		a.Min, a.Max = lo/margin, hi*margin
	case lo == hi:
		a.Min, a.Max = lo-1, hi+1
	default:
		margin := (hi - lo) * 0.05
		a.Min, a.Max = lo-margin, hi+margin
	}
}

// SetValueAxis configures an axis for values and for the range of their intervals. Intervals are
// cut off if they extend far beyond the values. If log and powersOfTwo are set, the axis marks
// powers of two.
func SetValueAxis(a *plot.Axis, values, intervals Extent, log, powersOfTwo bool) {
	if log && values.Lo > 0 {
		a.Scale, a.Tick.Marker = LogScale{}, LogTicks{powersOfTwo: powersOfTwo}
		lo, hi := values.Lo, values.Hi
		lo, hi = max(min(lo, intervals.Lo), lo/2), min(max(hi, intervals.Hi), hi*2)
		margin := math.Pow(max(hi/lo, 1.5), 0.05)
		a.Min, a.Max = lo/margin, hi*margin
		return
	}
	if !(values.Hi >= values.Lo) {
		values = Extent{0, 1}
	}
	lo, hi := min(0, values.Lo), values.Hi
	if size := hi - lo; size > 0 {
		if intervals.Lo < lo {
			lo = max(intervals.Lo, lo-0.3*size)
		}
		hi = min(max(hi, intervals.Hi), hi+0.4*size)
	}
	if hi == lo {
		hi = lo + 1
	}
	a.Min, a.Max = lo, hi+(hi-lo)*0.06
}

// RightAxis is a second vertical axis with its plotters.
type RightAxis struct {
	Plot     *plot.Plot // Y is the right axis; X is equal to the figure's X
	Plotters []plot.Plotter
}

const axisGap = vg.Length(5) // between axis and data, the same as gonum's on the left

// Width returns the width that the axis and its labels need to the right of the data.
func (r *RightAxis) Width() vg.Length {
	a := r.Plot.Y
	w := axisGap + a.Tick.Length + 3
	widest := vg.Length(0)
	for _, t := range a.Tick.Marker.Ticks(a.Min, a.Max) {
		widest = max(widest, a.Tick.Label.Width(t.Label))
	}
	return w + widest + a.Label.Padding + a.Label.TextStyle.Height(a.Label.Text)
}

// Draw draws the axis and its plotters. c is the data area of the figure.
func (r *RightAxis) Draw(c draw.Canvas) {
	for _, p := range r.Plotters {
		p.Plot(c, r.Plot)
	}
	a := r.Plot.Y
	x := c.Max.X + axisGap
	c.StrokeLine2(a.LineStyle, x, c.Min.Y, x, c.Max.Y)
	style := a.Tick.Label
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	widest := vg.Length(0)
	for _, t := range a.Tick.Marker.Ticks(a.Min, a.Max) {
		y := c.Y(a.Norm(t.Value))
		if !c.ContainsY(y) {
			continue
		}
		c.StrokeLine2(a.Tick.LineStyle, x, y, x+a.Tick.Length, y)
		c.FillText(style, vg.Point{X: x + a.Tick.Length + 3, Y: y}, t.Label)
		widest = max(widest, style.Width(t.Label))
	}
	label := a.Label.TextStyle
	label.Rotation, label.XAlign, label.YAlign = math.Pi/2, draw.XCenter, draw.YTop
	c.FillText(label, vg.Point{X: x + a.Tick.Length + 3 + widest + a.Label.Padding, Y: c.Center().Y}, a.Label.Text)
}

// IsFinite reports whether v is neither NaN nor infinite.
func IsFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
