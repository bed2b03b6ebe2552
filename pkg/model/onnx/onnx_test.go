package onnx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"gorgonia.org/gorgonia"

	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/weights"
)

// fields returns the fields of an encoded message with the given number: their bytes, or the digits of a
// number.
func fields(t *testing.T, m []byte, number protowire.Number) (found []string) {
	t.Helper()
	for len(m) > 0 {
		n, kind, size := protowire.ConsumeTag(m)
		value := protowire.ConsumeFieldValue(n, kind, m[max(size, 0):])
		if size < 0 || value < 0 {
			t.Fatal("the message is not valid")
		}
		if n == number {
			if kind == protowire.BytesType {
				b, _ := protowire.ConsumeBytes(m[size:])
				found = append(found, string(b))
			} else {
				v, _ := protowire.ConsumeVarint(m[size:])
				found = append(found, fmt.Sprint(v))
			}
		}
		m = m[size+value:]
	}
	return found
}

// initial returns the initial weights of a network.
func initial(t *testing.T, net model.Network) (tensors []weights.Tensor) {
	t.Helper()
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		t.Fatal(err)
	}
	values := g.InitialValues(1)
	for _, v := range slices.Concat(g.Parameters(), g.States()) {
		w := weights.Tensor{Name: v.Name, Shape: v.Shape}
		for _, x := range values[v.Name] {
			w.F32 = append(w.F32, float32(x))
		}
		tensors = append(tensors, w)
	}
	return tensors
}

// TestNodes: the file has these operations, with batch norms only where they cannot be folded.
func TestNodes(t *testing.T) {
	spec := func(layers ...model.SpecLayer) model.Config {
		return model.Config{Kind: model.KindSpec, Spec: &model.Spec{Name: "own", Task: model.Classification, Image: []int{3, 8, 8}, Target: []int{1}, Layers: layers}}
	}
	conv := model.SpecLayer{Name: "c", Kind: "Conv", Out: 2, Kernel: model.Sizes{3}}
	for _, c := range []struct {
		config        model.Config
		image, target []int
		dims, want    string
	}{
		{
			model.Config{Kind: "unet2d", Base: 2, Depth: 1, Norm: "batch"},
			[]int{1, 8, 8},
			[]int{1, 8, 8},
			"image[n 1 height width] logits[n 1 height width]",
			`Conv image down.0.a.conv.weight down.0.a.conv.bias -> down.0.a.norm
Relu down.0.a.norm -> relu.0
Conv relu.0 down.0.b.conv.weight down.0.b.conv.bias -> down.0.b.norm
Relu down.0.b.norm -> relu.1
MaxPool relu.1 -> pool.0
Conv pool.0 bridge.a.conv.weight bridge.a.conv.bias -> bridge.a.norm
Relu bridge.a.norm -> relu.2
Conv relu.2 bridge.b.conv.weight bridge.b.conv.bias -> bridge.b.norm
Relu bridge.b.norm -> relu.3
ConvTranspose relu.3 up.0.transpose.weight up.0.transpose.bias -> up.0.transpose
Concat up.0.transpose relu.1 -> concat.0
Conv concat.0 up.0.a.conv.weight up.0.a.conv.bias -> up.0.a.norm
Relu up.0.a.norm -> relu.4
Conv relu.4 up.0.b.conv.weight up.0.b.conv.bias -> up.0.b.norm
Relu up.0.b.norm -> relu.5
Conv relu.5 head.weight head.bias -> logits`,
		},
		{ // something else reads the convolution
			spec(conv, model.SpecLayer{Name: "b", Kind: "BatchNorm"}, model.SpecLayer{Kind: "LeakyReLU", In: model.LayerNames{"c"}, Name: "r"}, model.SpecLayer{Kind: "Add", In: model.LayerNames{"b", "r"}}, model.SpecLayer{Kind: "GlobalAvgPool"}),
			[]int{3, 8, 8},
			[]int{1},
			"image[n 3 height width] logits[n 2]",
			`Conv image c.weight c.bias -> c
BatchNormalization c b.weight b.bias b.running_mean b.running_var -> b
LeakyRelu c -> leakyrelu.0
Add b leakyrelu.0 -> add.0
GlobalAveragePool add.0 -> logits.pooled
Flatten logits.pooled -> logits`,
		},
		{ // a network that flattens needs one size
			spec(model.SpecLayer{Kind: "ZeroPad", Pad: model.Sizes{1}}, conv, model.SpecLayer{Kind: "Flatten"}, model.SpecLayer{Name: "l", Kind: "Linear", Out: 5}),
			[]int{3, 8, 8},
			[]int{1},
			"image[n 3 8 8] logits[n 5]",
			`Pad image zeropad.0.pads -> zeropad.0
Conv zeropad.0 c.weight c.bias -> c
Flatten c -> flatten.0
Gemm flatten.0 l.weight l.bias -> logits`,
		},
	} {
		net, err := c.config.Network(c.image, c.target)
		if err != nil {
			t.Fatal(err)
		}
		m, err := encodeModel(net, initial(t, net), "documentation")
		if err != nil {
			t.Fatal(err)
		}
		graph := []byte(fields(t, m, 7)[0])
		var got, dims []string
		for _, n := range fields(t, graph, 1) {
			node := []byte(n)
			got = append(got, fmt.Sprint(fields(t, node, 4)[0], " ", strings.Join(fields(t, node, 1), " "), " -> ", fields(t, node, 2)[0]))
		}
		for _, value := range slices.Concat(fields(t, graph, 11), fields(t, graph, 12)) {
			tensor := fields(t, []byte(fields(t, []byte(value), 2)[0]), 1)[0]
			var of []string
			for _, d := range fields(t, []byte(fields(t, []byte(tensor), 2)[0]), 1) {
				of = append(of, append(fields(t, []byte(d), 1), fields(t, []byte(d), 2)...)...)
			}
			dims = append(dims, fmt.Sprint(fields(t, []byte(value), 1)[0], of))
		}
		if text := strings.Join(got, "\n"); text != c.want || strings.Join(dims, " ") != c.dims {
			t.Errorf("%s: got %s\n%s\nwant %s\n%s", net.Name(), dims, text, c.dims, c.want)
		}
	}
}

