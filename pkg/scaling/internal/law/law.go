// Package law fits scaling laws to the throughput of runs, and a model of the all-reduce to its time.
package law

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/optimize"
)

// Names of the scaling laws: the values of Fit.Law.
const (
	Linear    = "linear"
	Amdahl    = "amdahl"
	Gustafson = "gustafson"
	USL       = "usl"
)

// scalingLaw is a model of the throughput of n workers, X(n) = λ·g(n), where λ is the throughput of
// one worker and g(1) = 1. Because λ is a parameter, the baseline is a measurement like the others
// and may have more than one worker.
type scalingLaw struct {
	name, formula string
	parameters    []parameter // parameters of g
	g             func(n float64, theta []float64) float64
	// slopes returns the derivatives of ln g with respect to the parameters.
	slopes func(n float64, theta []float64) []float64
}

// parameter is a parameter of a law, with its range and its start values for the search.
type parameter struct {
	name, meaning string
	share         bool // the range is 0 to 1; otherwise it has no upper limit
	starts        []float64
}

// scalingLaws returns the laws to fit, the simplest first.
//
// Amdahl, Validity of the single processor approach to achieving large scale computing
// capabilities, AFIPS 1967: a share σ of the work is serial, g = n/(1 + σ(n−1)).
// Gustafson, Reevaluating Amdahl's law, CACM 31, 1988: a share α of the time of n
// workers is serial, and the work grows with n, g = n − α(n−1). Gunther, Guerrilla
// Capacity Planning, 2007, ch. 4: the universal scalability law adds the cost κ of
// keeping pairs of workers consistent, g = n/(1 + σ(n−1) + κn(n−1)). With κ = 0 it is
// Amdahl's law.
func scalingLaws() []scalingLaw {
	return []scalingLaw{
		{
			name: Linear, formula: "X(n) = λ·n",
			g:      func(n float64, _ []float64) float64 { return n },
			slopes: func(float64, []float64) []float64 { return nil },
		},
		{
			name: Amdahl, formula: "X(n) = λ·n / (1 + σ·(n−1))",
			parameters: []parameter{{"σ", "serial share of the work", true, []float64{0.003, 0.1}}},
			g:          func(n float64, p []float64) float64 { return n / (1 + p[0]*(n-1)) },
			slopes:     func(n float64, p []float64) []float64 { return []float64{-(n - 1) / (1 + p[0]*(n-1))} },
		},
		{
			name: Gustafson, formula: "X(n) = λ·(n − α·(n−1))",
			parameters: []parameter{{"α", "serial share of the time at size n", true, []float64{0.003, 0.1}}},
			g:          func(n float64, p []float64) float64 { return n - p[0]*(n-1) },
			slopes:     func(n float64, p []float64) []float64 { return []float64{-(n - 1) / (n - p[0]*(n-1))} },
		},
		{
			name: USL, formula: "X(n) = λ·n / (1 + σ·(n−1) + κ·n·(n−1))",
			parameters: []parameter{
				{"σ", "contention: serial share of the work", true, []float64{0.003, 0.1}},
				{"κ", "coherency: cost per pair, relative to the work at size 1", false, []float64{1e-5, 1e-3}},
			},
			g: func(n float64, p []float64) float64 { return n / (1 + p[0]*(n-1) + p[1]*n*(n-1)) },
			slopes: func(n float64, p []float64) []float64 {
				down := 1 + p[0]*(n-1) + p[1]*n*(n-1)
				return []float64{-(n - 1) / down, -n * (n - 1) / down}
			},
		},
	}
}

// Observation is the throughput of one run.
type Observation struct {
	Size float64 // number of workers or nodes
	Rate float64 // throughput per second, positive
}

// constrain maps any real number u to the parameter's range: to u²/(1+u²), between 0 and 1, if it
// is a share, else to u². Both can be 0, the value at which a law becomes a simpler one.
func (p parameter) constrain(u float64) float64 {
	if p.share {
		return u * u / (1 + u*u)
	}
	return u * u
}

// unconstrain returns the non-negative inverse of constrain.
func (p parameter) unconstrain(v float64) float64 {
	if p.share {
		return math.Sqrt(v / (1 - v))
	}
	return math.Sqrt(v)
}

func (l scalingLaw) constrain(u []float64) []float64 {
	theta := make([]float64, len(u))
	for i, p := range l.parameters {
		theta[i] = p.constrain(u[i])
	}
	return theta
}

// fitLambda returns the logarithm of the best-fitting λ for the given parameters, and the residual
// sum of squares of the logarithms. Logarithms are used because measured times vary by factors.
func (l scalingLaw) fitLambda(data []Observation, theta []float64) (lnLambda, rss float64) {
	for _, d := range data {
		lnLambda += math.Log(d.Rate / l.g(d.Size, theta))
	}
	lnLambda /= float64(len(data))
	for _, d := range data {
		r := math.Log(d.Rate/l.g(d.Size, theta)) - lnLambda
		rss += r * r
	}
	return lnLambda, rss
}

// fitParameters returns the least-squares parameters, searched from several start values.
func (l scalingLaw) fitParameters(data []Observation) (lnLambda float64, theta []float64, rss float64, err error) {
	if len(l.parameters) == 0 {
		lnLambda, rss = l.fitLambda(data, nil)
		return lnLambda, nil, rss, nil
	}
	problem := optimize.Problem{Func: func(u []float64) float64 {
		_, rss := l.fitLambda(data, l.constrain(u))
		return rss
	}}
	settings := optimize.Settings{
		MajorIterations: 2000,
		Converger:       &optimize.FunctionConverge{Absolute: 1e-15, Iterations: 60},
	}
	rss = math.Inf(1)
	for _, start := range l.searchStartPoints() {
		var result *optimize.Result
		result, err = optimize.Minimize(problem, start, &settings, &optimize.NelderMead{})
		if result != nil && result.F < rss { // at the iteration limit, the result is the best point so far
			rss, theta = result.F, snapToZero(l.constrain(result.X))
		}
	}
	if theta == nil || math.IsNaN(rss) {
		return 0, nil, 0, fmt.Errorf("fit %s: no parameters found: %w", l.name, err)
	}
	lnLambda, rss = l.fitLambda(data, theta)
	return lnLambda, theta, rss, nil
}

func snapToZero(theta []float64) []float64 {
	for i, v := range theta {
		if v < 1e-10 {
			theta[i] = 0
		}
	}
	return theta
}

func (l scalingLaw) searchStartPoints() [][]float64 {
	out := [][]float64{nil}
	for _, p := range l.parameters {
		var longer [][]float64
		for _, head := range out {
			for _, v := range p.starts {
				longer = append(longer, append(append([]float64{}, head...), p.unconstrain(v)))
			}
		}
		out = longer
	}
	return out
}
