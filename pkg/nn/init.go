package nn

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// Initializer fills v with initial values. uniform returns random numbers in [0, 1) from a
// stream that is used for only one tensor.
type Initializer func(uniform func() float64, v []float64)

// Constant returns an Initializer that sets every element to value.
func Constant(value float64) Initializer {
	return func(_ func() float64, v []float64) {
		for i := range v {
			v[i] = value
		}
	}
}

// KaimingUniform returns an Initializer with the distribution U(−b, b), b = 1/√fanIn: the
// default of PyTorch for the weights and biases of convolutions
// (torch.nn.modules.conv.reset_parameters: kaiming_uniform_ with a = √5). fanIn is the
// number of inputs on which an output depends.
//
// He et al., Delving Deep into Rectifiers, 2015, arXiv:1502.01852, with the gain that
// PyTorch keeps for compatibility.
func KaimingUniform(fanIn int) Initializer {
	return symmetricUniform(1 / math.Sqrt(float64(fanIn)))
}

func symmetricUniform(bound float64) Initializer {
	return func(uniform func() float64, v []float64) {
		for i := range v {
			v[i] = bound * (2*uniform() - 1)
		}
	}
}

// KaimingNormal returns an Initializer with the distribution N(0, 2/fanIn), which He et
// al. (2015, section 2.2) derive for ReLU.
func KaimingNormal(fanIn int) Initializer { return Normal(math.Sqrt(2 / float64(fanIn))) }

// Normal returns an Initializer with the distribution N(0, sigma²).
func Normal(sigma float64) Initializer {
	return func(uniform func() float64, v []float64) {
		for i := range v {
			// Box and Muller, 1958. 1−u is in (0, 1], so the logarithm is finite.
			r := math.Sqrt(-2 * math.Log(1-uniform()))
			v[i] = sigma * r * math.Cos(2*math.Pi*uniform())
		}
	}
}

// Scheme returns the Initializer of a layer's weight or bias. fanIn is the number of inputs
// on which an output of the layer depends, fanOut the number of outputs that depend on an
// input.
type Scheme func(fanIn, fanOut int) Initializer

// FixedScheme returns a Scheme that uses init for every fan-in and fan-out. Examples:
// FixedScheme(Normal(0.02)), FixedScheme(Constant(0)).
func FixedScheme(init Initializer) Scheme { return func(int, int) Initializer { return init } }

// GlorotUniform is a Scheme with the distribution U(−b, b), b = √(6/(fanIn+fanOut)): the
// default of Keras for weights.
//
// Glorot and Bengio, Understanding the difficulty of training deep feedforward neural
// networks, 2010, equation 16.
func GlorotUniform(fanIn, fanOut int) Initializer {
	return symmetricUniform(math.Sqrt(6 / float64(fanIn+fanOut)))
}

// KaimingFanOut is a Scheme with the distribution N(0, 2/fanOut), which torchvision's
// ResNets use for convolutions (kaiming_normal_ with mode "fan_out"). It is the variant of
// He et al. that preserves the variance of gradients.
func KaimingFanOut(_, fanOut int) Initializer { return KaimingNormal(fanOut) }

// pytorchUniform is the Scheme that PyTorch uses by default for weights and biases.
func pytorchUniform(fanIn, _ int) Initializer { return KaimingUniform(fanIn) }

// newUniformStream generates uniform random numbers in [0, 1). They depend only on seed and
// name, not on the rank or the order in which parameters are created.
func newUniformStream(seed int64, name string) func() float64 {
	h := sha256.New()
	var s [8]byte
	binary.LittleEndian.PutUint64(s[:], uint64(seed))
	h.Write(s[:])
	h.Write([]byte(name))
	sum := h.Sum(nil)
	pcg := rand.NewPCG(binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:]))
	return func() float64 { return float64(pcg.Uint64()>>11) / (1 << 53) }
}

// InitialValues returns the initial values of every parameter and state, by name, in
// row-major order of the shape. They depend only on the seed and the name.
func (g *Graph) InitialValues(seed int64) map[string][]float64 {
	values := make(map[string][]float64, len(g.parameters)+len(g.states))
	for _, list := range [][]Variable{g.parameters, g.states} {
		for _, p := range list {
			v := make([]float64, p.Elements())
			p.Init(newUniformStream(seed, p.Name), v)
			values[p.Name] = v
		}
	}
	return values
}
