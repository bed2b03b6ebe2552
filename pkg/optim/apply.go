package optim

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/english"
)

// Update rules: the values of Config.Name and Update.Rule.
const (
	RuleAdam  = "adam"
	RuleSGD   = "sgd"
	RuleAdamW = "adamw" // Adam with decoupled weight decay
	RuleLARS  = "lars"  // SGD with layer-wise adaptive learning rates
	RuleLAMB  = "lamb"  // AdamW with layer-wise adaptive learning rates
)

// Rules returns the names of all update rules.
func Rules() []string { return []string{RuleSGD, RuleAdam, RuleAdamW, RuleLARS, RuleLAMB} }

func hasMoments(rule string) bool { return rule == RuleAdam || rule == RuleAdamW || rule == RuleLAMB }

// Slots returns the names of the optimizer's state tensors for each parameter, in the order
// in which Apply expects them: "m" and "v" for Adam, AdamW and LAMB, "momentum" for SGD and
// LARS with momentum, otherwise none. Their values are initially zero.
func (u Update) Slots() []string {
	switch {
	case hasMoments(u.Rule):
		return []string{"m", "v"}
	case (u.Rule == RuleSGD || u.Rule == RuleLARS) && u.Momentum != 0:
		return []string{"momentum"}
	}
	return nil
}

// Validate returns an error for an unknown rule or invalid constants.
func (u Update) Validate() error {
	switch {
	case !slices.Contains(Rules(), u.Rule):
		return fmt.Errorf("unknown rule %q: use %s", u.Rule, english.JoinOr(Rules()))
	case hasMoments(u.Rule) && u.Step < 1:
		return fmt.Errorf("invalid step %[2]d for rule %[1]s: steps count from 1", u.Rule, u.Step)
	case u.Rule == RuleSGD && u.Nesterov && u.Momentum == 0:
		return fmt.Errorf("nesterov without momentum: use a momentum above 0, such as 0.9")
	}
	return nil
}

// Tensor64 is a parameter with its gradient and its slots (see Update.Slots), all of the
// same length. They may include padding, whose values are zero.
type Tensor64 struct {
	Weights, Gradient []float64
	Slots             [][]float64
	// Vector is true for a parameter with one dimension, such as a bias or the scale of a
	// normalization layer. LARS and LAMB do not adapt the learning rate of such parameters
	// and do not apply weight decay to them.
	Vector bool
}

// Tensor32 is Tensor64 in single precision.
type Tensor32 struct {
	Weights, Gradient []float32
	Slots             [][]float32
	Vector            bool
}

// Apply applies the update u in place to weights w with gradients g and the given slots
// (see Update.Slots), all of the same length. It is Apply64 for one parameter.
func Apply(u Update, w, g []float64, slots ...[]float64) error {
	return Apply64(u, []Tensor64{{Weights: w, Gradient: g, Slots: slots}})
}

// Apply64 applies the update u to all parameters in place. If u clips gradients, the
// gradients are also changed. If Apply64 returns an error, it has changed nothing. The
// optimizer kernels of the engines are tested against it.
func Apply64(u Update, tensors []Tensor64) error {
	list := make([]updatedTensor[float64], len(tensors))
	for i, t := range tensors {
		list[i] = updatedTensor[float64]{t.Weights, t.Gradient, t.Slots, t.Vector}
	}
	return applyUpdate(u, list, nil)
}

// ApplySharded64 is Apply64 for tensors whose elements are divided among workers: each
// worker passes its own elements of every tensor, possibly none. sum replaces its values by
// their sums over all workers, for the norms of clipping, LARS and LAMB. All workers pass
// tensors in the same order. After an error of sum, the slots may have been changed.
func ApplySharded64(u Update, tensors []Tensor64, sum func(v []float64) error) error {
	list := make([]updatedTensor[float64], len(tensors))
	for i, t := range tensors {
		list[i] = updatedTensor[float64]{t.Weights, t.Gradient, t.Slots, t.Vector}
	}
	return applyUpdate(u, list, sum)
}

// ApplySharded32 is ApplySharded64 in single precision. Norms are summed in double
// precision.
func ApplySharded32(u Update, tensors []Tensor32, sum func(v []float64) error) error {
	list := make([]updatedTensor[float32], len(tensors))
	for i, t := range tensors {
		list[i] = updatedTensor[float32]{t.Weights, t.Gradient, t.Slots, t.Vector}
	}
	return applyUpdate(u, list, sum)
}

// Apply32 is Apply64 in single precision. Norms are summed in double precision.
func Apply32(u Update, tensors []Tensor32) error {
	list := make([]updatedTensor[float32], len(tensors))
	for i, t := range tensors {
		list[i] = updatedTensor[float32]{t.Weights, t.Gradient, t.Slots, t.Vector}
	}
	return applyUpdate(u, list, nil)
}

