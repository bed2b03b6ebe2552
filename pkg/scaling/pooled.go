package scaling

import (
	"fmt"
	"math"
	"math/big"
	"slices"
)

// VerdictMixed is a verdict of Pooled alone: A is faster or slower at some
// worker counts, and not at the others.
const VerdictMixed = "depends on the worker count"

// Pooled is the answer to "is A faster than B?" over all worker counts at which
// both were measured. It needs no repeated runs: the worker counts are the pairs.
type Pooled struct {
	A, B           string // series
	Counts         int    // worker counts that were compared
	Faster, Slower int    // of these, how many at which A is faster or slower as measured
	// Median, Min and Max are of the ratios at the counts: how many times A is as
	// fast as B.
	Median, Min, Max float64
	// P is of the exact two-sided signed-rank test of the logarithms of the ratios
	// (Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1,
	// 1945): how likely it is that the ratios lie so much to one side of 1 if A and
	// B are equally fast. With n counts it is at least 2/2ⁿ, so that fewer than 6
	// cannot reach 0.05. NaN if A and B are equal at every count.
	P        float64
	Verdict  string // "faster", "slower", "no difference shown", "cannot tell" or "depends on the worker count"
	Sentence string
}

// pool makes one answer of the comparisons of two series at several worker
// counts. ok is false if there are fewer than two.
func pool(rows []Comparison, level float64) (p Pooled, ok bool) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(c Comparison) bool { return c.same || !(c.Ratio.Value > 0) })
	if len(rows) < 2 {
		return Pooled{}, false
	}
	p = Pooled{A: rows[0].A, B: rows[0].B, Counts: len(rows)}
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
	p.Median, p.Min, p.Max = median(ratios), slices.Min(ratios), slices.Max(ratios)
	sum, expected, chance := signedRanks(logs)
	p.P = chance
	p.judge(shown, sum-expected, 1-level)
	return p, true
}

// judge makes the verdict and the sentence. Shown counts the verdicts at the
// single worker counts, side is above 0 if the ranks favor A.
func (p *Pooled) judge(shown map[string]int, side, alpha float64) {
	up, down := shown[VerdictFaster], shown[VerdictSlower]
	significant := p.P < alpha && side*math.Log(p.Median) > 0
	against := significant && (side > 0 && down > 0 || side < 0 && up > 0)
	partly := !significant && up+down > 0 && up < p.Counts && down < p.Counts
	text := p.effect()
	switch {
	case up > 0 && down > 0, against, partly:
		p.Verdict = VerdictMixed
		text += fmt.Sprintf(". It depends on the worker count: by the runs of each count %s is faster at %d and slower at %d of them, beyond chance.", p.A, up, down)
	case significant && side > 0, up == p.Counts:
		p.Verdict = VerdictFaster
		text += fmt.Sprintf(". Yes: %s is faster.", p.A)
	case significant, down == p.Counts:
		p.Verdict = VerdictSlower
		text += fmt.Sprintf(". No: %s is slower.", p.A)
	case shown[VerdictUnknown] == p.Counts && !(leastSigned(p.Faster+p.Slower) < alpha):
		p.Verdict = VerdictUnknown
		text += fmt.Sprintf(". So few counts cannot tell (p is %s at best): run 6 worker counts or more, or at least 3 seeds of each.", pText(leastSigned(p.Counts)))
	default:
		p.Verdict = VerdictNone
		text += ". The worker counts together show no difference."
	}
	p.Sentence = text
}

// effect returns what was measured, and the test's p.
func (p *Pooled) effect() string {
	what, n := "faster than", p.Faster
	if p.Slower > p.Faster {
		what, n = "slower than", p.Slower
	}
	if n == 0 {
		return fmt.Sprintf("%s is as fast as %s at each of %d worker counts", p.A, p.B, p.Counts)
	}
	return fmt.Sprintf("%s is %s %s at %d of %d worker counts, %s times as fast in the median (%s to %s); paired test over the counts (Wilcoxon's signed-rank), p %s",
		p.A, what, p.B, n, p.Counts, short(p.Median), short(p.Min), short(p.Max), pIs(p.P))
}

// leastSigned returns the smallest p that the signed-rank test of n pairs can give.
func leastSigned(n int) float64 { return math.Min(1, math.Pow(2, float64(1-n))) }

// signedRanks returns the sum of the ranks of the positive differences, what it
// is expected to be, and the exact two-sided p of Wilcoxon's signed-rank test:
// the share of all ways to sign the ranks whose sum is as far from the expected
// one. Differences of 0 are left out, ties get the mean of their ranks. P is NaN
// if no difference is left.
func signedRanks(differences []float64) (sum, expected, p float64) {
	d := slices.DeleteFunc(slices.Clone(differences), func(v float64) bool { return v == 0 })
	if len(d) == 0 {
		return 0, 0, math.NaN()
	}
	sizes := make([]float64, len(d))
	for i, v := range d {
		sizes[i] = math.Abs(v)
	}
	total, observed := 0, 0 // of doubled ranks, which are whole numbers
	doubled := make([]int, len(d))
	for i, r := range ranks(sizes) {
		doubled[i] = int(math.Round(2 * r))
		total += doubled[i]
		if d[i] > 0 {
			observed += doubled[i]
		}
	}
	ways := make([]*big.Int, total+1) // of reaching each sum
	for i := range ways {
		ways[i] = new(big.Int)
	}
	ways[0].SetInt64(1)
	for _, r := range doubled {
		for s := total; s >= r; s-- {
			ways[s].Add(ways[s], ways[s-r])
		}
	}
	far := new(big.Int)
	for s, n := range ways {
		if abs(2*s-total) >= abs(2*observed-total) {
			far.Add(far, n)
		}
	}
	p, _ = new(big.Rat).SetFrac(far, new(big.Int).Lsh(big.NewInt(1), uint(len(d)))).Float64()
	return float64(observed) / 2, float64(total) / 4, p
}

func abs(n int) int { return max(n, -n) }
