package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Validate returns an error for the first problem of s: an unknown layer or name, a size
// out of range, a cycle of layers, or a layer on which the logits do not depend.
func (s *Spec) Validate() error {
	_, err := s.connectLayers()
	return err
}

type layerConnections struct {
	reads  [][]int // by layer: the indexes of the layers that it reads, or imageInputIndex
	order  []int   // the layers in an order in which they can be built
	logits int     // index of the layer that computes the logits
}

// imageInputIndex represents the network's image in layerConnections.reads.
const imageInputIndex = -1

// connectLayers validates s, except for the shapes of layers, and determines which layers each
// layer reads.
func (s *Spec) connectLayers() (*layerConnections, error) {
	if s == nil {
		return nil, errors.New("no spec was given")
	}
	if err := s.checkTopLevelFields(); err != nil {
		return nil, err
	}
	index, err := s.indexLayersByName()
	if err != nil {
		return nil, err
	}
	w := &layerConnections{reads: make([][]int, len(s.Layers)), logits: len(s.Layers) - 1}
	if s.Logits != "" {
		i, ok := index[s.Logits]
		if !ok {
			return nil, fmt.Errorf("logits: no layer is named %q", s.Logits)
		}
		w.logits = i
	}
	for i, l := range s.Layers {
		if w.reads[i], err = s.resolveLayerInputs(i, index); err != nil {
			return nil, err
		}
		k, _ := findLayerKind(l.Kind) // indexLayersByName has checked the kind
		if got := len(w.reads[i]); got != k.inputs {
			return nil, fmt.Errorf("layer %s reads %d layers, but %s needs %d (for example in: %s)", s.layerLabel(i), got, l.Kind, k.inputs, exampleInputs(k.inputs))
		}
	}
	if w.order, err = s.sortLayersByDependency(w.reads); err != nil {
		return nil, err
	}
	return w, s.checkAllLayersUsed(w)
}

// exampleInputs returns an example of the key "in" for a layer with the given number of inputs.
// Error messages contain it.
func exampleInputs(inputs int) string {
	if inputs == 2 {
		return "[a, b]"
	}
	return "a"
}

// checkTopLevelFields checks the fields of s except for the layers.
func (s *Spec) checkTopLevelFields() error {
	switch {
	case s.Name == "":
		return errors.New("spec has no name")
	case len(s.Layers) == 0:
		return fmt.Errorf("spec %s has no layers", s.Name)
	case len(s.Layers) > maxSpecLayers:
		return fmt.Errorf("spec %s has %d layers: use at most %d", s.Name, len(s.Layers), maxSpecLayers)
	}
	if err := s.Task.Validate(); err != nil {
		return fmt.Errorf("spec %s: %w", s.Name, err)
	}
	if err := checkSampleShapes(s.Image, s.Target); err != nil {
		return fmt.Errorf("spec %s: %w", s.Name, err)
	}
	if s.Loss != nil {
		return s.Loss.validate()
	}
	return nil
}

// indexLayersByName checks the layers' fields, and returns the layers' indexes by name.
func (s *Spec) indexLayersByName() (map[string]int, error) {
	index := map[string]int{}
	for i, l := range s.Layers {
		if err := l.checkFields(); err != nil {
			return nil, fmt.Errorf("layer %s: %w", s.layerLabel(i), err)
		}
		if l.Name == "" {
			continue
		}
		if j, ok := index[l.Name]; ok {
			return nil, fmt.Errorf("layer %s has the same name as layer %d: give each layer a different name", s.layerLabel(i), j+1)
		}
		index[l.Name] = i
	}
	return index, nil
}

// checkFields checks a layer's fields, except its connections.
func (l SpecLayer) checkFields() error {
	k, ok := findLayerKind(l.Kind)
	switch {
	case !ok:
		return fmt.Errorf("unknown kind %q: use one of %s", l.Kind, strings.Join(LayerKinds(), ", "))
	case l.Name == ImageInput:
		return fmt.Errorf("the name is reserved for the input: choose another")
	case l.Name == "" && k.parameters:
		return errors.New("a layer with parameters needs a name")
	}
	for _, f := range l.kindSpecificFields() {
		if f.set && !slices.Contains(k.fields, f.name) {
			return fmt.Errorf("%s does not apply to %s: leave it out (%s has %s)", f.name, l.Kind, l.Kind, strings.Join(k.fields, ", "))
		}
	}
	switch {
	case slices.Contains(k.fields, "out") && (l.Out < 1 || l.Out > maxChannels):
		return fmt.Errorf("invalid out %d: use 1 to %d", l.Out, maxChannels)
	case slices.Contains(k.fields, "kernel") && len(l.Kernel) == 0:
		return errors.New("kernel is missing: give one number, or one for each spatial dimension")
	}
	for _, f := range []struct {
		name  string
		sizes Sizes
		least int
	}{{"kernel", l.Kernel, 1}, {"stride", l.Stride, 1}, {"pad", l.Pad, 0}, {"pad_end", l.PadEnd, 0}} {
		if len(f.sizes) > 3 || len(f.sizes) > 0 && (slices.Min(f.sizes) < f.least || slices.Max(f.sizes) > maxKernel) {
			return fmt.Errorf("invalid %s %v: give one number, or one for each spatial dimension, each %d to %d", f.name, []int(f.sizes), f.least, maxKernel)
		}
	}
	for _, f := range []struct {
		name      string
		value, hi float64
	}{{"epsilon", l.Epsilon, 1}, {"momentum", l.Momentum, 1}, {"slope", l.Slope, 1}} {
		if !(f.value >= 0 && f.value <= f.hi) { // NaN too
			return fmt.Errorf("invalid %s %g: use more than 0, at most %g", f.name, f.value, f.hi)
		}
	}
	for _, init := range []string{l.Init, l.BiasInit} {
		if _, err := parseInitScheme(init); err != nil {
			return err
		}
	}
	return nil
}

