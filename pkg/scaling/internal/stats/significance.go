package stats

import (
	"cmp"
	"math"
	"math/big"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/combin"
	"gonum.org/v1/gonum/stat/distuv"
)

// WelchTest returns the two-sided p-value of Welch's t-test of the logarithms of a and b
// (Welch, Biometrika 34, 1947). Each of a and b needs at least two values, all positive.
func WelchTest(a, b []float64) float64 {
	logs := bootstrap{logs: true}
	x, y := logs.newSample(a), logs.newSample(b)
	difference := math.Abs(stat.Mean(x.at, nil) - stat.Mean(y.at, nil))
	switch deviation := math.Hypot(x.noise, y.noise); {
	case deviation > 0:
		t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: welchDegreesOfFreedom(x, y)}
		return 2 * t.Survival(difference/deviation)
	case difference > 0:
		return 0
	}
	return 1
}

// maxPermutations is the largest number of assignments that PermutationTest examines.
const maxPermutations = 20_000

func countPermutations(n, m int) *big.Int { return new(big.Int).Binomial(int64(n+m), int64(n)) }

// MinPermutationP returns the smallest p-value that the permutation test of n against m runs can
// return.
func MinPermutationP(n, m int) float64 {
	ways, _ := new(big.Float).SetInt(countPermutations(n, m)).Float64()
	if n == m { // exchanging both sides gives the same distance
		return 2 / ways
	}
	return 1 / ways
}

// PermutationTest returns the two-sided p-value of the exact permutation test for the difference of
// the mean logarithms. The p-value is the fraction of all assignments of the runs to the two sides
// that have a difference at least as large as the measured one. It is NaN if there are too many
// assignments.
func PermutationTest(a, b []float64) float64 {
	ways := countPermutations(len(a), len(b))
	if !ways.IsInt64() || ways.Int64() > maxPermutations {
		return math.NaN()
	}
	all := make([]float64, 0, len(a)+len(b))
	total := 0.0
	for _, v := range slices.Concat(a, b) {
		all, total = append(all, math.Log(v)), total+math.Log(v)
	}
	distance := func(sum float64) float64 {
		return math.Abs(sum/float64(len(a)) - (total-sum)/float64(len(b)))
	}
	observed := 0.0
	for _, v := range all[:len(a)] {
		observed += v
	}
	// Rounding must not exclude assignments that are exactly as far apart.
	limit := distance(observed) * (1 - 1e-12)
	reached, dealt := 0, 0
	g := combin.NewCombinationGenerator(len(all), len(a))
	pick := make([]int, len(a))
	for g.Next() {
		sum := 0.0
		for _, i := range g.Combination(pick) {
			sum += all[i]
		}
		dealt++
		if distance(sum) >= limit {
			reached++
		}
	}
	return float64(reached) / float64(dealt)
}

// MinSignedRankP returns the smallest p-value that the signed-rank test of n pairs can return.
func MinSignedRankP(n int) float64 { return math.Min(1, math.Pow(2, float64(1-n))) }

// SignedRankTest performs Wilcoxon's signed-rank test. It returns the sum of the ranks of the
// positive differences, the sum that is expected by chance, and the exact two-sided p-value: the
// fraction of all assignments of signs to the ranks whose sum is at least as far from the expected
// one. Differences of 0 are ignored, and ties get the mean of their ranks. p is NaN if no
// difference remains.
func SignedRankTest(differences []float64) (sum, expected, p float64) {
	d := slices.DeleteFunc(slices.Clone(differences), func(v float64) bool { return v == 0 })
	if len(d) == 0 {
		return 0, 0, math.NaN()
	}
	sizes := make([]float64, len(d))
	for i, v := range d {
		sizes[i] = math.Abs(v)
	}
	total, observed := 0, 0 // sums of doubled ranks, which are integers
	doubled := make([]int, len(d))
	for i, r := range fractionalRanks(sizes) {
		doubled[i] = int(math.Round(2 * r))
		total += doubled[i]
		if d[i] > 0 {
			observed += doubled[i]
		}
	}
	ways := make([]*big.Int, total+1) // number of ways to reach each sum
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

// SpearmanTest returns Spearman's rank correlation of x and y and its two-sided p-value by
// Student's t with n−2 degrees of freedom (Kendall, Rank Correlation Methods, 1948, ch. 4), as
// scipy.stats.spearmanr computes it. Ties get the mean of their ranks. It needs at least three
// values. If all values of x or y are equal, it returns 0 and 1.
func SpearmanTest(x, y []float64) (rho, p float64) {
	rho = stat.Correlation(fractionalRanks(x), fractionalRanks(y), nil)
	n := float64(len(x))
	switch {
	case math.IsNaN(rho):
		return 0, 1
	case math.Abs(rho) >= 1-1e-12:
		return rho, 0
	}
	t := math.Abs(rho) * math.Sqrt((n-2)/(1-rho*rho))
	return rho, 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 2}.Survival(t)
}

// fractionalRanks returns the ranks of values, from 1. Ties get the mean of their ranks.
func fractionalRanks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	out := make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			out[order[k]] = float64(i+j+1) / 2 // the mean of ranks i+1 to j
		}
		i = j
	}
	return out
}
