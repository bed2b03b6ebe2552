package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/nn"
	"lockstep/pkg/weights"
)

// Naming is a convention for the names and layouts of the tensors in a file.
type Naming string

// The supported namings.
const (
	// NamesLockstep is the naming of checkpoints: layer.weight [out,in,kernel…].
	NamesLockstep Naming = "lockstep"
	// NamesPyTorch is the naming of the state_dict of a PyTorch model with the same modules. Names
	// and layouts are the same as in NamesLockstep; resnet50 uses torchvision's names. The prefix
	// "module.", which DistributedDataParallel adds, and the counters num_batches_tracked are
	// ignored.
	NamesPyTorch Naming = "pytorch"
	// NamesKeras is the naming of Keras' variables: layer/kernel:0 [kernel…,in,out],
	// layer/gamma:0, layer/moving_mean:0. A path before the layer and the suffix ":0" are
	// optional.
	NamesKeras Naming = "keras"
)

// Namings returns the namings that Rename supports.
func Namings() []Naming { return []Naming{NamesLockstep, NamesPyTorch, NamesKeras} }

// Validate returns an error if n is not one of Namings.
func (n Naming) Validate() error {
	if !slices.Contains(Namings(), n) {
		return fmt.Errorf("unknown naming %q: use %s, %s or %s", string(n), NamesLockstep, NamesPyTorch, NamesKeras)
	}
	return nil
}

// NamingOf guesses the naming of a file's tensors: Keras if a name ends in kernel, gamma or
// moving_mean, otherwise PyTorch if it finds PyTorch's prefix or counters, otherwise Lockstep.
func NamingOf(f *weights.File) Naming {
	for _, t := range f.Tensors {
		path, _, _ := strings.Cut(t.Name, ":")
		switch path[strings.LastIndexByte(path, '/')+1:] {
		case "kernel", "gamma", "moving_mean":
			if strings.Contains(path, "/") {
				return NamesKeras
			}
		}
		if strings.HasPrefix(t.Name, "module.") || strings.HasSuffix(t.Name, ".num_batches_tracked") {
			return NamesPyTorch
		}
	}
	return NamesLockstep
}

type variableNames struct {
	lockstep, keras string
	shape           []int
}

// kerasVariableName returns Keras' name for a layer's variable, such as "kernel" for "weight", or
// "" if Keras has none.
func kerasVariableName(layerKind, part string) string {
	if layerKind == "BatchNorm" {
		return map[string]string{"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}[part]
	}
	return map[string]string{"weight": "kernel", "bias": "bias"}[part]
}

// listVariables returns the names of the parameters and running statistics of net. flattens
// reports whether net has a Flatten layer.
func listVariables(net Network) (all []variableNames, flattens bool, err error) {
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		return nil, false, err
	}
	kinds := map[string]string{}
	for _, l := range g.Layers() {
		kinds[l.Name] = l.Kind
		flattens = flattens || l.Kind == "Flatten"
	}
	for _, v := range slices.Concat(g.Parameters(), g.States()) {
		at := strings.LastIndexByte(v.Name, '.')
		w := variableNames{lockstep: v.Name, shape: v.Shape}
		if at > 0 {
			if name := kerasVariableName(kinds[v.Name[:at]], v.Name[at+1:]); name != "" {
				w.keras = v.Name[:at] + "/" + name + ":0"
			}
		}
		all = append(all, w)
	}
	return all, flattens, nil
}

// Rename converts the tensors of a file from one naming to another. It returns net's
// parameters and running statistics in the order of the network, in the target naming's
// layouts (Keras' kernels have the output axis last). It skips the other tensors of a
// checkpoint: the optimizer's state and the averaged parameters; see Averages.
//
// It is an error if a tensor of the network is missing or has another shape, or if the
// file has any other tensor that the network lacks.
func Rename(net Network, f *weights.File, from, to Naming) ([]weights.Tensor, error) {
	tensors, err := renameTensors(net, f, from, to)
	if err != nil {
		return nil, fmt.Errorf("rename weights of %s from %s to %s: %w", net.Name(), from, to, err)
	}
	return tensors, nil
}