// TestNoCounterpart: what ONNX lacks is an error with the name of the layer.
func TestNoCounterpart(t *testing.T) {
	shape := []int{1, 4, 4}
	net, err := model.Own("own", model.Segmentation, shape, shape, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
		return g.Conv2D("head", gorgonia.Must(gorgonia.Sigmoid(x)), 1, 1, 1, 0, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := encodeModel(net, initial(t, net), ""); err == nil || !strings.Contains(err.Error(), `layer "head" (Conv2D) reads `) {
		t.Errorf("got error %v", err)
	}
	if _, err := encodeModel(net, nil, ""); err == nil || !strings.Contains(err.Error(), "tensor head.weight has no float32 values of shape [1 1 1 1]") {
		t.Errorf("got error %v", err)
	}
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		t.Fatal(err)
	}
	c := converter{graph: g, kinds: map[string]string{"loss.0": "BCEWithLogits"}, names: map[*gorgonia.Node]string{}}
	for _, o := range nn.Operands(g.Expr(), g.Loss()) {
		c.names[o] = "any"
	}
	if err := c.convertNode(g.Loss()); err == nil || err.Error() != `layer "loss.0" (BCEWithLogits) has no counterpart in ONNX` {
		t.Errorf("got error %v", err)
	}
}

// golden is a network with the logits that PyTorch computes: the files of package model's TestParity.
type golden struct {
	name          string
	naming        model.Naming
	config        model.Config
	image, target []int
}

// writeGoldens writes the networks of the goldens to a folder: name.onnx, and its image as float32.
func writeGoldens(t *testing.T) (dir string, goldens []golden) {
	t.Helper()
	dir = t.TempDir()
	photo, class := []int{3, 64, 64}, []int{1} // the goldens' images have other sizes
	goldens = []golden{
		{"unet2d-3x2", model.NamesPyTorch, model.Config{Kind: "unet2d", Base: 3, Depth: 2, Norm: "batch", Bias: true}, []int{1, 4, 4}, []int{1, 4, 4}},
		{"resnetv2-2x3", model.NamesKeras, model.Config{Kind: "resnetv2", Base: 4, Blocks: []int{2, 3}, Classes: 5}, photo, class},
		{"resnet-2x1", model.NamesPyTorch, model.Config{Kind: "resnet", Base: 4, Blocks: []int{2, 1}, Classes: 5}, photo, class},
		{"unet3d-2x3", model.NamesPyTorch, model.Config{Kind: "unet3d", Base: 2, Depth: 3}, []int{3, 8, 8, 8}, []int{2, 8, 8, 8}},
	}
	for _, g := range goldens {
		net, err := g.config.Network(g.image, g.target)
		if err != nil {
			t.Fatal(err)
		}
		var given weights.File
		for _, w := range g.read(t).Tensors {
			if name, ok := strings.CutPrefix(w.Name, "weights."); ok {
				w.Name = name
				given.Tensors = append(given.Tensors, w)
			}
		}
		tensors, err := model.Rename(net, &given, g.naming, model.NamesLockstep)
		if err == nil {
			err = Write(filepath.Join(dir, g.name+".onnx"), net, tensors, "")
		}
		if err == nil {
			var b bytes.Buffer
			image, _ := g.read(t).Tensor("image")
			_ = binary.Write(&b, binary.LittleEndian, image.F32) // to memory
			err = os.WriteFile(filepath.Join(dir, g.name+".image"), b.Bytes(), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, goldens
}

// read reads the file of g.
func (g golden) read(t *testing.T) *weights.File {
	t.Helper()
	f, err := weights.Read(filepath.Join("..", "testdata", "parity", g.name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestChecker: ONNX's own checker accepts the files, and infers the shapes of all values.
func TestChecker(t *testing.T) {
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import onnx").Run() != nil {
		t.Skip("python3-onnx is not installed: environment/test installs it")
	}
	dir, goldens := writeGoldens(t)
	for _, g := range goldens {
		out, err := exec.CommandContext(t.Context(), python, "-c", `
import sys, onnx
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model, full_check=True)
inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
assert len(inferred.graph.value_info) == len(model.graph.node) - 1, "values without a shape"
print(model.ir_version, model.opset_import[0].version)
`, filepath.Join(dir, g.name+".onnx")).CombinedOutput()
		if err != nil || string(out) != "8 17\n" {
			t.Errorf("%s: %v\n%s", g.name, err, out)
		}
	}
}

// TestRuntime: ONNX Runtime computes PyTorch's logits, for batches, and sizes, that the files do not state.
func TestRuntime(t *testing.T) {
	folder, err := filepath.Abs(filepath.Join("..", "..", "..", "environment"))
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(folder, ".cache", "onnxruntime", "node_modules")
	if _, err := os.Stat(filepath.Join(modules, "onnxruntime-web")); err != nil {
		t.Skip("onnxruntime-web is not installed: environment/test installs it")
	}
	dir, goldens := writeGoldens(t)
	args := []string{filepath.Join(folder, "onnxruntime", "run.cjs")}
	for _, g := range goldens {
		image, _ := g.read(t).Tensor("image")
		dims := strings.ReplaceAll(strings.Trim(fmt.Sprint(image.Shape), "[]"), " ", ",")
		args = append(args, filepath.Join(dir, g.name), dims)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, g := range goldens {
		want, _ := g.read(t).Tensor("eval.logits")
		text, err := os.ReadFile(filepath.Join(dir, g.name+".logits"))
		if err != nil || len(text) != 4*want.Len() || want.Len() == 0 {
			t.Fatalf("%s: %d bytes, want %d values (%v)", g.name, len(text), want.Len(), err)
		}
		for i, w := range want.F32 {
			got := math.Float32frombits(binary.LittleEndian.Uint32(text[4*i:]))
			if d := math.Abs(float64(got - w)); !(d <= 1e-4) {
				t.Errorf("%s: logit %d is %g, PyTorch's %g", g.name, i, got, w)
				break
			}
		}
	}
}