// Clip32 scales the gradients in place so that the 2-norm of all gradients together is at
// most clip, like torch.nn.utils.clip_grad_norm_: g ← g·min(1, clip/(‖g‖ + 10⁻⁶)). It
// returns the norm before scaling.
func Clip32(clip float64, gradients ...[]float32) float64 {
	sum := 0.0
	for _, g := range gradients {
		sum += sumSquares(g)
	}
	return clipGradients(clip, sum, gradients)
}

type float interface{ ~float32 | ~float64 }

type updatedTensor[T float] struct {
	w, g   []T
	slots  [][]T
	vector bool
}

// applyUpdate implements Apply64, Apply32 and their sharded variants. sum replaces v by its sums
// over all workers; nil means that there is only one worker.
func applyUpdate[T float](u Update, list []updatedTensor[T], sum func(v []float64) error) error {
	if err := u.Validate(); err != nil {
		return fmt.Errorf("apply optimizer step: %w", err)
	}
	names := u.Slots()
	for _, t := range list {
		if len(t.slots) != len(names) {
			return fmt.Errorf("apply %s step: got %d slots, want %d, named %v", u.Rule, len(t.slots), len(names), names)
		}
		if len(t.g) != len(t.w) {
			return fmt.Errorf("apply %s step: got %d gradients for %d weights", u.Rule, len(t.g), len(t.w))
		}
		for i, s := range t.slots {
			if len(s) != len(t.w) {
				return fmt.Errorf("apply %s step: slot %s has %d values for %d weights", u.Rule, names[i], len(s), len(t.w))
			}
		}
	}
	if sum == nil {
		sum = func([]float64) error { return nil }
	}
	if u.ClipNorm > 0 {
		gradients, squares := make([][]T, len(list)), []float64{0}
		for i, t := range list {
			gradients[i] = t.g
			squares[0] += sumSquares(t.g)
		}
		if err := sum(squares); err != nil {
			return fmt.Errorf("clip gradients: %w", err)
		}
		clipGradients(u.ClipNorm, squares[0], gradients)
	}
	var squares []float64 // two per tensor
	switch u.Rule {
	case RuleLARS:
		for _, t := range list {
			squares = append(squares, sumSquares(t.w), sumSquares(t.g))
		}
	case RuleLAMB:
		for _, t := range list {
			squares = append(squares, sumSquares(t.w), updateMomentsLAMB(u, t))
		}
	}
	if len(squares) > 0 {
		if err := sum(squares); err != nil {
			return fmt.Errorf("apply %s step: %w", u.Rule, err)
		}
	}
	for i, t := range list {
		switch u.Rule {
		case RuleAdam, RuleAdamW:
			applyAdam(u, t)
		case RuleLARS:
			applyLARS(u, t, math.Sqrt(squares[2*i]), math.Sqrt(squares[2*i+1]))
		case RuleLAMB:
			applyLAMB(u, t, math.Sqrt(squares[2*i]), math.Sqrt(squares[2*i+1]))
		default:
			applySGD(u, t)
		}
	}
	return nil
}

func sumSquares[T float](v []T) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return sum
}

// clipNormEpsilon, added to the norm, keeps the quotient finite if all gradients are 0.
const clipNormEpsilon = 1e-6

// clipGradients is Clip32 for any float type. squares is the sum of the squares of all gradients.
func clipGradients[T float](clip, squares float64, gradients [][]T) float64 {
	norm := math.Sqrt(squares)
	if f := T(clip / (norm + clipNormEpsilon)); f < 1 {
		for _, g := range gradients {
			for i := range g {
				g[i] *= f
			}
		}
	}
	return norm
}

// applySGD applies one step of SGD like torch.optim.SGD without dampening. The momentum
// buffer buf does not include the learning rate lr; μ is the momentum:
//
//	d = g + decay·w    buf ← μ·buf + d
//	w ← w − lr·buf, or, with Nesterov, w ← w − lr·(d + μ·buf)
//
// (Sutskever et al. 2013, proceedings.mlr.press/v28/sutskever13, in PyTorch's form, where
// w are the look-ahead parameters).
func applySGD[T float](u Update, t updatedTensor[T]) {
	rate, momentum, decay := T(u.LearningRate), T(u.Momentum), T(u.WeightDecay)
	for i := range t.w {
		d := t.g[i] + decay*t.w[i]
		if momentum != 0 {
			buf := momentum*t.slots[0][i] + d
			t.slots[0][i] = buf
			if u.Nesterov {
				d += momentum * buf
			} else {
				d = buf
			}
		}
		t.w[i] -= rate * d
	}
}

