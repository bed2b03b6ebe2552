package model

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"gorgonia.org/gorgonia"

	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/nn"
)

// Spec describes a network as a list of layers, each with the layers that it reads. In
// YAML:
//
//	name: small
//	task: segmentation
//	image: [1, 64, 64]     # of one sample; the data may give another size
//	target: [1, 64, 64]
//	layers:
//	  - {name: a, kind: Conv, out: 8, kernel: 3, pad: 1}
//	  - {name: r, kind: ReLU}
//	  - {name: b, kind: Conv, in: r, out: 8, kernel: 3, pad: 1}
//	  - {name: sum, kind: Add, in: [a, b]}
//	  - {name: head, kind: Conv, out: 1, kernel: 1}
//
// A layer without "in" reads the previous layer, or the image if it is the first.
// Otherwise the order of the layers is free. By default the last layer returns the
// logits, and the task determines the loss.
type Spec struct {
	Name   string      `yaml:"name" json:"name"`
	Task   Task        `yaml:"task" json:"task"`
	Image  []int       `yaml:"image,flow" json:"image"`   // shape of one sample's image, without the batch
	Target []int       `yaml:"target,flow" json:"target"` // of its target
	Layers []SpecLayer `yaml:"layers" json:"layers"`
	Logits string      `yaml:"logits,omitempty" json:"logits,omitempty"` // the layer that computes them; empty: the last one
	Loss   *SpecLoss   `yaml:"loss,omitempty" json:"loss,omitempty"`     // nil: the task's default
}

// SpecLayer is one layer of a Spec. Each kind uses only some of the fields.
type SpecLayer struct {
	Name string     `yaml:"name,omitempty" json:"name,omitempty"` // layers with parameters need one
	Kind string     `yaml:"kind" json:"kind"`
	In   LayerNames `yaml:"in,omitempty" json:"in,omitempty"` // the layers that it reads, or "image"; empty: the previous layer

	Out      int     `yaml:"out,omitempty" json:"out,omitempty"`       // channels or features
	Kernel   Sizes   `yaml:"kernel,omitempty" json:"kernel,omitempty"` // one number, or one per spatial dimension
	Stride   Sizes   `yaml:"stride,omitempty" json:"stride,omitempty"` // empty: 1, of a pooling the kernel
	Pad      Sizes   `yaml:"pad,omitempty" json:"pad,omitempty"`       // on each side; empty: 0
	PadEnd   Sizes   `yaml:"pad_end,omitempty" json:"pad_end,omitempty"`
	PadZeros bool    `yaml:"pad_zeros,omitempty" json:"pad_zeros,omitempty"` // of a max pool: padding has the value 0
	Bias     *bool   `yaml:"bias,omitempty" json:"bias,omitempty"`           // nil: true
	Init     string  `yaml:"init,omitempty" json:"init,omitempty"`           // of the weight; see Inits
	BiasInit string  `yaml:"bias_init,omitempty" json:"bias_init,omitempty"` // of the bias
	Epsilon  float64 `yaml:"epsilon,omitempty" json:"epsilon,omitempty"`     // of a batch norm; 0: 1e-5
	Momentum float64 `yaml:"momentum,omitempty" json:"momentum,omitempty"`   // of a batch norm, the batch's weight; 0: 0.1
	Slope    float64 `yaml:"slope,omitempty" json:"slope,omitempty"`         // of a leaky ReLU; 0: 0.01

	line int // in the file; 0 if the layer is not from a file
}

// SpecLoss is a loss that differs from the task's default.
type SpecLoss struct {
	Kind      string  `yaml:"kind" json:"kind"`                                 // BCEWithLogits, DiceBCE, SoftmaxCrossEntropy, PixelCrossEntropy or L1
	Dice      float64 `yaml:"dice,omitempty" json:"dice,omitempty"`             // of DiceBCE and PixelCrossEntropy: the part of soft Dice, in [0,1]
	Smoothing float64 `yaml:"smoothing,omitempty" json:"smoothing,omitempty"`   // of labels, in [0,1)
	ExpWeight float64 `yaml:"exp_weight,omitempty" json:"exp_weight,omitempty"` // of the second term of L1
	// ClassWeights contains the weight of each class in PixelCrossEntropy. Empty means 1 for each.
	ClassWeights []float64 `yaml:"class_weights,omitempty,flow" json:"class_weights,omitempty"`
}

