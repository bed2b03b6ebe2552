package nn

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// Initializer fills v with initial values; uniform gives numbers in [0, 1) of
// a stream that belongs to this parameter alone.
type Initializer func(uniform func() float64, v []float64)

// Constant sets every element to value.
func Constant(value float64) Initializer {
	return func(_ func() float64, v []float64) {
		for i := range v {
			v[i] = value
		}
	}
}

// KaimingUniform is U(−b, b) with b = 1/√fanIn: what PyTorch's convolutions
// start with, weights and biases alike (torch.nn.modules.conv.reset_parameters:
// kaiming_uniform_ with a = √5). fanIn is the number of inputs to an output.
//
// He et al., Delving Deep into Rectifiers, 2015, arXiv:1502.01852, with the
// gain that PyTorch keeps for compatibility.
func KaimingUniform(fanIn int) Initializer {
	return symmetric(1 / math.Sqrt(float64(fanIn)))
}

// symmetric is U(−bound, bound).
func symmetric(bound float64) Initializer {
	return func(uniform func() float64, v []float64) {
		for i := range v {
			v[i] = bound * (2*uniform() - 1)
		}
	}
}

// KaimingNormal is N(0, 2/fanIn), the initialisation that He et al. (2015,
// section 2.2) derive for ReLU.
func KaimingNormal(fanIn int) Initializer { return Normal(math.Sqrt(2 / float64(fanIn))) }

// Normal is N(0, sigma²).
func Normal(sigma float64) Initializer {
	return func(uniform func() float64, v []float64) {
		for i := range v {
			// Box and Muller, 1958. 1−u is in (0, 1], so the logarithm is finite.
			r := math.Sqrt(-2 * math.Log(1-uniform()))
			v[i] = sigma * r * math.Cos(2*math.Pi*uniform())
		}
	}
}

// Scheme gives the initial values of a layer's weight or bias from the fans of
// its weight: how many numbers an output is computed from, and how many outputs
// an input goes into.
type Scheme func(fanIn, fanOut int) Initializer

// Same is the scheme that starts with init whatever the fans:
// Same(Normal(0.02)), Same(Constant(0)).
func Same(init Initializer) Scheme { return func(int, int) Initializer { return init } }

// GlorotUniform is U(−b, b) with b = √(6/(fanIn+fanOut)), Keras' default for
// weights. It is a Scheme.
//
// Glorot and Bengio, Understanding the difficulty of training deep feedforward
// neural networks, 2010, equation 16.
func GlorotUniform(fanIn, fanOut int) Initializer {
	return symmetric(math.Sqrt(6 / float64(fanIn+fanOut)))
}

// KaimingFanOut is N(0, 2/fanOut): what torchvision's ResNets start their
// convolutions with (kaiming_normal_ with mode "fan_out"), and the variant of
// He et al. that keeps the size of gradients. It is a Scheme.
func KaimingFanOut(_, fanOut int) Initializer { return KaimingNormal(fanOut) }

// torchUniform is what PyTorch's layers start with. It is a Scheme.
func torchUniform(fanIn, _ int) Initializer { return KaimingUniform(fanIn) }

// stream is a source of uniform numbers in [0, 1) that depends on the seed and
// the name alone: not on the order in which parameters are made, and not on
// the rank.
func stream(seed int64, name string) func() float64 {
	h := sha256.New()
	var s [8]byte
	binary.LittleEndian.PutUint64(s[:], uint64(seed))
	h.Write(s[:])
	h.Write([]byte(name))
	sum := h.Sum(nil)
	pcg := rand.NewPCG(binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:]))
	return func() float64 { return float64(pcg.Uint64()>>11) / (1 << 53) }
}

// InitialValues are the values of every parameter and state, by name, in
// logical order. They depend on the seed and the name alone.
func (g *Graph) InitialValues(seed int64) map[string][]float64 {
	values := make(map[string][]float64, len(g.params)+len(g.states))
	for _, list := range [][]Variable{g.params, g.states} {
		for _, p := range list {
			v := make([]float64, p.Elements())
			p.Init(stream(seed, p.Name), v)
			values[p.Name] = v
		}
	}
	return values
}
