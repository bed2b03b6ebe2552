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
	// Fit changes the ticks of an axis of the given length so that labels do not overlap, if that
	// is possible with fonts of at least minSize.
	Fit(axis *plot.Axis, length vg.Length, vertical bool, minSize vg.Length)
}

// LabelMeasurer measures labels along an axis.
type LabelMeasurer struct {
	Axis     *plot.Axis
	Length   vg.Length
	Vertical bool
}

// labelExtent returns the length of a label along the axis, with a gap.
func (r LabelMeasurer) labelExtent(label string) vg.Length {
	style := r.Axis.Tick.Label
	if r.Vertical {
		return style.Font.Size * vg.Length(strings.Count(label, "\n")+1) * 1.1
	}
	return style.Width(label) + style.Font.Size/3
}

// HasOverlap reports whether any two labels overlap.
func (r LabelMeasurer) HasOverlap(ticks []plot.Tick) bool {
	type stretch struct{ from, to vg.Length }
	var all []stretch
	for _, t := range ticks {
		at := r.Axis.Norm(t.Value)
		if t.Label == "" || at < -1e-9 || at > 1+1e-9 {
			continue
		}
		middle, half := vg.Length(at)*r.Length, r.labelExtent(t.Label)/2
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

// HasAmbiguousLabels reports whether two different names have the same shortened label.
func (r LabelMeasurer) HasAmbiguousLabels(ticks []plot.Tick) bool {
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

// reduceTicks replaces the axis's ticks by newTicks(n). It starts with n = start and decreases n
// until the labels do not overlap or n is 1.
func (r LabelMeasurer) reduceTicks(start int, newTicks func(n int) plot.Ticker) {
	for n := start; n >= 1; n-- {
		if !r.HasOverlap(r.Axis.Tick.Marker.Ticks(r.Axis.Min, r.Axis.Max)) {
			return
		}
		r.Axis.Tick.Marker = newTicks(n)
	}
}

// Fit implements FittingTicks.
func (t ValueTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	LabelMeasurer{axis, length, vertical}.reduceTicks(defaultMaxTicks-1, func(most int) plot.Ticker { return ValueTicks{most} })
}

// Fit implements FittingTicks.
func (l LogTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	LabelMeasurer{axis, length, vertical}.reduceTicks(defaultMaxLogTicks-1, func(most int) plot.Ticker { return LogTicks{l.powersOfTwo, most} })
}

// Fit implements FittingTicks.
func (e EpochTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	LabelMeasurer{axis, length, vertical}.reduceTicks(10, func(most int) plot.Ticker { return EpochTicks{most} })
}

// Fit implements FittingTicks.
func (w CountTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	r := LabelMeasurer{axis, length, vertical}
	if !r.HasOverlap(w.Ticks(axis.Min, axis.Max)) {
		return
	}
	w.width = func(label string) float64 { return float64(r.labelExtent(label) / length) }
	axis.Tick.Marker = w
}

// categoryTicks labels the bars at 0, 1, 2, … with names, wrapped into as many lines as needed.
type categoryTicks struct{ names, Lines []string }

// NewCategoryTicks returns ticks whose names are wrapped into lines of at most maxWidth.
func NewCategoryTicks(names []string, maxWidth vg.Length, width func(string) vg.Length) categoryTicks {
	t := categoryTicks{names: names}
	for _, name := range names {
		t.Lines = append(t.Lines, WrapText(name, maxWidth, width))
	}
	return t
}

func (c categoryTicks) Ticks(_, _ float64) []plot.Tick {
	ticks := make([]plot.Tick, len(c.Lines))
	for i, label := range c.Lines {
		ticks[i] = plot.Tick{Value: float64(i), Label: label}
	}
	return ticks
}

// hasOnlyNumbers reports whether all names are numbers. Only numbers may be omitted, because
// readers can infer them.
func (c categoryTicks) hasOnlyNumbers() bool {
	return !slices.ContainsFunc(c.names, func(name string) bool { _, err := strconv.ParseFloat(name, 64); return err != nil })
}

// Fit omits labels that are numbers if they do not fit, and wraps and shrinks others.
func (c categoryTicks) Fit(axis *plot.Axis, length vg.Length, vertical bool, least vg.Length) {
	r := LabelMeasurer{axis, length, vertical}
	if c.hasOnlyNumbers() {
		for every := 1; every <= len(c.names); every++ {
			lines := make([]string, len(c.names))
			for i := 0; i < len(lines); i += every {
				lines[i] = c.names[i]
			}
			axis.Tick.Marker = categoryTicks{c.names, lines}
			if !r.HasOverlap(axis.Tick.Marker.Ticks(axis.Min, axis.Max)) {
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
	r := LabelMeasurer{axis, length, vertical}
	for axis.Tick.Label.Font.Size-0.5 >= least && r.HasOverlap(t.Ticks(axis.Min, axis.Max)) {
		axis.Tick.Label.Font.Size -= 0.5
	}
}

// WrapText breaks a text at its spaces into lines of at most maxWidth, and shortens wider words.
func WrapText(text string, maxWidth vg.Length, width func(string) vg.Length) string {
	var lines []string
	for _, word := range strings.Fields(text) {
		word = ShortenText(word, maxWidth, width)
		if n := len(lines); n > 0 && width(lines[n-1]+" "+word) <= maxWidth {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return strings.Join(lines, "\n")
}

// ShortenText replaces the middle of text by an ellipsis if it is wider than maxWidth.
func ShortenText(text string, maxWidth vg.Length, width func(string) vg.Length) string {
	runes := []rune(text)
	for keep := len(runes) - 1; keep > 1 && width(text) > maxWidth; keep-- {
		text = string(runes[:(keep+1)/2]) + "…" + string(runes[len(runes)-keep/2:])
	}
	return text
}
