package compress

import (
	"context"
	"math"
	"math/rand/v2"

	"lockstep/pkg/collective"
)

// Matrix is the gradient of one parameter with its rest, as a matrix in row-major order: one row
// for each element of the parameter's first dimension.
type Matrix struct {
	Rows, Columns int
	Values        []float64 // FactorGradients replaces them by the mean, of rank r
	Rest          []float64 // set by FactorGradients
	// Factor is the factor Q of the previous step, Columns × r, with which the next step begins.
	Factor []float64
}

// IsSmaller reports whether the factors of rank r of a matrix have fewer elements than the matrix.
func IsSmaller(rows, columns, r int) bool { return r*(rows+columns) < rows*columns }

// InitialFactor returns the factor Q for the first step: Columns × r normally distributed numbers,
// the same on each rank. number identifies the matrix. Like later factors of float32 gradients,
// they are float32 numbers, which a checkpoint stores exactly.
func InitialFactor(columns, r, number int) []float64 {
	random := rand.New(rand.NewPCG(uint64(number), 0x9e3779b97f4a7c15)) // any constant will do
	q := make([]float64, columns*r)
	for i := range q {
		q[i] = float64(float32(random.NormFloat64()))
	}
	return q
}

// FactorGradients replaces the values of all matrices by an approximation of their mean over all
// ranks: P·Qᵀ, where P and Q have r columns. It also replaces small, whose elements are not
// compressed, by its mean. It returns the number of bytes that this rank contributes. T is the type
// in which the factors are sent.
//
// This is PowerSGD (T. Vogels, S. P. Karimireddy and M. Jaggi, arXiv:1905.13727, algorithms 1 and
// 2): one step of subspace iteration, which begins with the previous Q. Only P and Q are
// all-reduced, because the mean of all M·Q is (mean of all M)·Q.
func FactorGradients[T number](ctx context.Context, group collective.Group, r int, matrices []*Matrix, small []T) (int, error) {
	var left, right []T
	for _, m := range matrices {
		m.replaceZeroColumns(r)
		left = appendAs(left, m.multiply(m.Factor, r))
	}
	left = append(left, small...)
	if err := average(ctx, group, left); err != nil {
		return 0, err
	}
	p := make([][]float64, len(matrices))
	at := 0
	for i, m := range matrices {
		p[i] = toFloat64(left[at : at+m.Rows*r])
		at += m.Rows * r
		orthogonalize(p[i], m.Rows, r)
		own := m.multiplyTransposed(p[i], r)
		m.Rest = m.product(p[i], own, r) // what this rank contributes to the mean
		for j, v := range m.Values {
			m.Rest[j] = v - m.Rest[j]
		}
		right = appendAs(right, own)
	}
	copy(small, left[at:])
	if len(right) > 0 {
		if err := average(ctx, group, right); err != nil {
			return 0, err
		}
	}
	at = 0
	for i, m := range matrices {
		m.Factor = toFloat64(right[at : at+m.Columns*r])
		at += m.Columns * r
		m.Values = m.product(p[i], m.Factor, r)
	}
	return AsBuffer(left).Bytes() + AsBuffer(right).Bytes(), nil
}

// average replaces v by its mean over all ranks.
func average[T number](ctx context.Context, group collective.Group, v []T) error {
	if err := group.AllReduce(ctx, AsBuffer(v)); err != nil {
		return err
	}
	for i := range v {
		v[i] /= T(group.Size())
	}
	return nil
}

// multiply returns M·q, Rows × r.
func (m *Matrix) multiply(q []float64, r int) []float64 {
	out := make([]float64, m.Rows*r)
	for i := range m.Rows {
		row := out[i*r:][:r]
		for j, v := range m.Values[i*m.Columns:][:m.Columns] {
			for k, f := range q[j*r:][:r] {
				row[k] += v * f
			}
		}
	}
	return out
}

// multiplyTransposed returns Mᵀ·p, Columns × r.
func (m *Matrix) multiplyTransposed(p []float64, r int) []float64 {
	out := make([]float64, m.Columns*r)
	for i := range m.Rows {
		row := p[i*r:][:r]
		for j, v := range m.Values[i*m.Columns:][:m.Columns] {
			to := out[j*r:][:r]
			for k, f := range row {
				to[k] += v * f
			}
		}
	}
	return out
}

// product returns p·qᵀ, Rows × Columns.
func (m *Matrix) product(p, q []float64, r int) []float64 {
	out := make([]float64, m.Rows*m.Columns)
	for i := range m.Rows {
		left := p[i*r:][:r]
		for j := range m.Columns {
			sum := 0.0
			for k, f := range q[j*r:][:r] {
				sum += left[k] * f
			}
			out[i*m.Columns+j] = sum
		}
	}
	return out
}

// replaceZeroColumns replaces columns of the factor that are zero by those of the initial factor. A
// column becomes zero when the gradient has a lower rank, and would remain zero.
func (m *Matrix) replaceZeroColumns(r int) {
	var initial []float64
	for k := range r {
		zero := true
		for j := range m.Columns {
			zero = zero && m.Factor[j*r+k] == 0
		}
		if !zero {
			continue
		}
		if initial == nil {
			initial = InitialFactor(m.Columns, r, m.Columns)
		}
		for j := range m.Columns {
			m.Factor[j*r+k] = initial[j*r+k]
		}
	}
}

// orthogonalize makes the r columns of p orthonormal (modified Gram-Schmidt). A column that
// depends on the columns before it becomes zero.
func orthogonalize(p []float64, rows, r int) {
	dot := func(a, b int) (sum float64) {
		for i := range rows {
			sum += p[i*r+a] * p[i*r+b]
		}
		return sum
	}
	const dependent = 1e-6 // smallest part of a column's length that counts; the factors may be float32
	for k := range r {
		before := math.Sqrt(dot(k, k))
		for j := range k {
			projection := dot(j, k)
			for i := range rows {
				p[i*r+k] -= projection * p[i*r+j]
			}
		}
		scale := 0.0
		if after := math.Sqrt(dot(k, k)); after > dependent*before || math.IsNaN(after) {
			scale = 1 / after
		}
		for i := range rows {
			p[i*r+k] *= scale
		}
	}
}

// appendAs appends v to to, as values of type T.
func appendAs[T number](to []T, v []float64) []T {
	for _, x := range v {
		to = append(to, T(x))
	}
	return to
}

// toFloat64 returns v as float64.
func toFloat64[T number](v []T) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}
