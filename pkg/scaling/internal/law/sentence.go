package law

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
)

// minRunsForLawChoice is the smallest number of runs for a reliable choice between laws. With fewer,
// AICc's correction for small samples dominates and favors laws with few parameters.
const minRunsForLawChoice = 8

func (f *Fits) summarize() string {
	law := f.SupportedLaw()
	if law == nil {
		best, untried := &f.Rows[0], f.describeUnfittedLaws()
		if untried == "" {
			return fmt.Sprintf("%s: no law describes the measurements: %s fits best, but %s.", f.series.Name, DisplayName(best.Law), f.unsupportedReason(best))
		}
		tried := "the only law that was tried"
		if len(f.Rows) > 1 {
			tried = fmt.Sprintf("the best of the %d laws that were tried", len(f.Rows))
		}
		return fmt.Sprintf("%s: %s, %s, does not describe the measurements: %s; %s.", f.series.Name, DisplayName(best.Law), tried, f.unsupportedReason(best), untried)
	}
	unit := f.series.Unit
	text := []string{fmt.Sprintf("%s follows %s", f.series.Name, law.describe())}
	for i := range f.Rows {
		other := &f.Rows[i]
		// Burnham and Anderson 2002, §2.6: a difference below 2 is substantial support.
		if other != law && math.Abs(other.Delta-law.Delta) < 2 && f.unsupportedReason(other) == "" {
			text[0] += fmt.Sprintf(", which these runs can hardly distinguish from %s (ΔAICc %s)", DisplayName(other.Law), english.FormatNumber(math.Abs(other.Delta-law.Delta)))
			break
		}
	}
	switch half, ok := law.HalfGainSize(); {
	case law.Law == Linear:
		text = append(text, fmt.Sprintf("every additional %s adds about as much throughput as the first", unit))
	case law.Law == Gustafson, !ok:
		text = append(text, fmt.Sprintf("every additional %s adds %s of the throughput of a single one", unit, english.FormatPercent(1-law.theta[0])))
	case half == 1:
		text = append(text, fmt.Sprintf("even the second %s adds less than half the throughput of a single one", unit))
	default:
		text = append(text, fmt.Sprintf("beyond %s, each additional %s adds less than half the throughput of a single one", english.FormatCount(half, unit), unit))
		if half > law.largest {
			text[len(text)-1] += fmt.Sprintf(" (the largest measured count is %d)", law.largest)
		}
	}
	if peak, ok := law.PeakSize(); ok {
		text = append(text, f.describePeak(peak))
	}
	if len(f.series.Runs) < minRunsForLawChoice {
		text = append(text, fmt.Sprintf("%s are too few for a reliable choice of a law: compare the other laws, or add runs", english.FormatCount(len(f.series.Runs), "run")))
	}
	if untried := f.describeUnfittedLaws(); untried != "" {
		text = append(text, untried)
	}
	return strings.Join(text, "; ") + "."
}

// describeUnfittedLaws names the laws that need more runs than there are, with the number that they
// need. It returns "" if there are none.
func (f *Fits) describeUnfittedLaws() string {
	var needs []string
	for i, r := range f.Refused {
		if !r.TooFew || i > 0 && f.Refused[i-1].TooFew && f.Refused[i-1].Runs == r.Runs {
			continue
		}
		var names []string
		for _, other := range f.Refused[i:] {
			if other.TooFew && other.Runs == r.Runs {
				names = append(names, DisplayName(other.Law))
			}
		}
		verb := "needs"
		if len(names) > 1 {
			verb = "need"
		}
		needs = append(needs, fmt.Sprintf("%s, which %s %d runs at %d different %s counts", english.JoinAnd(names), verb, r.Runs, r.Sizes, f.series.Unit))
	}
	if len(needs) == 0 {
		return ""
	}
	return fmt.Sprintf("not tried with %s at %d: %s", english.FormatCount(len(f.series.Runs), "run"), len(f.measured), strings.Join(needs, ", and "))
}

// describePeak says at which size the supported law has its highest throughput. If the highest
// measured throughput is at another size, it says so.
func (f *Fits) describePeak(peak int) string {
	unit := f.series.Unit
	best := slices.MaxFunc(f.measured, func(a, b Observation) int { return cmp.Compare(a.Rate, b.Rate) })
	last := f.measured[len(f.measured)-1].Size
	// The maximum agrees with the law if no size between the measured maximum and the peak was measured.
	agrees := !slices.ContainsFunc(f.measured, func(m Observation) bool {
		return m.Size > min(best.Size, float64(peak)) && m.Size < max(best.Size, float64(peak))
	})
	switch {
	case !agrees, float64(peak) < last && best.Size == last:
		return fmt.Sprintf("according to the law, throughput is highest at %s, but the highest measured throughput is at %g", english.FormatCount(peak, unit), best.Size)
	case float64(peak) > last:
		return fmt.Sprintf("if the law holds that far, throughput is highest at %s and decreases beyond", english.FormatCount(peak, unit))
	}
	return fmt.Sprintf("throughput is highest at about %s and decreases beyond", english.FormatCount(peak, unit))
}

func (f *Fit) describe() string {
	var p []string
	for _, x := range f.Parameters[1:] {
		p = append(p, fmt.Sprintf("%s = %s %s", x.Name, english.FormatNumber(x.Value), english.FormatInterval(x.Low, x.High)))
	}
	if len(p) == 0 {
		return DisplayName(f.Law)
	}
	return fmt.Sprintf("%s, %s", DisplayName(f.Law), english.JoinAnd(p))
}

var lawDisplayNames = map[string]string{
	Linear: "the linear law", Amdahl: "Amdahl's law", Gustafson: "Gustafson's law", USL: "the universal scalability law",
}

// DisplayName returns the name of a law for use in a sentence, such as "Amdahl's law".
func DisplayName(law string) string { return lawDisplayNames[law] }
