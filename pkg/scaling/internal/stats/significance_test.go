package stats

import (
	"math"
	"testing"
)

// TestWelch computes the textbook case: Student's sleep data (Biometrika 6,
// 1908), for which R's t.test(extra ~ group, data = sleep) prints
// t = -1.8608, df = 17.776, p-value = 0.07939. WelchTest takes logarithms, so the test passes
// the exponentials of the data.
func TestWelch(t *testing.T) {
	a := []float64{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0}
	b := []float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}
	for i := range a {
		a[i], b[i] = math.Exp(a[i]), math.Exp(b[i])
	}
	if p := WelchTest(a, b); math.Abs(p-0.07939) > 5e-6 {
		t.Errorf("p is %.5f, R says 0.07939", p)
	}
	logs := bootstrap{logs: true}
	if df := welchDegreesOfFreedom(logs.newSample(a), logs.newSample(b)); math.Abs(df-17.776) > 5e-4 {
		t.Errorf("%.3f degrees of freedom, R says 17.776", df)
	}
	if p := WelchTest([]float64{2, 2}, []float64{2, 2}); p != 1 {
		t.Errorf("equal runs have p %g", p)
	}
	if p := WelchTest([]float64{2, 2}, []float64{3, 3}); p != 0 {
		t.Errorf("runs without spread that differ have p %g", p)
	}
}

// TestPermutation assigns three against three runs: of the 20 assignments, two (the observed
// one and its mirror image) have a difference as large as the observed one.
func TestPermutation(t *testing.T) {
	if p := PermutationTest([]float64{1, 2, 3}, []float64{4, 5, 6}); p != 0.1 || MinPermutationP(3, 3) != 0.1 {
		t.Errorf("p is %g, at best %g; expected 0.1", p, MinPermutationP(3, 3))
	}
	if p := PermutationTest([]float64{1, 2}, []float64{4, 5, 6}); p != 0.1 || MinPermutationP(2, 3) != 0.1 {
		t.Errorf("p is %g, at best %g; expected 1 of 10", p, MinPermutationP(2, 3))
	}
	if p := PermutationTest([]float64{1, 4}, []float64{1, 4}); p != 1 {
		t.Errorf("equal sides have p %g", p)
	}
	if p := PermutationTest(make([]float64, 12), make([]float64, 12)); !math.IsNaN(p) {
		t.Errorf("too many arrangements, and yet p %g", p)
	}
}

// TestSignedRanks compares with scipy.stats.wilcoxon(mode="exact") of SciPy
// 1.10.1; the first row is Darwin's maize, the example of its documentation.
// SciPy has no exact p with ties or zeros: the last two p-values were counted in Python over
// all 2ⁿ assignments of signs to the ranks of scipy.stats.rankdata.
func TestSignedRanks(t *testing.T) {
	for _, c := range []struct {
		d      []float64
		sum, p float64
	}{
		{[]float64{6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75}, 120 - 24, 0.041259765625},
		{[]float64{.1, .2, .3, .4, .5, .6}, 21, 0.03125},
		{[]float64{.1, .2, .3, .4, .5}, 15, 0.0625},
		{[]float64{-.1, .2, .3, .4, .5, .6, .7, .8}, 35, 0.015625},
		{[]float64{-.3, .1, .2, .45, .5, -.6, .7, .85}, 27, 0.25},
		{[]float64{1, 1, 1, -1, 2, 2, 3, 0}, 25.5, 0.078125},
		{[]float64{1, 1, 2, 2, -1, 3, 3, 3}, 34, 0.03125},
	} {
		sum, expected, p := SignedRankTest(c.d)
		n := 0.0
		for _, v := range c.d {
			if v != 0 {
				n++
			}
		}
		if sum != c.sum || math.Abs(p-c.p) > 1e-15 || expected != n*(n+1)/4 {
			t.Errorf("%v: sum %g of %g, p %.12g, expected %g and %.12g", c.d, sum, expected, p, c.sum, c.p)
		}
	}
	if _, _, p := SignedRankTest([]float64{0, 0}); !math.IsNaN(p) {
		t.Errorf("p of no difference is %g", p)
	}
	if _, _, p := SignedRankTest(make([]float64, 0)); !math.IsNaN(p) {
		t.Errorf("p of nothing is %g", p)
	}
}

// TestSpearman compares with scipy.stats.spearmanr of SciPy 1.10.1. The third row contains the
// residuals of Gustafson's law for PyTorch with Horovod in logs/published/unet2d-v100.csv.
func TestSpearman(t *testing.T) {
	for _, c := range []struct {
		x, y   []float64
		rho, p float64
	}{
		{[]float64{1, 2, 3, 4, 5}, []float64{5, 6, 7, 8, 7}, 0.8207826816681233, 0.08858700531354381},
		{[]float64{1, 2, 4, 8, 16, 32}, []float64{6, 1, 2, 3, 4, 5}, 0.14285714285714288, 0.7871720116618075},
		{[]float64{1, 2, 4, 6, 8, 10, 12, 14}, []float64{0.116, -0.132, -0.089, -0.023, -0.001, 0.042, 0.052, 0.034}, 0.261904761904762, 0.530922861565801},
		{[]float64{1, 2, 4, 8, 16, 32}, []float64{0.002, 0.008, 0.008, -0.003, -0.007, -0.007}, -0.7944613465542746, 0.05902759992532669},
		{[]float64{1, 2, 3, 4, 5, 6}, []float64{1, 2, 3, 4, 6, 5}, 0.942857142857143, 0.004804664723032055},
		{[]float64{1, 2, 3, 4}, []float64{9, 7, 5, 3}, -1, 0},
		{[]float64{1, 2, 3, 4}, []float64{5, 5, 5, 5}, 0, 1},
	} {
		rho, p := SpearmanTest(c.x, c.y)
		if math.Abs(rho-c.rho) > 1e-12 || math.Abs(p-c.p) > 1e-12 {
			t.Errorf("%v, %v: ρ %.15g, p %.15g, expected %.15g and %.15g", c.x, c.y, rho, p, c.rho, c.p)
		}
	}
}