// LayerNames lists the names of the layers that a layer reads: in YAML one name, or a list.
type LayerNames []string

// UnmarshalYAML accepts one name or a list.
func (v *LayerNames) UnmarshalYAML(n *yaml.Node) error { return decodeOneOrMore((*[]string)(v), n) }

// MarshalYAML encodes a list that contains a single name as just the name.
func (v LayerNames) MarshalYAML() (any, error) { return unwrapSingle(v), nil }

// Sizes contains one number per spatial dimension: in YAML one number for all, or a list.
type Sizes []int

// UnmarshalYAML accepts one number or a list.
func (v *Sizes) UnmarshalYAML(n *yaml.Node) error { return decodeOneOrMore((*[]int)(v), n) }

// MarshalYAML writes a list of equal numbers as one number.
func (v Sizes) MarshalYAML() (any, error) { return unwrapSingle(v.collapseEqual()), nil }

// collapseEqual returns v, or only its first number if all are equal.
func (v Sizes) collapseEqual() Sizes {
	if len(v) > 1 && slices.Min(v) == slices.Max(v) {
		return v[:1]
	}
	return v
}

// decodeOneOrMore decodes a list, or a single value as a list of length 1.
func decodeOneOrMore[T any](v *[]T, n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode(v)
	}
	var one T
	if err := n.Decode(&one); err != nil {
		return err
	}
	*v = []T{one}
	return nil
}

// unwrapSingle returns the only value of a list of length 1, and other lists unchanged.
func unwrapSingle[T any](v []T) any {
	if len(v) == 1 {
		return v[0]
	}
	return v
}

// Limits of a spec. They are large enough for any network, and small enough that no
// product of sizes overflows.
const (
	maxSpecBytes  = 16 << 20
	maxSpecLayers = 10_000
	maxChannels   = 1 << 16
	maxKernel     = 1 << 8
	maxSide       = 1 << 16
	maxElements   = 1 << 36 // of a tensor of one sample
)

// ReadSpec reads and validates a spec in a YAML file.
func ReadSpec(path string) (*Spec, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	defer func() { _ = f.Close() }() // the file was only read
	text, err := io.ReadAll(io.LimitReader(f, maxSpecBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	return ParseSpec(path, text)
}

// ParseSpec parses and validates a spec in YAML. file is its name in error messages.
func ParseSpec(file string, text []byte) (*Spec, error) {
	if len(text) > maxSpecBytes {
		return nil, fmt.Errorf("read spec %s: the file is larger than %d MiB, so it is not a spec", file, maxSpecBytes>>20)
	}
	var s Spec
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&s); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty: a spec has name, task, image, target and layers")
		}
		return nil, fmt.Errorf("read spec %s: %w", file, err)
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("read spec %s: %w", file, err)
	}
	return &s, nil
}

// UnmarshalYAML decodes a spec. An unknown key is an error that names its line.
func (s *Spec) UnmarshalYAML(n *yaml.Node) error {
	type plain Spec
	if err := checkMappingKeys(n, "spec", "name", "task", "image", "target", "layers", "logits", "loss"); err != nil {
		return err
	}
	return n.Decode((*plain)(s))
}

// UnmarshalYAML decodes a layer. A key that the layer's kind does not use is an error
// that names its line.
func (l *SpecLayer) UnmarshalYAML(n *yaml.Node) error {
	type plain SpecLayer
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a layer must be a mapping, such as {name: a, kind: Conv, out: 8, kernel: 3}", n.Line)
	}
	var named struct {
		Name, Kind string
	}
	if err := n.Decode(&named); err != nil {
		return err
	}
	k, ok := findLayerKind(named.Kind)
	if !ok {
		return fmt.Errorf("line %d: layer %q: unknown kind %q: use one of %s", n.Line, named.Name, named.Kind, strings.Join(LayerKinds(), ", "))
	}
	if err := checkMappingKeys(n, fmt.Sprintf("layer %q (%s)", named.Name, named.Kind), append([]string{"name", "kind", "in"}, k.fields...)...); err != nil {
		return err
	}
	if err := n.Decode((*plain)(l)); err != nil {
		return err
	}
	l.line = n.Line
	return nil
}

