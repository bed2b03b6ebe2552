package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Validate reports the first thing that cannot be: a layer or name that is not
// known, a size out of range, layers that read each other in a circle, a layer
// that nothing comes of.
func (s *Spec) Validate() error {
	_, err := s.wire()
	return err
}

// wiring is what a spec's names come to.
type wiring struct {
	reads  [][]int // of each layer, the layers that it reads; fromImage: the image
	order  []int   // in which they can be built
	logits int
}

// fromImage stands for the image among the layers that are read.
const fromImage = -1

// wire checks everything but shapes.
func (s *Spec) wire() (*wiring, error) {
	if s == nil {
		return nil, errors.New("spec: there is none")
	}
	if err := s.checkHead(); err != nil {
		return nil, err
	}
	index, err := s.names()
	if err != nil {
		return nil, err
	}
	w := &wiring{reads: make([][]int, len(s.Layers)), logits: len(s.Layers) - 1}
	if s.Logits != "" {
		i, ok := index[s.Logits]
		if !ok {
			return nil, fmt.Errorf("logits: there is no layer %q", s.Logits)
		}
		w.logits = i
	}
	for i, l := range s.Layers {
		if w.reads[i], err = s.resolve(i, index); err != nil {
			return nil, err
		}
		k, _ := layerKind(l.Kind) // checkLayer knows it.
		if got := len(w.reads[i]); got != k.inputs {
			return nil, fmt.Errorf("layer %s reads %d: %s reads %d (in: %s)", s.label(i), got, l.Kind, k.inputs, example(k.inputs))
		}
	}
	if w.order, err = s.sort(w.reads); err != nil {
		return nil, err
	}
	return w, s.checkUsed(w)
}

func example(inputs int) string {
	if inputs == 2 {
		return "[a, b]"
	}
	return "a"
}

// checkHead checks what is not about layers.
func (s *Spec) checkHead() error {
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
	if err := checkShapes(s.Image, s.Target); err != nil {
		return fmt.Errorf("spec %s: %w", s.Name, err)
	}
	if s.Loss != nil {
		return s.Loss.validate()
	}
	return nil
}

// names checks each layer by itself, and gives the index of each name.
func (s *Spec) names() (map[string]int, error) {
	index := map[string]int{}
	for i, l := range s.Layers {
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("layer %s: %w", s.label(i), err)
		}
		if l.Name == "" {
			continue
		}
		if j, ok := index[l.Name]; ok {
			return nil, fmt.Errorf("layer %s has the name of layer %d: give each its own", s.label(i), j+1)
		}
		index[l.Name] = i
	}
	return index, nil
}

// check checks a layer's own fields.
func (l SpecLayer) check() error {
	k, ok := layerKind(l.Kind)
	switch {
	case !ok:
		return fmt.Errorf("kind %q is not known: use one of %s", l.Kind, strings.Join(LayerKinds(), ", "))
	case l.Name == ImageInput:
		return fmt.Errorf("the name is that of the input: choose another")
	case l.Name == "" && k.parameters:
		return errors.New("it has parameters, so it needs a name")
	}
	for _, f := range l.fields() {
		if f.set && !slices.Contains(k.fields, f.name) {
			return fmt.Errorf("%s has no use for %s: leave it out (it has %s)", l.Kind, f.name, strings.Join(k.fields, ", "))
		}
	}
	switch {
	case slices.Contains(k.fields, "out") && (l.Out < 1 || l.Out > maxChannels):
		return fmt.Errorf("out is %d: use 1 to %d", l.Out, maxChannels)
	case slices.Contains(k.fields, "kernel") && len(l.Kernel) == 0:
		return errors.New("kernel is missing: give one number, or one for each spatial dimension")
	}
	for _, f := range []struct {
		name  string
		sizes Sizes
		least int
	}{{"kernel", l.Kernel, 1}, {"stride", l.Stride, 1}, {"pad", l.Pad, 0}, {"pad_end", l.PadEnd, 0}} {
		if len(f.sizes) > 3 || len(f.sizes) > 0 && (slices.Min(f.sizes) < f.least || slices.Max(f.sizes) > maxKernel) {
			return fmt.Errorf("%s is %v: give one number, or one for each spatial dimension, each %d to %d", f.name, []int(f.sizes), f.least, maxKernel)
		}
	}
	for _, f := range []struct {
		name      string
		value, hi float64
	}{{"epsilon", l.Epsilon, 1}, {"momentum", l.Momentum, 1}, {"slope", l.Slope, 1}} {
		if !(f.value >= 0 && f.value <= f.hi) { // NaN too
			return fmt.Errorf("%s is %g: use more than 0, up to %g", f.name, f.value, f.hi)
		}
	}
	for _, init := range []string{l.Init, l.BiasInit} {
		if _, err := parseInit(init); err != nil {
			return err
		}
	}
	return nil
}

