package element

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// FittingTicks are ticks that can be reduced in number or size on a short axis.
type FittingTicks interface {
	plot.Ticker
	// Fit changes the axis so that labels on its length do not overlap, if that is
	// possible with text of at least the size least.
	Fit(axis *plot.Axis, length vg.Length, vertical bool, least vg.Length)
}

// Ruler measures labels along an axis.
type Ruler struct {
	Axis     *plot.Axis
	Length   vg.Length
	Vertical bool
}

// extent returns the length of a label along the axis, with a gap.
func (r Ruler) extent(label string) vg.Length {
	style := r.Axis.Tick.Label
	if r.Vertical {
		return style.Font.Size * vg.Length(strings.Count(label, "\n")+1) * 1.1
	}
	return style.Width(label) + style.Font.Size/3
}

// Collide reports whether any two labels overlap.
func (r Ruler) Collide(ticks []plot.Tick) bool {
	type stretch struct{ from, to vg.Length }
	var all []stretch
	for _, t := range ticks {
		at := r.Axis.Norm(t.Value)
		if t.Label == "" || at < -1e-9 || at > 1+1e-9 {
			continue
		}
		middle, half := vg.Length(at)*r.Length, r.extent(t.Label)/2
		all = append(all, stretch{middle - half, middle + half})
	}
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(all); i++ {
		if all[i].from < all[i-1].to-0.01 {
			return true
		}
	}
	return false
}

// Repeated reports whether two different names have the same label after shortening.
func (r Ruler) Repeated(ticks []plot.Tick) bool {
	names, ok := r.Axis.Tick.Marker.(categoryTicks)
	for i := range ticks {
		for j := range i {
			if ok && ticks[i].Label != "" && ticks[i].Label == ticks[j].Label && names.names[i] != names.names[j] {
				return true
			}
		}
	}
	return false
}

// reduce replaces the ticks by fewer and fewer ones, from usual down to 1, until their
// labels do not overlap.
func (r Ruler) reduce(usual int, with func(most int) plot.Ticker) {
	for most := usual; most >= 1; most-- {
		if !r.Collide(r.Axis.Tick.Marker.Ticks(r.Axis.Min, r.Axis.Max)) {
			return
		}
		r.Axis.Tick.Marker = with(most)
	}
}

// Fit implements FittingTicks.
func (t ValueTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	Ruler{axis, length, vertical}.reduce(defaultTicks-1, func(most int) plot.Ticker { return ValueTicks{most} })
}

// Fit implements FittingTicks.
func (l LogTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	Ruler{axis, length, vertical}.reduce(defaultLogTicks-1, func(most int) plot.Ticker { return LogTicks{l.powersOfTwo, most} })
}

// Fit implements FittingTicks.
func (e EpochTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	Ruler{axis, length, vertical}.reduce(10, func(most int) plot.Ticker { return EpochTicks{most} })
}

// Fit implements FittingTicks.
func (w CountTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	r := Ruler{axis, length, vertical}
	if !r.Collide(w.Ticks(axis.Min, axis.Max)) {
		return
	}
	w.width = func(label string) float64 { return float64(r.extent(label) / length) }
	axis.Tick.Marker = w
}

// categoryTicks labels the bars at 0, 1, 2, … with names, in as many lines as they need.
type categoryTicks struct{ names, Lines []string }

// NewCategoryTicks returns ticks whose names are wrapped into lines of at most the width
// most.
func NewCategoryTicks(names []string, most vg.Length, width func(string) vg.Length) categoryTicks {
	t := categoryTicks{names: names}
	for _, name := range names {
		t.Lines = append(t.Lines, Wrap(name, most, width))
	}
	return t
}

// Ticks implements plot.Ticker.
func (c categoryTicks) Ticks(_, _ float64) []plot.Tick {
	ticks := make([]plot.Tick, len(c.Lines))
	for i, label := range c.Lines {
		ticks[i] = plot.Tick{Value: float64(i), Label: label}
	}
	return ticks
}

// numbers reports whether all names are numbers, some of which can be omitted.
func (c categoryTicks) numbers() bool {
	return !slices.ContainsFunc(c.names, func(name string) bool { _, err := strconv.ParseFloat(name, 64); return err != nil })
}

// Fit implements FittingTicks. It omits numbers, or wraps and shrinks other names.
func (c categoryTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, least vg.Length) {
	r := Ruler{axis, length, vertical}
	if c.numbers() {
		for every := 1; every <= len(c.names); every++ {
			lines := make([]string, len(c.names))
			for i := 0; i < len(lines); i += every {
				lines[i] = c.names[i]
			}
			axis.Tick.Marker = categoryTicks{c.names, lines}
			if !r.Collide(axis.Tick.Marker.Ticks(axis.Min, axis.Max)) {
				return
			}
		}
		return
	}
	room := length / vg.Length(axis.Max-axis.Min)
	for ; ; axis.Tick.Label.Font.Size -= 0.5 {
		t := NewCategoryTicks(c.names, room-4, axis.Tick.Label.Width)
		axis.Tick.Marker = t
		complete := true // no name is shortened
		for i, lines := range t.Lines {
			complete = complete && strings.Join(strings.Fields(lines), " ") == strings.Join(strings.Fields(c.names[i]), " ")
		}
		if complete || axis.Tick.Label.Font.Size-0.5 < least {
			return
		}
	}
}

// RowTicks labels the rows of a timeline. It does not omit any label.
type RowTicks []string

// Ticks implements plot.Ticker. The first row is on top.
func (t RowTicks) Ticks(_, _ float64) []plot.Tick {
	ticks := make([]plot.Tick, len(t))
	for i, label := range t {
		ticks[i] = plot.Tick{Value: -float64(i), Label: label}
	}
	return ticks
}

// Fit implements FittingTicks.
func (t RowTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, least vg.Length) {
	r := Ruler{axis, length, vertical}
	for axis.Tick.Label.Font.Size-0.5 >= least && r.Collide(t.Ticks(axis.Min, axis.Max)) {
		axis.Tick.Label.Font.Size -= 0.5
	}
}

// Wrap breaks a text at its spaces into lines of at most the width most, and shortens
// words that are wider.
func Wrap(text string, most vg.Length, width func(string) vg.Length) string {
	var lines []string
	for _, word := range strings.Fields(text) {
		word = Shortened(word, most, width)
		if n := len(lines); n > 0 && width(lines[n-1]+" "+word) <= most {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return strings.Join(lines, "\n")
}

// Shortened returns text, with an ellipsis in place of its middle if it is wider than
// most.
func Shortened(text string, most vg.Length, width func(string) vg.Length) string {
	runes := []rune(text)
	for keep := len(runes) - 1; keep > 1 && width(text) > most; keep-- {
		text = string(runes[:(keep+1)/2]) + "…" + string(runes[len(runes)-keep/2:])
	}
	return text
}
