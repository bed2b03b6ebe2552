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

// Naming is whose names and layouts the tensors of a file have.
type Naming string

// The namings.
const (
	// NamesLockstep are a checkpoint's: layer.weight [out,in,kernel…].
	NamesLockstep Naming = "lockstep"
	// NamesPyTorch are those of a state_dict of the same modules. Our layers lie
	// as PyTorch's and resnet50 has torchvision's names, so that they differ in
	// nothing; "module." in front, which DistributedDataParallel adds, and the
	// counters num_batches_tracked are overlooked.
	NamesPyTorch Naming = "pytorch"
	// NamesKeras are those of Keras' variables: layer/kernel:0 [kernel…,in,out],
	// layer/gamma:0, layer/moving_mean:0. The path before the layer, and ":0",
	// may be missing or longer.
	NamesKeras Naming = "keras"
)

// Namings are the namings that Rename knows.
func Namings() []Naming { return []Naming{NamesLockstep, NamesPyTorch, NamesKeras} }

// Validate reports a naming that is not known.
func (n Naming) Validate() error {
	if !slices.Contains(Namings(), n) {
		return fmt.Errorf("names of %q are not known: use %s, %s or %s", string(n), NamesLockstep, NamesPyTorch, NamesKeras)
	}
	return nil
}

// NamingOf is the naming that a file's tensors seem to have: Keras' where one is
// called kernel or gamma, else PyTorch's where its marks are found, else ours.
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

// variable is a parameter or running statistic under all its names.
type variable struct {
	own, keras string
	shape      []int
}

// kerasVariable are Keras' names of what a layer has.
func kerasVariable(layerKind, part string) string {
	if layerKind == "BatchNorm" {
		return map[string]string{"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}[part]
	}
	return map[string]string{"weight": "kernel", "bias": "bias"}[part]
}

// variables are the parameters and running statistics of net.
func variables(net Network) (all []variable, flattens bool, err error) {
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
		w := variable{own: v.Name, shape: v.Shape}
		if at > 0 {
			if name := kerasVariable(kinds[v.Name[:at]], v.Name[at+1:]); name != "" {
				w.keras = v.Name[:at] + "/" + name + ":0"
			}
		}
		all = append(all, w)
	}
	return all, flattens, nil
}

// Rename turns the tensors of a file, as net's parameters and running
// statistics under the names of from, into those under the names of to, in the
// order of the network. Layouts follow: Keras' kernels have the output last.
// What else a checkpoint holds, an optimiser's slots and the parameters' averages,
// is left out; see Averages.
//
// Every tensor of the network must be there, with its shape, and nothing that
// it does not know.
func Rename(net Network, f *weights.File, from, to Naming) ([]weights.Tensor, error) {
	tensors, err := rename(net, f, from, to)
	if err != nil {
		return nil, fmt.Errorf("rename weights of %s from %s to %s: %w", net.Name(), from, to, err)
	}
	return tensors, nil
}

// ReadWeights reads a safetensors file with the weights of net, in whichever
// names of the three they have: each parameter and running statistic by our
// name, in logical order.
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

func rename(net Network, f *weights.File, from, to Naming) ([]weights.Tensor, error) {
	if err := cmp.Or(from.Validate(), to.Validate()); err != nil {
		return nil, err
	}
	all, flattens, err := variables(net)
	if err != nil {
		return nil, err
	}
	if flattens && (from == NamesKeras) != (to == NamesKeras) {
		return nil, errors.New("the network flattens a feature map, and Keras has the features in another order (channels last): use a global pooling in its place")
	}
	given := map[string]weights.Tensor{}
	for _, t := range f.Tensors {
		key, ok := key(from, t.Name)
		if !ok {
			continue
		}
		if other, twice := given[key]; twice {
			return nil, fmt.Errorf("the file has %s and %s for one tensor", other.Name, t.Name)
		}
		given[key] = t
	}
	out := make([]weights.Tensor, 0, len(all))
	for _, v := range all {
		name := name(from, v)
		if name == "" || to == NamesKeras && v.keras == "" {
			return nil, fmt.Errorf("parameter %s belongs to no layer that Keras has a name for", v.own)
		}
		t, ok := given[name]
		if !ok {
			return nil, fmt.Errorf("the file has no %s, of %s; %s", v.shown(from), shapeOrScalar(v.stored(from)), has(f))
		}
		delete(given, name)
		if want := v.stored(from); !slices.Equal(t.Shape, want) {
			return nil, fmt.Errorf("tensor %s has shape %v, the network's has %v: is it of another size, or another number of classes?", t.Name, t.Shape, want)
		}
		t = permuted(t, from, to)
		t.Name = v.shown(to)
		out = append(out, t)
	}
	for _, t := range f.Tensors { // in their order
		if k, ok := key(from, t.Name); ok {
			if _, left := given[k]; left {
				return nil, fmt.Errorf("the file has %s %v, which the network has not (and %d more)", t.Name, t.Shape, len(given)-1)
			}
		}
	}
	return out, nil
}