// field is a field of a layer, and whether it is set.
type field struct {
	name string
	set  bool
}

func (l SpecLayer) fields() []field {
	return []field{
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

// resolve are the layers that layer i reads.
func (s *Spec) resolve(i int, index map[string]int) ([]int, error) {
	if len(s.Layers[i].In) == 0 {
		return []int{i - 1}, nil // fromImage for the first
	}
	var all []int
	for _, name := range s.Layers[i].In {
		j, ok := index[name]
		switch {
		case name == ImageInput:
			j = fromImage
		case !ok:
			return nil, fmt.Errorf("layer %s reads %q, and there is no such layer: name one of the layers, or %s", s.label(i), name, ImageInput)
		}
		all = append(all, j)
	}
	return all, nil
}

// sort is an order in which each layer comes after those that it reads: the
// file's, where that is one.
func (s *Spec) sort(reads [][]int) ([]int, error) {
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
			next := slices.IndexFunc(reads[at], func(r int) bool { return r != fromImage && state[r] != done })
			if next < 0 {
				state[at] = done
				order = append(order, at)
				continue
			}
			r := reads[at][next]
			if state[r] == open {
				return nil, s.circle(append(stack[slices.Index(stack, r):], r))
			}
			stack = append(stack, r)
		}
	}
	return order, nil
}

// circle says which layers read each other.
func (s *Spec) circle(path []int) error {
	const shown = 8
	var labels []string
	for _, i := range path[:min(len(path), shown)] {
		labels = append(labels, s.label(i))
	}
	if len(path) > shown {
		labels = append(labels, "…")
	}
	return fmt.Errorf("layers read each other in a circle: %s: each layer must come from the image", strings.Join(labels, " reads "))
}

// checkUsed reports a layer that does not lead to the logits.
func (s *Spec) checkUsed(w *wiring) error {
	used := make([]bool, len(s.Layers))
	used[w.logits] = true
	for _, i := range slices.Backward(w.order) {
		if !used[i] {
			continue
		}
		for _, r := range w.reads[i] {
			if r != fromImage {
				used[r] = true
			}
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return fmt.Errorf("layer %s leads to no logits (layer %s): read it, or leave it out", s.label(i), s.label(w.logits))
	}
	return nil
}

// label is how messages call layer i.
func (s *Spec) label(i int) string {
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
	case !slices.Contains([]string{lossBCE, lossDice, lossSoftmax, lossL1}, l.Kind):
		return fmt.Errorf("loss: kind %q is not known: use %s, %s, %s or %s", l.Kind, lossBCE, lossDice, lossSoftmax, lossL1)
	case l.Dice != 0 && l.Kind != lossDice:
		return fmt.Errorf("loss: %s has no use for dice", l.Kind)
	case l.Kind == lossDice && !(l.Dice > 0 && l.Dice <= 1):
		return fmt.Errorf("loss: dice is %g: use more than 0, up to 1", l.Dice)
	case l.Smoothing != 0 && l.Kind != lossSoftmax:
		return fmt.Errorf("loss: %s has no use for smoothing", l.Kind)
	case l.ExpWeight != 0 && l.Kind != lossL1:
		return fmt.Errorf("loss: %s has no use for exp_weight", l.Kind)
	case !(l.Smoothing >= 0 && l.Smoothing < 1):
		return fmt.Errorf("loss: smoothing is %g: use 0 or more, and less than 1", l.Smoothing)
	case !(l.ExpWeight >= 0) || math.IsInf(l.ExpWeight, 0):
		return fmt.Errorf("loss: exp_weight is %g: use 0 or more", l.ExpWeight)
	}
	return nil
}