// applyAdam applies algorithm 1 of Kingma and Ba (2015, arXiv:1412.6980), with ε added after
// the bias correction, as in the paper and in PyTorch:
//
//	m ← β₁m + (1−β₁)g    v ← β₂v + (1−β₂)g²
//	w ← w − lr · m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε)
//
// AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2, in the order of
// torch.optim.AdamW) adds no weight decay to the gradient, but first sets
// w ← w·(1 − lr·decay).
func applyAdam[T float](u Update, t updatedTensor[T]) {
	correct1, correct2 := biasCorrections[T](u)
	b1, c1, b2, c2 := T(u.Beta1), T(1-u.Beta1), T(u.Beta2), T(1-u.Beta2)
	rate, epsilon, decay, keep := T(u.LearningRate), T(u.Epsilon), T(u.WeightDecay), T(1)
	if u.Rule == RuleAdamW {
		decay, keep = 0, T(1-u.LearningRate*u.WeightDecay)
	}
	m, v := t.slots[0], t.slots[1]
	for i := range t.w {
		d := t.g[i] + decay*t.w[i]
		m[i] = b1*m[i] + c1*d
		v[i] = b2*v[i] + c2*d*d
		t.w[i] = keep*t.w[i] - rate*(m[i]/correct1)/(sqrt(v[i]/correct2)+epsilon)
	}
}

func biasCorrections[T float](u Update) (first, second T) {
	t := float64(u.Step)
	return T(1 - math.Pow(u.Beta1, t)), T(1 - math.Pow(u.Beta2, t))
}

func sqrt[T float](v T) T { return T(math.Sqrt(float64(v))) }

// applyLARS applies algorithm 1 of You et al. (2017, arXiv:1708.03888):
//
//	local = η·‖w‖/(‖g‖ + decay·‖w‖)
//	v ← μ·v + lr·local·(g + decay·w)    w ← w − v
//
// η is the trust coefficient, and μ is the momentum. If a norm is 0, local is 1. For
// vectors (see Tensor64), local is 1 and decay is 0. w and g are the norms ‖w‖ and ‖g‖.
func applyLARS[T float](u Update, t updatedTensor[T], w, g float64) {
	local, decay := 1.0, u.WeightDecay
	if t.vector {
		decay = 0
	} else if w > 0 && g > 0 {
		local = u.Trust * w / (g + decay*w)
	}
	rate, l2, momentum := T(u.LearningRate*local), T(decay), T(u.Momentum)
	for i := range t.w {
		v := rate * (t.g[i] + l2*t.w[i])
		if momentum != 0 {
			v += momentum * t.slots[0][i]
			t.slots[0][i] = v
		}
		t.w[i] -= v
	}
}

// applyLAMB applies algorithm 2 of You et al. (2020, arXiv:1904.00962), with φ(x) = x:
//
//	m, v as in Adam    r = m̂/(√v̂ + ε) + decay·w
//	w ← w − lr · ‖w‖/‖r‖ · r
//
// m̂ and v̂ are m and v after the bias correction. If ‖w‖ or ‖r‖ is 0, the factor ‖w‖/‖r‖
// is replaced by 1. For vectors (see Tensor64), it is always 1, and decay is 0.
//
// updateMomentsLAMB updates m and v, and applyLAMB then updates w. w and r are the norms ‖w‖
// and ‖r‖.
func applyLAMB[T float](u Update, t updatedTensor[T], w, r float64) {
	ratio := 1.0
	if !t.vector && w > 0 && r > 0 {
		ratio = w / r
	}
	direction := lambDirection(u, t)
	rate := T(u.LearningRate * ratio)
	for i := range t.w {
		t.w[i] -= rate * direction(i)
	}
}

func lambDirection[T float](u Update, t updatedTensor[T]) func(i int) T {
	correct1, correct2 := biasCorrections[T](u)
	epsilon, decay := T(u.Epsilon), T(u.WeightDecay)
	if t.vector {
		decay = 0
	}
	m, v := t.slots[0], t.slots[1]
	return func(i int) T { return m[i]/correct1/(sqrt(v[i]/correct2)+epsilon) + decay*t.w[i] }
}

// updateMomentsLAMB updates m and v (see applyLAMB) and returns ‖r‖².
func updateMomentsLAMB[T float](u Update, t updatedTensor[T]) float64 {
	b1, c1, b2, c2 := T(u.Beta1), T(1-u.Beta1), T(u.Beta2), T(1-u.Beta2)
	m, v := t.slots[0], t.slots[1]
	direction := lambDirection(u, t)
	sum := 0.0
	for i, g := range t.g {
		m[i] = b1*m[i] + c1*g
		v[i] = b2*v[i] + c2*g*g
		r := float64(direction(i))
		sum += r * r
	}
	return sum
}
