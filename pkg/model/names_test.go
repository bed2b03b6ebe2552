package model_test

import (
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/weights"
)

// file is a network's initial weights as a checkpoint has them, with a slot of
// an optimiser.
func file(t testing.TB, net model.Network) *weights.File {
	t.Helper()
	g := graph(t, net, 1, nn.Eval)
	values := g.InitialValues(1)
	var f weights.File
	for _, v := range slices.Concat(g.Parameters(), g.States()) {
		w := weights.Tensor{Name: v.Name, Shape: v.Shape}
		for _, x := range values[v.Name] {
			w.F32 = append(w.F32, float32(x))
		}
		f.Tensors = append(f.Tensors, w, weights.Tensor{Name: "optimizer.m." + v.Name, Shape: v.Shape, F32: w.F32})
	}
	return &f
}

func names(f []weights.Tensor) []string {
	var all []string
	for _, t := range f {
		all = append(all, t.Name)
	}
	return all
}

// TestRename: to Keras and back every network's weights are what they were, and
// nothing else is in the file.
func TestRename(t *testing.T) {
	for _, net := range small(t) {
		before := file(t, net)
		keras, err := model.Rename(net, before, model.NamesLockstep, model.NamesKeras)
		if err != nil {
			t.Fatal(err)
		}
		if 2*len(keras) != len(before.Tensors) {
			t.Errorf("%s: %d tensors of %d", net.Name(), len(keras), len(before.Tensors)/2)
		}
		slices.Reverse(keras) // the order of a file means nothing
		after, err := model.Rename(net, &weights.File{Tensors: keras}, model.NamesKeras, model.NamesPyTorch)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range after {
			want := before.Tensors[2*i]
			if w.Name != want.Name || !slices.Equal(w.Shape, want.Shape) || !slices.Equal(w.F32, want.F32) {
				t.Errorf("%s: %s %v came back as %s %v, or with other values", net.Name(), want.Name, want.Shape, w.Name, w.Shape)
			}
		}
	}
}

