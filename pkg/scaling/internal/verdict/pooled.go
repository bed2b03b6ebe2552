package verdict

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/stats"
)

// VerdictMixed means that the verdict depends on the worker count. Only a PooledComparison has it.
const VerdictMixed = "depends on the worker count"

// PooledComparison answers "is A faster than B?" over all worker counts; see
// scaling.PooledComparison.
type PooledComparison struct {
	A, B             string
	Counts           int
	Faster, Slower   int
	Median, Min, Max float64
	P                float64
	Verdict          string
	Sentence         string
}

// poolComparisons combines the comparisons of two series at several worker counts. level is the
// confidence level. ok is false if fewer than two comparisons have a ratio.
func poolComparisons(rows []Comparison, level float64) (p PooledComparison, ok bool) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(c Comparison) bool { return c.same || !(c.Ratio.Value > 0) })
	if len(rows) < 2 {
		return PooledComparison{}, false
	}
	p = PooledComparison{A: rows[0].A, B: rows[0].B, Counts: len(rows)}
	var ratios, logs []float64
	shown := map[string]int{}
	for _, r := range rows {
		ratios, logs = append(ratios, r.Ratio.Value), append(logs, math.Log(r.Ratio.Value))
		shown[r.Verdict]++
		switch {
		case r.Ratio.Value > 1:
			p.Faster++
		case r.Ratio.Value < 1:
			p.Slower++
		}
	}
	p.Median, p.Min, p.Max = stats.Median(ratios), slices.Min(ratios), slices.Max(ratios)
	sum, expected, chance := stats.SignedRankTest(logs)
	p.P = chance
	p.setVerdict(shown, sum-expected, 1-level)
	return p, true
}

// setVerdict sets the fields Verdict and Sentence. shown maps each verdict to the number of worker
// counts that have it. side is positive if the signed ranks favor A, and alpha is the significance
// level.
func (p *PooledComparison) setVerdict(shown map[string]int, side, alpha float64) {
	up, down := shown[VerdictFaster], shown[VerdictSlower]
	significant := p.P < alpha && side*math.Log(p.Median) > 0
	against := significant && (side > 0 && down > 0 || side < 0 && up > 0)
	partly := !significant && up+down > 0 && up < p.Counts && down < p.Counts
	text := p.describePooledSpeed()
	switch {
	case up > 0 && down > 0, against, partly:
		p.Verdict = VerdictMixed
		text += fmt.Sprintf(". It depends on the worker count: beyond chance, %s is faster at %d and slower at %d of the counts.", p.A, up, down)
	case significant && side > 0, up == p.Counts:
		p.Verdict = VerdictFaster
		text += fmt.Sprintf(". Yes: %s is faster, at %d of %d counts.", p.A, p.Faster, p.Counts)
	case significant, down == p.Counts:
		p.Verdict = VerdictSlower
		text += fmt.Sprintf(". No: %s is slower, at %d of %d counts.", p.A, p.Slower, p.Counts)
	case shown[VerdictUnknown] == p.Counts && !(stats.MinSignedRankP(p.Faster+p.Slower) < alpha):
		p.Verdict = VerdictUnknown
		text += fmt.Sprintf(". So few worker counts cannot show a difference (p is at least %s): run at least 6 worker counts, or at least 3 seeds of each.", english.FormatPValue(stats.MinSignedRankP(p.Counts)))
	default:
		p.Verdict = VerdictNone
		text += ". The worker counts together show no difference beyond chance."
	}
	p.Sentence = text
}

func (p *PooledComparison) describePooledSpeed() string {
	if p.Faster+p.Slower == 0 {
		return fmt.Sprintf("%s is as fast as %s at each of %d worker counts", p.A, p.B, p.Counts)
	}
	return fmt.Sprintf("%s runs %s times as fast as %s in the median of %d worker counts (%s to %s); paired test over the counts (Wilcoxon's signed-rank), p %s",
		p.A, english.FormatNumber(p.Median), p.B, p.Counts, english.FormatNumber(p.Min), english.FormatNumber(p.Max), english.FormatPValueWithOperator(p.P))
}
