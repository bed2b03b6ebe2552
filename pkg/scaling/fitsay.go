package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// enoughRuns is where the correction of AICc for few observations, which
// favours laws with few parameters, no longer decides alone.
const enoughRuns = 8

// say returns what the fits mean, in plain sentences.
func (f *Fits) say() string {
	law := f.Named()
	if law == nil {
		best := f.Best()
		return fmt.Sprintf("%s: no law is named: %s fits best, but %s.", f.Series, lawNames(best.Law), f.doubt(best))
	}
	unit := f.rule.unit()
	text := []string{fmt.Sprintf("%s scales by %s", f.Series, law.words())}
	for i := range f.Rows {
		other := &f.Rows[i]
		// Burnham and Anderson 2002, §2.6: a difference below 2 is substantial support.
		if other != law && math.Abs(other.Delta-law.Delta) < 2 && f.doubt(other) == "" {
			text[0] += fmt.Sprintf(", which these runs can hardly tell from %s (ΔAICc %s)", lawNames(other.Law), short(math.Abs(other.Delta-law.Delta)))
			break
		}
	}
	switch half, ok := law.Half(); {
	case law.Law == LawLinear:
		text = append(text, fmt.Sprintf("every further %s buys about as much as the first", unit))
	case law.Law == LawGustafson, !ok:
		text = append(text, fmt.Sprintf("every further %s buys %s of itself", unit, percent(1-law.theta[0])))
	case half == 1:
		text = append(text, fmt.Sprintf("already the second %s buys less than half of itself", unit))
	default:
		text = append(text, fmt.Sprintf("beyond %s another %s buys less than half of itself", plural(half, unit), unit))
		if half > law.largest {
			text[len(text)-1] += fmt.Sprintf(" (the most that was measured is %d)", law.largest)
		}
	}
	if peak, ok := law.Peak(); ok {
		text = append(text, f.sayPeak(peak))
	}
	if f.Runs < enoughRuns {
		text = append(text, fmt.Sprintf("%s are few to choose a law by: see the others, or run more", plural(f.Runs, "run")))
	}
	return strings.Join(text, "; ") + "."
}

// sayPeak returns where the named law has its highest throughput, and where the
// measured one is if that is elsewhere.
func (f *Fits) sayPeak(peak int) string {
	unit := f.rule.unit()
	best := slices.MaxFunc(f.measured, func(a, b observation) int { return cmp.Compare(a.rate, b.rate) })
	last := f.measured[len(f.measured)-1].size
	// No count between the measured maximum and the peak was measured.
	agrees := !slices.ContainsFunc(f.measured, func(m observation) bool {
		return m.size > min(best.size, float64(peak)) && m.size < max(best.size, float64(peak))
	})
	switch {
	case !agrees, float64(peak) < last && best.size == last:
		return fmt.Sprintf("by the law throughput is highest at %s, but measured it is highest at %g", plural(peak, unit), best.size)
	case float64(peak) > last:
		return fmt.Sprintf("throughput is highest at %s and falls beyond, if the law holds so far", plural(peak, unit))
	}
	return fmt.Sprintf("throughput is highest at about %s and falls beyond", plural(peak, unit))
}

// words are the law and its parameters.
func (f *Fit) words() string {
	var p []string
	for _, x := range f.Parameters[1:] {
		p = append(p, fmt.Sprintf("%s = %s %s", x.Name, short(x.Value), Span{Low: x.Low, High: x.High}.interval()))
	}
	if len(p) == 0 {
		return lawNames(f.Law)
	}
	return fmt.Sprintf("%s, %s", lawNames(f.Law), commas(p))
}

// lawNames are for people.
func lawNames(law string) string {
	switch law {
	case LawAmdahl:
		return "Amdahl's law"
	case LawGustafson:
		return "Gustafson's law"
	case LawUSL:
		return "the universal scalability law"
	}
	return "the linear law"
}