// has says what a file holds, for a message.
func has(f *weights.File) string {
	if len(f.Tensors) == 0 {
		return "it is empty"
	}
	return fmt.Sprintf("it has %s and %d others", f.Tensors[0].Name, len(f.Tensors)-1)
}

func shapeOrScalar(shape []int) string {
	return "shape " + strings.ReplaceAll(fmt.Sprint(shape), " ", "×")
}

// AveragePrefix begins the name of a parameter's average (EMA) in a checkpoint:
// ema.<parameter>.
const AveragePrefix = "ema."

// Averages is a checkpoint with the averaged parameters in place of the trained
// ones, in their precision; running statistics, which are not averaged, stay.
func Averages(f *weights.File) (*weights.File, error) {
	of := map[string]weights.Tensor{}
	for _, t := range f.Tensors {
		if name, ok := strings.CutPrefix(t.Name, AveragePrefix); ok {
			of[name] = t
		}
	}
	if len(of) == 0 {
		return nil, errors.New("the file has no averages (ema.…): it is no checkpoint of a run with ema.decay")
	}
	out := &weights.File{Metadata: f.Metadata}
	for _, t := range f.Tensors {
		if a, ok := of[t.Name]; ok {
			if a.Len() != t.Len() {
				return nil, fmt.Errorf("the average of %s has %d values, it has %d", t.Name, a.Len(), t.Len())
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

// key is what a tensor's name in a file is found by; false for one that is none
// of the network's by design.
func key(n Naming, name string) (string, bool) {
	switch n {
	case NamesKeras:
		path, _, _ := strings.Cut(name, ":")
		parts := strings.Split(path, "/")
		return strings.Join(parts[max(0, len(parts)-2):], "/"), !strings.HasPrefix(name, "optimizer")
	case NamesPyTorch:
		name = strings.TrimPrefix(name, "module.")
		return name, !strings.HasSuffix(name, ".num_batches_tracked") && !besides(name)
	}
	return name, !besides(name)
}

// besides says whether a checkpoint keeps a tensor beside the network's.
func besides(name string) bool {
	return strings.HasPrefix(name, "optimizer.") || strings.HasPrefix(name, AveragePrefix)
}

// name is the key of v.
func name(n Naming, v variable) string {
	if n == NamesKeras {
		k, _ := key(n, v.keras)
		return k
	}
	return v.own
}

// shown is v's name in full.
func (v variable) shown(n Naming) string {
	if n == NamesKeras {
		return v.keras
	}
	return v.own
}

// stored is v's shape in a file.
func (v variable) stored(n Naming) []int {
	if n != NamesKeras {
		return v.shape
	}
	return pick(v.shape, toKeras(len(v.shape)))
}

// toKeras are our axes in Keras' order: [out,in,kernel…] as [kernel…,in,out].
// That holds for all kinds: a transposed convolution has [in,out,kernel…] here
// and [kernel…,out,in] there, a linear layer [out,in] and [in,out].
func toKeras(dims int) []int {
	var axes []int
	for i := 2; i < dims; i++ {
		axes = append(axes, i)
	}
	if dims < 2 {
		return []int{0}[:dims]
	}
	return append(axes, 1, 0)
}

// fromKeras are Keras' axes in our order.
func fromKeras(dims int) []int {
	axes := make([]int, dims)
	for i, a := range toKeras(dims) {
		axes[a] = i
	}
	return axes
}

func pick(shape, axes []int) []int {
	out := make([]int, len(axes))
	for i, a := range axes {
		out[i] = shape[a]
	}
	return out
}

// permuted is t in the layout of to.
func permuted(t weights.Tensor, from, to Naming) weights.Tensor {
	if (from == NamesKeras) == (to == NamesKeras) || len(t.Shape) < 2 {
		return t
	}
	axes := toKeras(len(t.Shape))
	if from == NamesKeras {
		axes = fromKeras(len(t.Shape))
	}
	return weights.Tensor{Shape: pick(t.Shape, axes), F32: permute(t.F32, t.Shape, axes), F64: permute(t.F64, t.Shape, axes)}
}

// permute puts values of that shape in the order of axes.
func permute[T any](v []T, shape, axes []int) []T {
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