// TestRenameLayout: Keras' names of ResNet50V2's tensors, as its summary and
// its files have them, and a kernel by hand: OIHW [2,1,1,3] is HWIO [1,3,1,2].
func TestRenameLayout(t *testing.T) {
	net := small(t)[3]
	all, err := model.Rename(net, file(t, net), model.NamesLockstep, model.NamesKeras)
	if err != nil {
		t.Fatal(err)
	}
	got := names(all)
	for _, want := range []string{
		"conv1_conv/kernel:0", "conv1_conv/bias:0", "conv2_block1_preact_bn/gamma:0", "conv2_block1_0_conv/kernel:0",
		"conv2_block1_1_bn/beta:0", "conv2_block1_1_bn/moving_mean:0", "conv2_block1_2_bn/moving_variance:0", "post_bn/gamma:0", "predictions/kernel:0", "predictions/bias:0",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no %s among %v", want, got)
		}
	}
	spec, err := model.ParseSpec("a.yaml", []byte("name: n\ntask: segmentation\nimage: [1, 4, 4]\ntarget: [2, 4, 2]\nlayers: [{name: a, kind: Conv, out: 2, kernel: [1, 3], bias: false}]"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := spec.Network(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := &weights.File{Tensors: []weights.Tensor{{Name: "a.weight", Shape: []int{2, 1, 1, 3}, F32: []float32{1, 2, 3, 4, 5, 6}}}}
	out, err := model.Rename(one, in, model.NamesLockstep, model.NamesKeras)
	if err != nil {
		t.Fatal(err)
	}
	if w := out[0]; w.Name != "a/kernel:0" || !slices.Equal(w.Shape, []int{1, 3, 1, 2}) || !slices.Equal(w.F32, []float32{1, 4, 2, 5, 3, 6}) {
		t.Errorf("kernel %+v", w)
	}
}

// TestRenameOverlooks: what frameworks add to names is no part of them.
func TestRenameOverlooks(t *testing.T) {
	net := small(t)[4]
	torch, err := model.Rename(net, file(t, net), model.NamesLockstep, model.NamesPyTorch)
	if err != nil {
		t.Fatal(err)
	}
	ddp := &weights.File{Tensors: []weights.Tensor{{Name: "module.bn1.num_batches_tracked", Shape: []int{}, F64: []float64{7}}}}
	for _, w := range torch {
		w.Name = "module." + w.Name
		ddp.Tensors = append(ddp.Tensors, w)
	}
	if n := model.NamingOf(ddp); n != model.NamesPyTorch {
		t.Errorf("names of DistributedDataParallel look like %s", n)
	}
	got, err := model.Rename(net, ddp, model.NamesPyTorch, model.NamesLockstep)
	if err != nil || !slices.Equal(names(got), names(torch)) {
		t.Errorf("%v, %v", names(got), err)
	}
	keras, err := model.Rename(net, file(t, net), model.NamesLockstep, model.NamesKeras)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keras { // as in Keras 3, and with the model's name before
		keras[i].Name = "resnet/" + strings.TrimSuffix(keras[i].Name, ":0")
	}
	given := &weights.File{Tensors: keras}
	if n := model.NamingOf(given); n != model.NamesKeras {
		t.Errorf("names of Keras look like %s", n)
	}
	if got, err := model.Rename(net, given, model.NamesKeras, model.NamesPyTorch); err != nil || !slices.Equal(names(got), names(torch)) {
		t.Errorf("%v, %v", names(got), err)
	}
	if n := model.NamingOf(file(t, net)); n != model.NamesLockstep {
		t.Errorf("a checkpoint's names look like %s", n)
	}
}

// TestAverages: a checkpoint's averages are none of the network's tensors, and take
// their place where they are asked for.
func TestAverages(t *testing.T) {
	net := small(t)[4]
	trained, err := model.Rename(net, file(t, net), model.NamesLockstep, model.NamesPyTorch)
	if err != nil {
		t.Fatal(err)
	}
	f := file(t, net)
	if _, err := model.Averages(f); err == nil || !strings.Contains(err.Error(), "use a checkpoint of a run with ema.decay") {
		t.Errorf("without averages: %v", err)
	}
	first := trained[0]
	average := weights.Tensor{Name: model.AveragePrefix + first.Name, Shape: first.Shape}
	for _, v := range first.F32 {
		average.F64 = append(average.F64, float64(v)/2)
	}
	f.Tensors = append(f.Tensors, average)
	for naming, to := range map[model.Naming]model.Naming{model.NamesLockstep: model.NamesPyTorch, model.NamesPyTorch: model.NamesLockstep} {
		got, err := model.Rename(net, f, naming, to)
		if err != nil || !slices.Equal(names(got), names(trained)) || !slices.Equal(got[0].F32, first.F32) {
			t.Errorf("beside averages: %v, %v", names(got), err)
		}
	}
	averaged, err := model.Averages(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := model.Rename(net, averaged, model.NamesLockstep, model.NamesPyTorch)
	if err != nil || !slices.Equal(names(got), names(trained)) {
		t.Fatalf("averages: %v, %v", names(got), err)
	}
	for i, v := range first.F32 {
		if got[0].F32[i] != v/2 {
			t.Errorf("value %d is %g, want %g", i, got[0].F32[i], v/2)
		}
	}
	if !slices.Equal(got[1].F32, trained[1].F32) {
		t.Errorf("%s, which has no average, changed", got[1].Name)
	}
	f.Tensors[len(f.Tensors)-1].F64 = average.F64[1:]
	if _, err := model.Averages(f); err == nil || !strings.Contains(err.Error(), "the average of conv1.weight has") {
		t.Errorf("an average of another size: %v", err)
	}
}

func TestRenameErrors(t *testing.T) {
	net := small(t)[4]
	flat, err := model.ParseSpec("a.yaml", []byte("name: n\ntask: classification\nimage: [1, 4, 4]\ntarget: [1]\nlayers: [{kind: Flatten}, {name: a, kind: Linear, out: 2}]"))
	if err != nil {
		t.Fatal(err)
	}
	flattens, err := flat.Network(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*weights.File)) *weights.File {
		w := file(t, net)
		f(w)
		return w
	}
	tests := []struct {
		name     string
		net      model.Network
		file     *weights.File
		from, to model.Naming
		want     string
	}{
		{"missing", net, change(func(f *weights.File) { f.Tensors = f.Tensors[2:] }), "lockstep", "keras", "tensor conv1.weight of shape [4×3×3×3] is missing; the file has bn1.weight and"},
		{"empty", net, &weights.File{}, "keras", "lockstep", "tensor conv1/kernel:0 of shape [3×3×3×4] is missing; the file is empty"},
		{"shape", net, change(func(f *weights.File) { f.Tensors[0].Shape = []int{3, 4, 3, 3} }), "pytorch", "lockstep", "tensor conv1.weight has shape [3 4 3 3], the network needs [4 3 3 3]: does the network have another size or number of classes?"},
		{"unknown", net, change(func(f *weights.File) { f.Tensors[1].Name = "conv9.weight" }), "pytorch", "lockstep", "the file has tensor conv9.weight of shape [4 3 3 3] (and 0 more), which the network lacks"},
		{"twice", net, change(func(f *weights.File) { f.Tensors[2].Name = "module.conv1.weight" }), "pytorch", "lockstep", "the file has both conv1.weight and module.conv1.weight, which name the same tensor"},
		{"naming", net, file(t, net), "torch", "keras", `unknown naming "torch": use lockstep, pytorch or keras`},
		{"flattened", flattens, file(t, flattens), "lockstep", "keras", "the network flattens a feature map, but Keras orders its features differently"},
	}
	for _, tt := range tests {
		_, err := model.Rename(tt.net, tt.file, tt.from, tt.to)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
	if _, err := model.Rename(flattens, file(t, flattens), "lockstep", "pytorch"); err != nil {
		t.Errorf("a flattened map between frameworks of one order: %v", err)
	}
}
