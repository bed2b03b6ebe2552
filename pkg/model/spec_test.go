package model_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// small are networks of every kind, small enough to build often.
func small(t testing.TB) []model.Network {
	t.Helper()
	var all []model.Network
	for _, c := range []struct {
		config        model.Config
		image, target []int
	}{
		{model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch"}, []int{1, 16, 16}, []int{1, 16, 16}},
		{model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Dice: 0.5}, []int{3, 16, 16}, []int{2, 16, 16}},
		{model.Config{Kind: "unet3d", Base: 2, Depth: 3, ExpWeight: 0.5}, []int{4, 8, 8, 8}, []int{5, 8, 8, 8}},
		{model.Config{Kind: "resnetv2", Base: 4, Blocks: []int{2, 2}, LabelSmoothing: 0.1}, []int{3, 32, 32}, []int{1}},
		{model.Config{Kind: "resnet", Base: 4, Blocks: []int{1, 2}, Stem: "cifar", Classes: 4}, []int{3, 8, 8}, []int{1}},
		{model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch", Classes: 4}, []int{1, 16, 16}, []int{1, 16, 16}},
		{model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch", Classes: 2, ClassWeights: []float64{1, 2.5}, Dice: 0.5}, []int{1, 16, 16}, []int{1, 16, 16}},
	} {
		n, err := c.config.Network(c.image, c.target)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// TestSpecOf: the spec of a network, written and read again, builds the same
// graph: names, shapes, kinds and initial values, for training too.
func TestSpecOf(t *testing.T) {
	for _, net := range small(t) {
		t.Run(net.Name(), func(t *testing.T) {
			spec, err := model.SpecOf(net)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "net.yaml")
			if err := spec.Write(path); err != nil {
				t.Fatal(err)
			}
			config, err := model.Config{Kind: "spec", File: "net.yaml"}.Resolve(filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			// run.json keeps it as JSON.
			b, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			var kept model.Config
			if err := json.Unmarshal(b, &kept); err != nil {
				t.Fatal(err)
			}
			if err := kept.Validate(); err != nil {
				t.Fatal(err)
			}
			again, err := kept.Network(net.InputShape(), net.TargetShape())
			if err != nil {
				t.Fatal(err)
			}
			if again.Name() != net.Name() || again.Task() != net.Task() || again.Parameters() != net.Parameters() {
				t.Errorf("%s %s with %d parameters, want %s %s with %d", again.Name(), again.Task(), again.Parameters(), net.Name(), net.Task(), net.Parameters())
			}
			got, want := graph(t, again, 2, nn.Train), graph(t, net, 2, nn.Train)
			if !reflect.DeepEqual(got.Layers(), want.Layers()) {
				t.Errorf("layers\n%v\nwant\n%v", got.Layers(), want.Layers())
			}
			if !reflect.DeepEqual(got.InitialValues(3), want.InitialValues(3)) {
				t.Error("initial values differ")
			}
			g, w := calls(got), calls(want)
			if !slices.Equal(g, w) {
				t.Errorf("operations\n%v\nwant\n%v", g, w)
			}
		})
	}
}

func graph(t testing.TB, net model.Network, batch int, mode nn.Mode) *nn.Graph {
	t.Helper()
	g, err := net.Graph(batch, mode)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// calls are the operations of a graph with their attributes.
func calls(g *nn.Graph) []string {
	var all []string
	for _, n := range g.Expr().AllNodes() {
		if c, ok := nn.OperationInfoOf(n); ok {
			all = append(all, fmt.Sprint(c.Kind, c.Attr, c.Layer, n.Shape()))
		}
	}
	slices.Sort(all)
	return all
}

// TestSpecOfBeginnings: where a layer's fans are equal, so that two names would
// do, it gets the one of the other layers.
func TestSpecOfBeginnings(t *testing.T) {
	net, err := model.Own("mine", model.Segmentation, []int{1, 8, 8}, []int{1, 8, 8}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
		for i, out := range []int{4, 4, 1} {
			x = g.Conv(fmt.Sprint("c", i), x, nn.Convolution{Out: out, Kernel: []int{1}, Weight: nn.KaimingFanOut})
		}
		return x
	})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := model.SpecOf(net)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range spec.Layers {
		if l.Init != "kaiming_fan_out" {
			t.Errorf("layer %s begins with %q", l.Name, l.Init)
		}
	}
}

// TestSpecSizes: the data may give another size than the spec's own.
func TestSpecSizes(t *testing.T) {
	spec, err := model.SpecOf(small(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	net, err := spec.Network([]int{3, 32, 24}, []int{1, 32, 24})
	if err != nil {
		t.Fatal(err)
	}
	if got := net.InputShape(); !slices.Equal(got, []int{3, 32, 24}) {
		t.Errorf("image %v", got)
	}
	_, err = spec.Network([]int{1, 30, 30}, []int{1, 30, 30})
	if err == nil || !strings.Contains(err.Error(), "concat") {
		t.Errorf("a size that does not halve: error %v", err)
	}
	_, err = spec.Network([]int{1, 16, 16}, []int{2, 16, 16})
	if err == nil || !strings.Contains(err.Error(), "logits have shape (1, 1, 16, 16), but targets have shape (1, 2, 16, 16)") {
		t.Errorf("another target: error %v", err)
	}
}

// TestSpecFile builds the file that the documentation shows, with layers in
// another order than they are computed in.
func TestSpecFile(t *testing.T) {
	spec, err := model.ReadSpec(filepath.Join("testdata", "specs", "small.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	net, err := spec.Network(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// (1·9+1)·8 + (8·9+1)·8 + (8+1)·1, by hand.
	if got := net.Parameters(); got != 80+584+9 {
		t.Errorf("%d parameters, want 673", got)
	}
	s, err := model.Summarize(net, 2)
	if err != nil {
		t.Fatal(err)
	}
	if l := s.Layers[3]; l.Kind != "Add" || !slices.Equal(l.Shape, []int{2, 8, 64, 64}) {
		t.Errorf("fourth layer is %+v", l)
	}
}

// TestSpecErrors reads the message of each mistake in a file.
func TestSpecErrors(t *testing.T) {
	head := "name: n\ntask: segmentation\nimage: [1, 8, 8]\ntarget: [1, 8, 8]\nlayers:\n"
	layers := func(lines ...string) string { return head + "  - " + strings.Join(lines, "\n  - ") + "\n" }
	ok := "{name: a, kind: Conv, out: 1, kernel: 1}"
	tests := []struct{ name, text, want string }{
		{"empty", "", "the file is empty: a spec has name"},
		{"no YAML", "a: b: c", "mapping values are not allowed"},
		{"a list", "[1]", "line 1: spec must be a mapping with the keys"},
		{"unknown key", "name: n\nlayer: []", `line 2: spec: unknown key "layer": use one of name`},
		{"no name", "task: segmentation", "spec has no name"},
		{"no layers", "name: n\ntask: segmentation", "spec n has no layers"},
		{"task", strings.Replace(layers(ok), "segmentation", "dreaming", 1), `unknown task "dreaming": use segmentation`},
		{"no task", strings.Replace(layers(ok), "task: segmentation\n", "", 1), `unknown task ""`},
		{"no image", strings.Replace(layers(ok), "image: [1, 8, 8]\n", "", 1), "invalid image shape []"},
		{"image too large", strings.Replace(layers(ok), "image: [1, 8, 8]", "image: [65536, 65536, 65536]", 1), "invalid image shape [65536 65536 65536]"},
		{"unknown kind", layers(ok, "{name: b, kind: Convolve}"), `line 7: layer "b": unknown kind "Convolve": use one of Conv, `},
		{"a field of another kind", layers("{name: b, kind: ReLU, out: 3}"), `line 6: layer "b" (ReLU): unknown key "out": use one of name, kind, in`},
		{"a layer that is a word", layers("ReLU"), "line 6: a layer must be a mapping"},
		{"no kernel", layers("{name: a, kind: Conv, out: 1}"), "kernel is missing"},
		{"no out", layers("{name: a, kind: Conv, kernel: 1}"), "invalid out 0: use 1 to 65536"},
		{"kernel 0", layers("{name: a, kind: Conv, out: 1, kernel: 0}"), "invalid kernel [0]"},
		{"kernel a text", layers("{name: a, kind: Conv, out: 1, kernel: big}"), "cannot unmarshal"},
		{"stride of a list too long", layers("{name: a, kind: Conv, out: 1, kernel: 1, stride: [1, 1, 1, 1]}"), "invalid stride [1 1 1 1]"},
		{"numbers for other dimensions", layers("{name: a, kind: Conv, out: 1, kernel: [1, 1, 1]}"), "3 numbers: give one number, or one for each of the 2 dimensions"},
		{"no name for parameters", layers("{kind: Conv, out: 1, kernel: 1}"), "layer 1 (Conv) (line 6): a layer with parameters needs a name"},
		{"the name of the input", layers("{name: image, kind: ReLU}", ok), "the name is reserved for the input"},
		{"name twice", layers(ok, ok), `layer "a" (line 7) has the same name as layer 1`},
		{"missing input", layers("{name: a, kind: Conv, in: nowhere, out: 1, kernel: 1}"), `layer "a" (line 6) reads unknown layer "nowhere"`},
		{"one input of two", layers(ok, "{kind: Add, in: a}"), "reads 1 layers, but Add needs 2 (for example in: [a, b])"},
		{"two inputs of one", layers(ok, "{kind: ReLU, in: [a, a]}"), "reads 2 layers, but ReLU needs 1"},
		{"cycle", layers("{name: a, kind: Add, in: [image, c]}", "{name: b, kind: ReLU}", "{name: c, kind: ReLU}"), `layers read each other in a cycle: "a" (line 6) reads "c" (line 8) reads "b" (line 7) reads "a" (line 6): each layer must be computed from the image`},
		{"cycle of one", layers("{name: a, kind: ReLU, in: a}"), `in a cycle: "a" (line 6) reads "a" (line 6)`},
		{"layer for nothing", layers(ok, "{name: b, kind: ReLU, in: a}", "{name: c, kind: ReLU, in: a}"), `the logits (layer "c" (line 8)) do not depend on layer "b" (line 7)`},
		{"unknown logits", layers(ok) + "logits: z\n", `logits: no layer is named "z"`},
		{"loss", layers(ok) + "loss: {kind: Hinge}\n", `loss: unknown kind "Hinge": use BCEWithLogits`},
		{"Dice without weight", layers(ok) + "loss: {kind: DiceBCE}\n", "invalid dice 0: use more than 0, at most 1"},
		{"Dice of pixels", layers(ok) + "loss: {kind: PixelCrossEntropy, dice: 2}\n", "invalid dice 2: use 0 to 1"},
		{"weights of BCE", layers(ok) + "loss: {kind: BCEWithLogits, class_weights: [1, 2]}\n", "class_weights does not apply to BCEWithLogits"},
		{"Dice of BCE", layers(ok) + "loss: {kind: BCEWithLogits, dice: 0.5}\n", "dice does not apply to BCEWithLogits"},
		{"loss key", layers(ok) + "loss: {name: L1}\n", `loss: unknown key "name"`},
		{"smoothing", layers(ok) + "loss: {kind: SoftmaxCrossEntropy, smoothing: 1}\n", "invalid smoothing 1: use 0 or more, and less than 1"},
		{"smoothing of L1", layers(ok) + "loss: {kind: L1, smoothing: 0.1}\n", "smoothing does not apply to L1"},
		{"epsilon", layers("{name: a, kind: BatchNorm, epsilon: -1}"), "invalid epsilon -1"},
		{"init", layers("{name: a, kind: Conv, out: 1, kernel: 1, init: zeros}"), `unknown init "zeros": use one of pytorch`},
		{"init without number", layers("{name: a, kind: Conv, out: 1, kernel: 1, init: normal}"), `unknown init "normal"`},
		{"shape", layers("{name: a, kind: Conv, out: 2, kernel: 1}"), "logits have shape (1, 2, 8, 8), but targets have shape (1, 1, 8, 8)"},
		{"growth without end", layers(slices.Repeat([]string{"{name: NAME, kind: ConvTranspose, out: 1, kernel: 256, stride: 256}"}, 8)...), "is too large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.text
			for i := 0; strings.Contains(text, "NAME"); i++ {
				text = strings.Replace(text, "NAME", fmt.Sprint("x", i), 1)
			}
			spec, err := model.ParseSpec("net.yaml", []byte(text))
			if err == nil {
				_, err = spec.Network(nil, nil)
			} else if !strings.HasPrefix(err.Error(), "read spec net.yaml: ") {
				t.Errorf("error %q does not name the file", err)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := model.ReadSpec(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "read spec: open") {
		t.Errorf("a file that is not there: %v", err)
	}
	large := make([]byte, 17<<20)
	if _, err := model.ParseSpec("net.yaml", large); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("a large file: %v", err)
	}
}

// TestOwn builds a network of one's own, and reads what is said of mistakes.
func TestOwn(t *testing.T) {
	block := func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
		return g.Conv2D("head", g.ReLU(g.Conv2D("a", x, 4, 3, 1, 1, true)), 1, 1, 1, 0, true)
	}
	net, err := model.Own("mine", model.Segmentation, []int{1, 8, 8}, []int{1, 8, 8}, block)
	if err != nil {
		t.Fatal(err)
	}
	if net.Parameters() != 40+5 || net.Task() != model.Segmentation {
		t.Errorf("%d parameters, task %s", net.Parameters(), net.Task())
	}
	if spec, err := model.SpecOf(net); err != nil || len(spec.Layers) != 3 || spec.Layers[1].Kind != "ReLU" {
		t.Errorf("spec %+v, %v", spec, err)
	}
	tests := []struct {
		name  string
		task  model.Task
		build model.Builder
		want  string
	}{
		{"no builder", model.Segmentation, nil, "builder is nil"},
		{"no task", "", block, `unknown task ""`},
		{"nil", model.Segmentation, func(*nn.Graph, *gorgonia.Node) *gorgonia.Node { return nil }, "the builder returned nil"},
		{"panic", model.Segmentation, func(*nn.Graph, *gorgonia.Node) *gorgonia.Node { panic("oh") }, "the builder panicked: oh"},
		{"another task", model.Classification, block, "softmax"},
		{"an error in a layer", model.Segmentation, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Conv2D("a", x, 0, 1, 1, 0, true) }, `layer "a"`},
	}
	for _, tt := range tests {
		_, err := model.Own("mine", tt.task, []int{1, 8, 8}, []int{1, 8, 8}, tt.build)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

// TestSpecOfErrors: what no spec can hold is refused, not left out.
func TestSpecOfErrors(t *testing.T) {
	tests := []struct {
		name  string
		build model.Builder
		want  string
	}{
		{"a function in place of a layer", func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			y, err := nn.ReLU(g.Conv2D("a", x, 1, 1, 1, 0, true))
			if err != nil {
				g.Fail(err)
			}
			return g.Conv2D("head", y, 1, 1, 1, 0, true)
		}, "is not a layer of the graph: use methods of nn.Graph"},
		{"values of one's own", func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			odd := func(_ func() float64, v []float64) {
				for i := range v {
					v[i] = float64(i)
				}
			}
			return g.Conv("head", x, nn.Convolution{Out: 1, Kernel: []int{3}, Pad: []int{1}, Weight: nn.FixedScheme(odd)})
		}, "parameter head.weight: a spec cannot express the initial values"},
		{"a parameter of one's own", func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			y := g.Conv2D("head", x, 1, 1, 1, 0, true)
			g.Parameter("scale", nn.Constant(1), 3)
			return y
		}, "only parameters of layers can be written"},
	}
	for _, tt := range tests {
		net, err := model.Own("mine", model.Segmentation, []int{1, 8, 8}, []int{1, 8, 8}, tt.build)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.SpecOf(net); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

// FuzzParseSpec: any bytes give an error, or a spec that is written and read
// again as it is; its network is built or refused.
func FuzzParseSpec(f *testing.F) {
	b, err := os.ReadFile(filepath.Join("testdata", "specs", "small.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("name: n\ntask: regression\nimage: [1]\ntarget: [1]\nlayers: [{name: a, kind: Linear, out: 1}]\n"))
	f.Add([]byte("name: n\ntask: regression\nimage: [1, 4, 4, 4]\ntarget: [1, 8, 8, 8]\nlayers: [{name: a, kind: ConvTranspose, out: 1, kernel: 4, stride: 2, pad: 1, init: normal 0.02}, {kind: Tanh}]\nloss: {kind: L1, exp_weight: 1}\n"))
	f.Add([]byte("name: n\ntask: segmentation\nimage: &s [1, 8, 8]\ntarget: *s\nlayers: [{name: a, kind: Add, in: [image, a]}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, err := model.ParseSpec("net.yaml", text)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "net.yaml")
		if err := spec.Write(path); err != nil {
			t.Fatalf("write what was read: %v", err)
		}
		again, err := model.ReadSpec(path)
		if err != nil {
			t.Fatalf("read what was written: %v", err)
		}
		a, err1 := json.Marshal(spec)
		b, err2 := json.Marshal(again)
		if err1 != nil || err2 != nil || string(a) != string(b) {
			t.Fatalf("%s became %s (%v, %v)", a, b, err1, err2)
		}
		if len(spec.Layers) <= 50 {
			_, _ = spec.Network(nil, nil) // It may be refused, but must not panic or take all memory.
		}
	})
}