// UnmarshalYAML decodes a loss. An unknown key is an error that names its line.
func (l *SpecLoss) UnmarshalYAML(n *yaml.Node) error {
	type plain SpecLoss
	if err := checkMappingKeys(n, "loss", "kind", "dice", "smoothing", "exp_weight", "class_weights"); err != nil {
		return err
	}
	return n.Decode((*plain)(l))
}

// checkMappingKeys returns an error if n is not a mapping or has a key that is not in known. what
// names n in the error. Keys that a merge key (<<) adds are not checked.
func checkMappingKeys(n *yaml.Node, what string, known ...string) error {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s must be a mapping with the keys %s", n.Line, what, strings.Join(known, ", "))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Value != "<<" && !slices.Contains(known, k.Value) {
			return fmt.Errorf("line %d: %s: unknown key %q: use one of %s", k.Line, what, k.Value, strings.Join(known, ", "))
		}
	}
	return nil
}

// MarshalYAML writes a layer in one line.
func (l SpecLayer) MarshalYAML() (any, error) {
	type plain SpecLayer
	var n yaml.Node
	if err := n.Encode(plain(l)); err != nil {
		return nil, err
	}
	n.Style = yaml.FlowStyle
	return &n, nil
}

// Write writes s as a YAML file for ReadSpec. It is atomic: an existing file is replaced
// completely or not at all.
func (s *Spec) Write(path string) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("write spec %s: %w", path, err)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(s); err != nil {
		return fmt.Errorf("write spec %s: %w", path, err)
	}
	if err := wholefile.CheckOverwrite(path); err != nil {
		return fmt.Errorf("write spec: %w", err)
	}
	if err := wholefile.WriteBytes(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write spec: %w", err)
	}
	return nil
}

// Network returns the network that s describes. image and target are the shapes of one
// sample, without the batch; nil selects the shapes in the spec.
func (s *Spec) Network(image, target []int) (Network, error) {
	w, err := s.connectLayers()
	if err != nil {
		return nil, err
	}
	if image == nil {
		image = s.Image
	}
	if target == nil {
		target = s.Target
	}
	if err := checkSampleShapes(image, target); err != nil {
		return nil, fmt.Errorf("build %s: %w", s.Name, err)
	}
	return Own(s.Name, s.Task, image, target, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
		return s.buildLayers(g, x, w)
	})
}

// buildLayers adds the layers of s to g. It returns the logits, or nil after an error.
func (s *Spec) buildLayers(g *nn.Graph, image *gorgonia.Node, w *layerConnections) *gorgonia.Node {
	made := make([]*gorgonia.Node, len(s.Layers))
	for _, i := range w.order {
		l := s.Layers[i]
		in := make([]*gorgonia.Node, len(w.reads[i]))
		for j, r := range w.reads[i] {
			in[j] = image
			if r != imageInputIndex {
				in[j] = made[r]
			}
		}
		k, _ := findLayerKind(l.Kind) // connectLayers has checked the kind
		made[i] = k.build(g, l, in)
		if err := g.Err(); err != nil {
			return nil
		}
		if shape := made[i].Shape(); isTooLarge(shape) {
			g.Fail(fmt.Errorf("layer %s: output shape %v is too large", s.layerLabel(i), shape))
			return nil
		}
	}
	logits := made[w.logits]
	if s.Loss != nil {
		s.Loss.setGraphLoss(g, logits)
	}
	return logits
}

func isTooLarge(shape []int) bool {
	n := 1
	for _, d := range shape {
		if n *= d; d > maxElements || n > maxElements {
			return true
		}
	}
	return false
}

func checkSampleShapes(image, target []int) error {
	for _, s := range []struct {
		name  string
		shape []int
		least int
	}{{"image", image, 1}, {"target", target, 1}} {
		if len(s.shape) < s.least || len(s.shape) > 4 || slices.Min(s.shape) < 1 || slices.Max(s.shape) > maxSide || isTooLarge(s.shape) {
			return fmt.Errorf("invalid %s shape %v: use the 1 to 4 dimensions of one sample (channels, depth, height, width), each 1 to %d", s.name, s.shape, maxSide)
		}
	}
	return nil
}
