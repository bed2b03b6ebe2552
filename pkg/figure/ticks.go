package figure

import (
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// fittingTicks are ticks that can be fewer or smaller where an axis is short.
type fittingTicks interface {
	plot.Ticker
	// fit changes the axis so that labels on its length do not cover each
	// other, if that is possible with text of the least size.
	fit(axis *plot.Axis, length vg.Length, vertical bool, least vg.Length)
}

// ruler measures labels along an axis.
type ruler struct {
	axis     *plot.Axis
	length   vg.Length
	vertical bool
}

// extent returns the room that a label takes along the axis, with a gap.
func (r ruler) extent(label string) vg.Length {
	style := r.axis.Tick.Label
	if r.vertical {
		return style.Font.Size * vg.Length(strings.Count(label, "\n")+1) * 1.1
	}
	return style.Width(label) + style.Font.Size/3
}

// collide reports whether any two labels cover each other.
func (r ruler) collide(ticks []plot.Tick) bool {
	type stretch struct{ from, to vg.Length }
	var all []stretch
	for _, t := range ticks {
		at := r.axis.Norm(t.Value)
		if t.Label == "" || at < -1e-9 || at > 1+1e-9 {
			continue
		}
		middle, half := vg.Length(at)*r.length, r.extent(t.Label)/2
		all = append(all, stretch{middle - half, middle + half})
	}
	slices.SortFunc(all, func(a, b stretch) int { return compare(float64(a.from), float64(b.from)) })
	for i := 1; i < len(all); i++ {
		if all[i].from < all[i-1].to-0.01 {
			return true
		}
	}
	return false
}

// repeated reports whether two labels are the same, as names are that were
// shortened too much.
func (r ruler) repeated(ticks []plot.Tick) bool {
	names, ok := r.axis.Tick.Marker.(categoryTicks)
	for i := range ticks {
		for j := range i {
			if ok && ticks[i].Label != "" && ticks[i].Label == ticks[j].Label && names.names[i] != names.names[j] {
				return true
			}
		}
	}
	return false
}

// fewer tries tickers with fewer and fewer marks until their labels have room.
func (r ruler) fewer(usual int, with func(most int) plot.Ticker) {
	for most := usual; most >= 1; most-- {
		if !r.collide(r.axis.Tick.Marker.Ticks(r.axis.Min, r.axis.Max)) {
			return
		}
		r.axis.Tick.Marker = with(most)
	}
}

func (t valueTicks) fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	ruler{axis, length, vertical}.fewer(usualTicks-1, func(most int) plot.Ticker { return valueTicks{most} })
}

func (l logTicks) fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	ruler{axis, length, vertical}.fewer(usualLogTicks-1, func(most int) plot.Ticker { return logTicks{l.two, most} })
}

func (e epochTicks) fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	ruler{axis, length, vertical}.fewer(10, func(most int) plot.Ticker { return epochTicks{most} })
}

func (w countTicks) fit(axis *plot.Axis, length vg.Length, vertical bool, _ vg.Length) {
	r := ruler{axis, length, vertical}
	if !r.collide(w.Ticks(axis.Min, axis.Max)) {
		return
	}
	w.width = func(label string) float64 { return float64(r.extent(label) / length) }
	axis.Tick.Marker = w
}

// categoryTicks names bars 0, 1, 2, … in as many lines as the names need.
type categoryTicks struct{ names, lines []string }

// newCategoryTicks breaks names into lines of at most the given width.
func newCategoryTicks(names []string, most vg.Length, width func(string) vg.Length) categoryTicks {
	t := categoryTicks{names: names}
	for _, name := range names {
		t.lines = append(t.lines, wrap(name, most, width))
	}
	return t
}

// Ticks implements plot.Ticker.
func (c categoryTicks) Ticks(_, _ float64) []plot.Tick {
	ticks := make([]plot.Tick, len(c.lines))
	for i, label := range c.lines {
		ticks[i] = plot.Tick{Value: float64(i), Label: label}
	}
	return ticks
}

// numbers reports whether all names are numbers, some of which can be left out.
func (c categoryTicks) numbers() bool {
	return !slices.ContainsFunc(c.names, func(name string) bool { _, err := strconv.ParseFloat(name, 64); return err != nil })
}

func (c categoryTicks) fit(axis *plot.Axis, length vg.Length, vertical bool, least vg.Length) {
	r := ruler{axis, length, vertical}
	if c.numbers() {
		for every := 1; every <= len(c.names); every++ {
			lines := make([]string, len(c.names))
			for i := 0; i < len(lines); i += every {
				lines[i] = c.names[i]
			}
			axis.Tick.Marker = categoryTicks{c.names, lines}
			if !r.collide(axis.Tick.Marker.Ticks(axis.Min, axis.Max)) {
				return
			}
		}
		return
	}
	room := length / vg.Length(axis.Max-axis.Min)
	for ; ; axis.Tick.Label.Font.Size -= 0.5 {
		t := newCategoryTicks(c.names, room-4, axis.Tick.Label.Width)
		axis.Tick.Marker = t
		whole := true // no name is shortened
		for i, lines := range t.lines {
			whole = whole && strings.Join(strings.Fields(lines), " ") == strings.Join(strings.Fields(c.names[i]), " ")
		}
		if whole || axis.Tick.Label.Font.Size-0.5 < least {
			return
		}
	}
}

// rowTicks names the rows of a timeline, all of which need their name.
type rowTicks []string

// Ticks implements plot.Ticker. The first row is on top.
func (t rowTicks) Ticks(_, _ float64) []plot.Tick {
	ticks := make([]plot.Tick, len(t))
	for i, label := range t {
		ticks[i] = plot.Tick{Value: -float64(i), Label: label}
	}
	return ticks
}

func (t rowTicks) fit(axis *plot.Axis, length vg.Length, vertical bool, least vg.Length) {
	r := ruler{axis, length, vertical}
	for axis.Tick.Label.Font.Size-0.5 >= least && r.collide(t.Ticks(axis.Min, axis.Max)) {
		axis.Tick.Label.Font.Size -= 0.5
	}
}