// ReadWeights reads a safetensors file with the weights of net in any of the three
// namings. It returns each parameter and running statistic by its Lockstep name, in
// row-major order.
func ReadWeights(ctx context.Context, net Network, path string) (map[string][]float64, error) {
	f, err := weights.ReadContext(ctx, path)
	if err != nil {
		return nil, err
	}
	tensors, err := Rename(net, f, NamingOf(f), NamesLockstep)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	values := make(map[string][]float64, len(tensors))
	for _, t := range tensors {
		values[t.Name] = t.Float64s()
	}
	return values, nil
}

// renameTensors is Rename without the prefix of its errors.
func renameTensors(net Network, f *weights.File, from, to Naming) ([]weights.Tensor, error) {
	if err := cmp.Or(from.Validate(), to.Validate()); err != nil {
		return nil, err
	}
	all, flattens, err := listVariables(net)
	if err != nil {
		return nil, err
	}
	if flattens && (from == NamesKeras) != (to == NamesKeras) {
		return nil, errors.New("the network flattens a feature map, but Keras orders its features differently (channels last): use global pooling instead")
	}
	given := map[string]weights.Tensor{}
	for _, t := range f.Tensors {
		key, ok := networkTensorKey(from, t.Name)
		if !ok {
			continue
		}
		if other, twice := given[key]; twice {
			return nil, fmt.Errorf("the file has both %s and %s, which name the same tensor", other.Name, t.Name)
		}
		given[key] = t
	}
	out := make([]weights.Tensor, 0, len(all))
	for _, v := range all {
		name := variableKey(from, v)
		if name == "" || to == NamesKeras && v.keras == "" {
			return nil, fmt.Errorf("the layer of parameter %s has no name in Keras", v.lockstep)
		}
		t, ok := given[name]
		if !ok {
			return nil, fmt.Errorf("tensor %s of %s is missing; %s", v.fullName(from), formatStoredShape(v.storedShape(from)), describeContents(f))
		}
		delete(given, name)
		if want := v.storedShape(from); !slices.Equal(t.Shape, want) {
			return nil, fmt.Errorf("tensor %s has shape %v, the network needs %v: does the network have another size or number of classes?", t.Name, t.Shape, want)
		}
		t = convertTensorLayout(t, from, to)
		t.Name = v.fullName(to)
		out = append(out, t)
	}
	for _, t := range f.Tensors { // in their order
		if k, ok := networkTensorKey(from, t.Name); ok {
			if _, left := given[k]; left {
				return nil, fmt.Errorf("the file has tensor %s of shape %v (and %d more), which the network lacks", t.Name, t.Shape, len(given)-1)
			}
		}
	}
	return out, nil
}

func describeContents(f *weights.File) string {
	if len(f.Tensors) == 0 {
		return "the file is empty"
	}
	return fmt.Sprintf("the file has %s and %d others", f.Tensors[0].Name, len(f.Tensors)-1)
}

// formatStoredShape returns, for example, "shape [8×3×3]".
func formatStoredShape(shape []int) string {
	return "shape " + strings.ReplaceAll(fmt.Sprint(shape), " ", "×")
}

// AveragePrefix is the prefix of the name of a parameter's average (EMA) in a checkpoint:
// ema.<parameter>.
const AveragePrefix = "ema."

// Averages returns a copy of a checkpoint whose parameters are replaced by their
// averages, in the same precision. Running statistics, which are not averaged, stay.
func Averages(f *weights.File) (*weights.File, error) {
	of := map[string]weights.Tensor{}
	for _, t := range f.Tensors {
		if name, ok := strings.CutPrefix(t.Name, AveragePrefix); ok {
			of[name] = t
		}
	}
	if len(of) == 0 {
		return nil, errors.New("the file has no averaged parameters (ema.…): use a checkpoint of a run with ema.decay")
	}
	out := &weights.File{Metadata: f.Metadata}
	for _, t := range f.Tensors {
		if a, ok := of[t.Name]; ok {
			if a.Len() != t.Len() {
				return nil, fmt.Errorf("the average of %s has %d values, the parameter has %d", t.Name, a.Len(), t.Len())
			}
			averaged := weights.Tensor{Name: t.Name, Shape: t.Shape, F64: a.Float64s()}
			if t.F32 != nil {
				averaged.F32, averaged.F64 = make([]float32, t.Len()), nil
				for i, v := range a.Float64s() {
					averaged.F32[i] = float32(v)
				}
			}
			t = averaged
		}
		if !strings.HasPrefix(t.Name, AveragePrefix) {
			out.Tensors = append(out.Tensors, t)
		}
	}
	return out, nil
}

