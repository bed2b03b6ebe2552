// Package law fits the laws of scaling to the throughput of runs, and a model of
// the all-reduce to its time.
package law

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/optimize"
)

// Names of the laws, as Fit.Law has them.
const (
	Linear    = "linear"
	Amdahl    = "amdahl"
	Gustafson = "gustafson"
	USL       = "usl"
)

// law is a model of the throughput of n workers, X(n) = λ·g(n), where λ is the
// throughput of one and g(1) = 1. With λ among the parameters the baseline is a
// measurement like the others, and need not be one worker.
type law struct {
	name, formula string
	parameters    []parameter // of g
	g             func(n float64, theta []float64) float64
	// slopes are the derivatives of ln g by the parameters.
	slopes func(n float64, theta []float64) []float64
}

// parameter is one of a law, with its range and its meaning.
type parameter struct {
	name, meaning string
	share         bool // from 0 to 1; else from 0
	starts        []float64
}

// laws returns the laws that are fitted, the simplest first.
//
// Amdahl, Validity of the single processor approach to achieving large scale
// computing capabilities, AFIPS 1967: a share σ of the work is serial,
// g = n/(1 + σ(n−1)). Gustafson, Reevaluating Amdahl's law, CACM 31, 1988: of
// the time of n workers a share α is serial, and the work grows with n,
// g = n − α(n−1). Gunther, Guerrilla Capacity Planning, 2007, ch. 4: the
// universal scalability law adds the cost κ of keeping pairs coherent,
// g = n/(1 + σ(n−1) + κn(n−1)); with κ = 0 it is Amdahl's.
func laws() []law {
	return []law{
		{
			name: Linear, formula: "X(n) = λ·n",
			g:      func(n float64, _ []float64) float64 { return n },
			slopes: func(float64, []float64) []float64 { return nil },
		},
		{
			name: Amdahl, formula: "X(n) = λ·n / (1 + σ·(n−1))",
			parameters: []parameter{{"σ", "serial share of the work of one", true, []float64{0.003, 0.1}}},
			g:          func(n float64, p []float64) float64 { return n / (1 + p[0]*(n-1)) },
			slopes:     func(n float64, p []float64) []float64 { return []float64{-(n - 1) / (1 + p[0]*(n-1))} },
		},
		{
			name: Gustafson, formula: "X(n) = λ·(n − α·(n−1))",
			parameters: []parameter{{"α", "serial share of the time of n", true, []float64{0.003, 0.1}}},
			g:          func(n float64, p []float64) float64 { return n - p[0]*(n-1) },
			slopes:     func(n float64, p []float64) []float64 { return []float64{-(n - 1) / (n - p[0]*(n-1))} },
		},
		{
			name: USL, formula: "X(n) = λ·n / (1 + σ·(n−1) + κ·n·(n−1))",
			parameters: []parameter{
				{"σ", "contention: share of the work of one that is serial", true, []float64{0.003, 0.1}},
				{"κ", "coherency: cost of each pair that must agree, in work of one", false, []float64{1e-5, 1e-3}},
			},
			g: func(n float64, p []float64) float64 { return n / (1 + p[0]*(n-1) + p[1]*n*(n-1)) },
			slopes: func(n float64, p []float64) []float64 {
				down := 1 + p[0]*(n-1) + p[1]*n*(n-1)
				return []float64{-(n - 1) / down, -n * (n - 1) / down}
			},
		},
	}
}

// Observation is the throughput of a run.
type Observation struct {
	Size float64 // workers or nodes
	Rate float64 // per second, above 0
}

// inside maps any number to the parameter's range: u² is never negative, and
// u²/(1+u²) is a share. Both reach 0, where a law becomes a simpler one.
func (p parameter) inside(u float64) float64 {
	if p.share {
		return u * u / (1 + u*u)
	}
	return u * u
}

// outside is the inverse of inside.
func (p parameter) outside(v float64) float64 {
	if p.share {
		return math.Sqrt(v / (1 - v))
	}
	return math.Sqrt(v)
}

// theta maps unbounded numbers to the law's parameters.
func (l law) theta(u []float64) []float64 {
	theta := make([]float64, len(u))
	for i, p := range l.parameters {
		theta[i] = p.inside(u[i])
	}
	return theta
}

// lambda returns the logarithm of λ that fits best, with the sum of the squared
// residuals of the logarithms: measured times vary by factors.
func (l law) lambda(data []Observation, theta []float64) (lnLambda, rss float64) {
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

// fit finds the parameters with the least squares, from several starts.
func (l law) fit(data []Observation) (lnLambda float64, theta []float64, rss float64, err error) {
	if len(l.parameters) == 0 {
		lnLambda, rss = l.lambda(data, nil)
		return lnLambda, nil, rss, nil
	}
	problem := optimize.Problem{Func: func(u []float64) float64 {
		_, rss := l.lambda(data, l.theta(u))
		return rss
	}}
	settings := optimize.Settings{
		MajorIterations: 2000,
		Converger:       &optimize.FunctionConverge{Absolute: 1e-15, Iterations: 60},
	}
	rss = math.Inf(1)
	for _, start := range l.starts() {
		var result *optimize.Result
		result, err = optimize.Minimize(problem, start, &settings, &optimize.NelderMead{})
		if result != nil && result.F < rss { // an iteration limit still leaves the best so far
			rss, theta = result.F, snapped(l.theta(result.X))
		}
	}
	if theta == nil || math.IsNaN(rss) {
		return 0, nil, 0, fmt.Errorf("fit %s: no parameters found: %w", l.name, err)
	}
	lnLambda, rss = l.lambda(data, theta)
	return lnLambda, theta, rss, nil
}

// snapped makes what a search left beside 0 a plain 0.
func snapped(theta []float64) []float64 {
	for i, v := range theta {
		if v < 1e-10 {
			theta[i] = 0
		}
	}
	return theta
}

// starts returns every combination of the parameters' starts.
func (l law) starts() [][]float64 {
	out := [][]float64{nil}
	for _, p := range l.parameters {
		var longer [][]float64
		for _, head := range out {
			for _, v := range p.starts {
				longer = append(longer, append(append([]float64{}, head...), p.outside(v)))
			}
		}
		out = longer
	}
	return out
}