type specFieldUse struct {
	name string
	set  bool
}

// kindSpecificFields lists the fields of l except for those that all kinds of layers use.
func (l SpecLayer) kindSpecificFields() []specFieldUse {
	return []specFieldUse{
		{"out", l.Out != 0},
		{"kernel", len(l.Kernel) > 0},
		{"stride", len(l.Stride) > 0},
		{"pad", len(l.Pad) > 0},
		{"pad_end", len(l.PadEnd) > 0},
		{"pad_zeros", l.PadZeros},
		{"bias", l.Bias != nil},
		{"init", l.Init != ""},
		{"bias_init", l.BiasInit != ""},
		{"epsilon", l.Epsilon != 0},
		{"momentum", l.Momentum != 0},
		{"slope", l.Slope != 0},
	}
}

// resolveLayerInputs returns the layers, or imageInputIndex, that layer i reads. index is by name.
func (s *Spec) resolveLayerInputs(i int, index map[string]int) ([]int, error) {
	if len(s.Layers[i].In) == 0 {
		return []int{i - 1}, nil // imageInputIndex for the first layer
	}
	var all []int
	for _, name := range s.Layers[i].In {
		j, ok := index[name]
		switch {
		case name == ImageInput:
			j = imageInputIndex
		case !ok:
			return nil, fmt.Errorf("layer %s reads unknown layer %q: name one of the layers, or %s", s.layerLabel(i), name, ImageInput)
		}
		all = append(all, j)
	}
	return all, nil
}

// sortLayersByDependency returns an order in which each layer comes after the layers that it reads. It
// keeps the order of the file if possible.
func (s *Spec) sortLayersByDependency(reads [][]int) ([]int, error) {
	const (
		unseen = iota
		open
		done
	)
	state := make([]int, len(reads))
	order := make([]int, 0, len(reads))
	for root := range reads {
		stack := []int{root} // the layers that wait for the one above them
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			if state[at] == done {
				stack = stack[:len(stack)-1]
				continue
			}
			state[at] = open
			next := slices.IndexFunc(reads[at], func(r int) bool { return r != imageInputIndex && state[r] != done })
			if next < 0 {
				state[at] = done
				order = append(order, at)
				continue
			}
			r := reads[at][next]
			if state[r] == open {
				return nil, s.cycleError(append(stack[slices.Index(stack, r):], r))
			}
			stack = append(stack, r)
		}
	}
	return order, nil
}

func (s *Spec) cycleError(path []int) error {
	const fullName = 8
	var labels []string
	for _, i := range path[:min(len(path), fullName)] {
		labels = append(labels, s.layerLabel(i))
	}
	if len(path) > fullName {
		labels = append(labels, "…")
	}
	return fmt.Errorf("layers read each other in a cycle: %s: each layer must be computed from the image", strings.Join(labels, " reads "))
}

// checkAllLayersUsed returns an error if the logits do not depend on every layer.
func (s *Spec) checkAllLayersUsed(w *layerConnections) error {
	used := make([]bool, len(s.Layers))
	used[w.logits] = true
	for _, i := range slices.Backward(w.order) {
		if !used[i] {
			continue
		}
		for _, r := range w.reads[i] {
			if r != imageInputIndex {
				used[r] = true
			}
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return fmt.Errorf("the logits (layer %s) do not depend on layer %s: connect the layer, or leave it out", s.layerLabel(w.logits), s.layerLabel(i))
	}
	return nil
}

func (s *Spec) layerLabel(i int) string {
	l := s.Layers[i]
	text := fmt.Sprintf("%q", l.Name)
	if l.Name == "" {
		text = fmt.Sprintf("%d (%s)", i+1, l.Kind)
	}
	if l.line > 0 {
		text += fmt.Sprintf(" (line %d)", l.line)
	}
	return text
}

func (l *SpecLoss) validate() error {
	switch {
	case !slices.Contains([]string{lossBCE, lossDice, lossSoftmax, lossPixel, lossL1}, l.Kind):
		return fmt.Errorf("loss: unknown kind %q: use %s, %s, %s, %s or %s", l.Kind, lossBCE, lossDice, lossSoftmax, lossPixel, lossL1)
	case l.Dice != 0 && l.Kind != lossDice && l.Kind != lossPixel:
		return fmt.Errorf("loss: dice does not apply to %s: leave it out", l.Kind)
	case l.Kind == lossDice && !(l.Dice > 0 && l.Dice <= 1):
		return fmt.Errorf("loss: invalid dice %g: use more than 0, at most 1", l.Dice)
	case !(l.Dice >= 0 && l.Dice <= 1):
		return fmt.Errorf("loss: invalid dice %g: use 0 to 1", l.Dice)
	case len(l.ClassWeights) > 0 && l.Kind != lossPixel:
		return fmt.Errorf("loss: class_weights does not apply to %s: leave it out", l.Kind)
	case l.Smoothing != 0 && l.Kind != lossSoftmax:
		return fmt.Errorf("loss: smoothing does not apply to %s: leave it out", l.Kind)
	case l.ExpWeight != 0 && l.Kind != lossL1:
		return fmt.Errorf("loss: exp_weight does not apply to %s: leave it out", l.Kind)
	case !(l.Smoothing >= 0 && l.Smoothing < 1):
		return fmt.Errorf("loss: invalid smoothing %g: use 0 or more, and less than 1", l.Smoothing)
	case !(l.ExpWeight >= 0) || math.IsInf(l.ExpWeight, 0):
		return fmt.Errorf("loss: invalid exp_weight %g: use 0 or more", l.ExpWeight)
	}
	return nil
}
