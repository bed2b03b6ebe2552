package scaling

import (
	"fmt"
	"strings"
)

// enoughRuns is where the correction of AICc for few observations, which
// favours laws with few parameters, no longer decides alone.
const enoughRuns = 8

// say is what the fits mean, in plain sentences.
func (f *Fits) say() string {
	best := f.Best()
	unit := f.rule.unit()
	text := []string{fmt.Sprintf("%s scales by %s", f.Series, best.words())}
	if len(f.Rows) > 1 {
		if next := f.Rows[1]; next.Delta < 2 { // Burnham and Anderson 2002, §2.6: substantial support
			text[0] += fmt.Sprintf(", which these runs can hardly tell from %s (ΔAICc %s)", lawNames(next.Law), short(next.Delta))
		}
	}
	switch half, ok := best.Half(); {
	case best.Law == LawLinear:
		text = append(text, fmt.Sprintf("every further %s buys as much as the first", unit))
	case best.Law == LawGustafson, !ok:
		text = append(text, fmt.Sprintf("every further %s buys %s of itself", unit, percent(1-best.theta[0])))
	case half == 1:
		text = append(text, fmt.Sprintf("already the second %s buys less than half of itself", unit))
	default:
		text = append(text, fmt.Sprintf("beyond %s another %s buys less than half of itself", plural(half, unit), unit))
		if half > best.largest {
			text[len(text)-1] += fmt.Sprintf(" (the most that was measured is %d)", best.largest)
		}
	}
	if peak, ok := best.Peak(); ok {
		where := fmt.Sprintf("throughput is highest at %s and falls beyond", plural(peak, unit))
		if peak > best.largest {
			where += ", if the law holds so far"
		}
		text = append(text, where)
	}
	if f.Runs < enoughRuns {
		text = append(text, fmt.Sprintf("%s are few to choose a law by: see the others, or run more", plural(f.Runs, "run")))
	}
	return strings.Join(text, "; ") + "."
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