// networkTensorKey returns the part of a tensor's name that identifies it in the network. ok is
// false for a tensor that does not belong to the network, such as the optimizer's state.
func networkTensorKey(n Naming, name string) (key string, ok bool) {
	switch n {
	case NamesKeras:
		path, _, _ := strings.Cut(name, ":")
		parts := strings.Split(path, "/")
		return strings.Join(parts[max(0, len(parts)-2):], "/"), !strings.HasPrefix(name, "optimizer")
	case NamesPyTorch:
		name = strings.TrimPrefix(name, "module.")
		return name, !strings.HasSuffix(name, ".num_batches_tracked") && !isCheckpointState(name)
	}
	return name, !isCheckpointState(name)
}

func isCheckpointState(name string) bool {
	return strings.HasPrefix(name, "optimizer.") || strings.HasPrefix(name, AveragePrefix)
}

func variableKey(n Naming, v variableNames) string {
	if n == NamesKeras {
		k, _ := networkTensorKey(n, v.keras)
		return k
	}
	return v.lockstep
}

func (v variableNames) fullName(n Naming) string {
	if n == NamesKeras {
		return v.keras
	}
	return v.lockstep
}

func (v variableNames) storedShape(n Naming) []int {
	if n != NamesKeras {
		return v.shape
	}
	return permuteShape(v.shape, axisOrderToKeras(len(v.shape)))
}

// axisOrderToKeras returns the permutation that converts the axes of a weight from Lockstep's
// order [out,in,kernel…] to Keras' order [kernel…,in,out]. It is also valid for transposed
// convolutions, [in,out,kernel…] → [kernel…,out,in], and for linear layers, [out,in] →
// [in,out].
func axisOrderToKeras(dims int) []int {
	var axes []int
	for i := 2; i < dims; i++ {
		axes = append(axes, i)
	}
	if dims < 2 {
		return []int{0}[:dims]
	}
	return append(axes, 1, 0)
}

// axisOrderFromKeras returns the inverse of axisOrderToKeras.
func axisOrderFromKeras(dims int) []int {
	axes := make([]int, dims)
	for i, a := range axisOrderToKeras(dims) {
		axes[a] = i
	}
	return axes
}

func permuteShape(shape, axes []int) []int {
	out := make([]int, len(axes))
	for i, a := range axes {
		out[i] = shape[a]
	}
	return out
}

func convertTensorLayout(t weights.Tensor, from, to Naming) weights.Tensor {
	if (from == NamesKeras) == (to == NamesKeras) || len(t.Shape) < 2 {
		return t
	}
	axes := axisOrderToKeras(len(t.Shape))
	if from == NamesKeras {
		axes = axisOrderFromKeras(len(t.Shape))
	}
	return weights.Tensor{Shape: permuteShape(t.Shape, axes), F32: permuteAxes(t.F32, t.Shape, axes), F64: permuteAxes(t.F64, t.Shape, axes)}
}

func permuteAxes[T any](v []T, shape, axes []int) []T {
	if v == nil {
		return nil
	}
	strides := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i], n = n, n*shape[i]
	}
	out := make([]T, 0, len(v))
	index := make([]int, len(axes))
	at := 0
	for len(out) < len(v) {
		out = append(out, v[at])
		for i := len(axes) - 1; i >= 0; i-- {
			index[i]++
			if at += strides[axes[i]]; index[i] < shape[axes[i]] {
				break
			}
			at -= index[i] * strides[axes[i]]
			index[i] = 0
		}
	}
	return out
}
