package nn_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// TestShapes checks result shapes against torch.nn.functional's formulas.
func TestShapes(t *testing.T) {
	k4 := nn.Convolution{Out: 5, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true}
	tests := []struct {
		name  string
		in    []int
		build func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node
		want  []int
	}{
		{"conv same", []int{2, 3, 8, 6}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Conv2D("c", x, 5, 3, 1, 1, true) }, []int{2, 5, 8, 6}},
		{"conv stride 2", []int{1, 3, 9, 8}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Conv2D("c", x, 4, 3, 2, 1, false) }, []int{1, 4, 5, 4}},
		{"conv transpose", []int{1, 4, 3, 5}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.ConvTranspose2D("t", x, 2, 2, 2, 0, true) }, []int{1, 2, 6, 10}},
		{"conv transpose pad", []int{1, 4, 3, 5}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.ConvTranspose2D("t", x, 2, 4, 2, 1, true) }, []int{1, 2, 6, 10}},
		{"pool, odd", []int{1, 4, 5, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.MaxPool2D(x, 2, 2) }, []int{1, 4, 2, 3}},
		{"batch norm", []int{2, 4, 5, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.BatchNorm("n", x) }, []int{2, 4, 5, 7}},
		{"concat", []int{2, 4, 5, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Concat(x, g.ReLU(x)) }, []int{2, 8, 5, 7}},
		{"loss", []int{2, 4, 5, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.BCEWithLogits(x, x) }, []int{}},
		{"conv of two windows", []int{1, 3, 9, 8}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.Conv("c", x, nn.Convolution{Out: 4, Kernel: []int{3, 1}, Stride: []int{2, 3}, Pad: []int{1, 0}})
		}, []int{1, 4, 5, 3}},
		{"conv of a volume", []int{2, 4, 64, 32, 16}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Conv("c", x, k4) }, []int{2, 5, 32, 16, 8}},
		{"conv transpose of a volume", []int{2, 4, 1, 2, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.ConvTranspose("c", x, k4) }, []int{2, 5, 2, 4, 6}},
		{"torchvision's pool", []int{1, 4, 112, 111}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.MaxPool(x, nn.Pool{Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}})
		}, []int{1, 4, 56, 56}},
		{"pool of a volume", []int{1, 4, 5, 6, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.MaxPool(x, nn.Pool{Kernel: []int{2}}) }, []int{1, 4, 2, 3, 3}},
		{"average pool", []int{1, 4, 7, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.AvgPool(x, nn.Pool{Kernel: []int{3}, Stride: []int{2}})
		}, []int{1, 4, 3, 3}},
		{"global average pool", []int{2, 4, 5, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.GlobalAvgPool(x) }, []int{2, 4}},
		{"flatten", []int{2, 4, 5, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Flatten(x) }, []int{2, 140}},
		{"linear", []int{2, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Linear("l", x, nn.Dense{Out: 3}) }, []int{2, 3}},
		{"zero pad", []int{2, 4, 5, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.ZeroPad(x, []int{0, 1}, []int{1, 2}) }, []int{2, 4, 6, 10}},
		{"leaky relu", []int{2, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.LeakyReLU(x, 0.01) }, []int{2, 7}},
		{"tanh", []int{2, 1, 2, 3, 4}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Tanh(x) }, []int{2, 1, 2, 3, 4}},
		{"concat of volumes", []int{2, 1, 2, 3, 4}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Concat(x, g.Tanh(x)) }, []int{2, 2, 2, 3, 4}},
		{"cross-entropy", []int{2, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.SoftmaxCrossEntropy(x, g.Input("class", 2, 1), 0.1)
		}, []int{}},
		{"l1", []int{2, 1, 2, 3, 4}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.L1(g.Tanh(x), x, 0) }, []int{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := nn.NewGraph(nn.Train)
			y := tt.build(g, g.Input("x", tt.in...))
			if err := g.Err(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(y.Shape(), tt.want) {
				t.Errorf("shape %v, want %v", y.Shape(), tt.want)
			}
		})
	}
}

// TestErrors reads the message of each mistake that a builder can make.
func TestErrors(t *testing.T) {
	tests := []struct {
		name  string
		build func(g *nn.Graph, x *gorgonia.Node)
		want  string
	}{
		{"no name", func(g *nn.Graph, x *gorgonia.Node) { g.Input("", 1) }, "add input: the name is empty"},
		{"input without shape", func(g *nn.Graph, x *gorgonia.Node) { g.Input("y") }, `add input "y": invalid shape []: want at least one dimension`},
		{"empty dimension", func(g *nn.Graph, x *gorgonia.Node) { g.Input("y", 2, 0) }, "shape [2 0]"},
		{"name taken", func(g *nn.Graph, x *gorgonia.Node) { g.Input("x", 1) }, `add input "x": duplicate name`},
		{"layer twice", func(g *nn.Graph, x *gorgonia.Node) {
			g.Conv2D("c", g.Conv2D("c", x, 3, 1, 1, 0, false), 3, 1, 1, 0, false)
		}, `add parameter "c.weight": duplicate name`},
		{"no initialiser", func(g *nn.Graph, x *gorgonia.Node) { g.Parameter("p", nil, 1) }, "initializer is nil"},
		{"image too small", func(g *nn.Graph, x *gorgonia.Node) { g.Conv2D("c", x, 1, 7, 1, 0, false) }, `layer "c": conv2d: input (2, 3, 4, 5) with padding 0 is smaller than the kernel 7x7`},
		{"no channels", func(g *nn.Graph, x *gorgonia.Node) { g.Conv2D("c", x, 0, 3, 1, 1, false) }, "got 0 output channels, want at least 1"},
		{"stride", func(g *nn.Graph, x *gorgonia.Node) { g.Conv2D("c", x, 1, 3, 0, 1, false) }, "stride is 0: use at least 1"},
		{"padding", func(g *nn.Graph, x *gorgonia.Node) { g.ConvTranspose2D("c", x, 1, 3, 1, -1, false) }, "padding is -1: use at least 0"},
		{"nothing left", func(g *nn.Graph, x *gorgonia.Node) { g.ConvTranspose2D("c", x, 1, 1, 1, 3, false) }, "with padding 3 leaves no output"},
		{"not an image", func(g *nn.Graph, x *gorgonia.Node) { g.Conv2D("c", g.Input("v", 3), 1, 1, 1, 0, false) }, "input has shape (3), want 4 dimensions (batch, channels, height, width) or 5 (with depth before height)"},
		{"missing", func(g *nn.Graph, x *gorgonia.Node) { g.ReLU(nil) }, `layer "relu.0": relu: input: the node is nil`},
		{"missing to a layer", func(g *nn.Graph, x *gorgonia.Node) { g.BatchNorm("n", nil) }, `layer "n": the node is nil`},
		{"one value a channel", func(g *nn.Graph, x *gorgonia.Node) { g.BatchNorm("n", g.Input("v", 1, 3, 1, 1)) }, "so the variance is undefined"},
		{"window", func(g *nn.Graph, x *gorgonia.Node) { g.MaxPool2D(x, 5, 2) }, "input (2, 3, 4, 5) is smaller than the window 5x5"},
		{"window 0", func(g *nn.Graph, x *gorgonia.Node) { g.MaxPool2D(x, 0, 2) }, "max pool2d: kernel is 0: use at least 1"},
		{"concat", func(g *nn.Graph, x *gorgonia.Node) { g.Concat(x, g.MaxPool2D(x, 2, 2)) }, "shapes (2, 3, 4, 5) and (2, 3, 2, 2) differ, want equal dimensions except for channels"},
		{"add", func(g *nn.Graph, x *gorgonia.Node) { g.Add(x, g.MaxPool2D(x, 2, 2)) }, "add: shapes (2, 3, 4, 5) and (2, 3, 2, 2) differ"},
		{"loss", func(g *nn.Graph, x *gorgonia.Node) { g.BCEWithLogits(x, g.MaxPool2D(x, 2, 2)) }, "logits have shape (2, 3, 4, 5), but targets have shape (2, 3, 2, 2): make the shapes equal"},
		{"other graph", func(g *nn.Graph, x *gorgonia.Node) { g.Add(x, nn.NewGraph(nn.Train).Input("x", 2, 3, 4, 5)) }, "belong to different graphs"},
		{"two strides too many", func(g *nn.Graph, x *gorgonia.Node) {
			g.Conv("c", x, nn.Convolution{Out: 1, Kernel: []int{3}, Stride: []int{1, 2, 3}})
		}, "stride [1 2 3] has 3 numbers: give one number, or one for each of the 2 dimensions"},
		{"no window", func(g *nn.Graph, x *gorgonia.Node) { g.Conv("c", x, nn.Convolution{Out: 1}) }, `layer "c": window size is missing: set Kernel`},
		{"window of 0", func(g *nn.Graph, x *gorgonia.Node) { g.Conv2D("c", x, 1, 0, 1, 0, false) }, `layer "c": kernel is 0: use at least 1`},
		{"pool without window", func(g *nn.Graph, x *gorgonia.Node) { g.MaxPool(x, nn.Pool{}) }, "window size is missing: set Kernel"},
		{"padding of a whole window", func(g *nn.Graph, x *gorgonia.Node) {
			g.MaxPool(x, nn.Pool{Kernel: []int{2}, Pad: []int{2}})
		}, "max pool2d: padding 2 must be less than the window 2x2"},
		{"average of padding", func(g *nn.Graph, x *gorgonia.Node) {
			g.AvgPool(x, nn.Pool{Kernel: []int{2}, Pad: []int{1}})
		}, "avg pool: padding [1] is not supported: use ZeroPad before it"},
		{"pool of a vector", func(g *nn.Graph, x *gorgonia.Node) { g.MaxPool(g.Flatten(x), nn.Pool{Kernel: []int{2}}) }, "input has shape (2, 60), want 4 dimensions (batch"},
		{"linear of an image", func(g *nn.Graph, x *gorgonia.Node) { g.Linear("l", x, nn.Dense{Out: 2}) }, `layer "l": input has shape (2, 3, 4, 5), want 2 dimensions (batch, features)`},
		{"linear to nothing", func(g *nn.Graph, x *gorgonia.Node) { g.Linear("l", g.Flatten(x), nn.Dense{}) }, `layer "l": got 0 output channels, want at least 1`},
		{"negative zero pad", func(g *nn.Graph, x *gorgonia.Node) { g.ZeroPad(x, []int{0}, []int{-1}) }, "zero pad: padding after is -1: use at least 0"},
		{"slope", func(g *nn.Graph, x *gorgonia.Node) { g.LeakyReLU(x, 0) }, "leaky relu: invalid slope 0: use a number above 0 (for 0, use ReLU)"},
		{"epsilon", func(g *nn.Graph, x *gorgonia.Node) { g.BatchNormWith("n", x, 0, 0.1) }, "batch norm: invalid epsilon 0 or momentum 0.1"},
		{"momentum", func(g *nn.Graph, x *gorgonia.Node) { g.BatchNormWith("n", x, 1e-5, 1.1) }, "a momentum (the weight of the batch) from 0 to 1"},
		{"one class", func(g *nn.Graph, x *gorgonia.Node) {
			g.SoftmaxCrossEntropy(g.Input("z", 2, 1), g.Input("class", 2, 1), 0)
		}, "want at least 2 classes (for one class, use BCEWithLogits)"},
		{"one-hot target", func(g *nn.Graph, x *gorgonia.Node) {
			g.SoftmaxCrossEntropy(g.Input("z", 2, 5), g.Input("class", 2, 5), 0)
		}, "targets (2, 5): want targets [2,1], the index of each sample's class"},
		{"computed classes", func(g *nn.Graph, x *gorgonia.Node) {
			g.SoftmaxCrossEntropy(g.Input("z", 2, 5), g.ReLU(g.Input("class", 2, 1)), 0)
		}, "the targets must be an input"},
		{"smoothing", func(g *nn.Graph, x *gorgonia.Node) {
			g.SoftmaxCrossEntropy(g.Input("z", 2, 5), g.Input("class", 2, 1), 1)
		}, "invalid smoothing 1: use at least 0 (none) and less than 1"},
		{"dice of other shapes", func(g *nn.Graph, x *gorgonia.Node) { g.DiceBCE(x, g.Input("t", 2, 3, 4, 4), 1) }, "dice bce: logits have shape (2, 3, 4, 5), but targets have shape (2, 3, 4, 4)"},
		{"dice without weight", func(g *nn.Graph, x *gorgonia.Node) { g.DiceBCE(x, x, 0) }, "invalid Dice weight 0: use a number above 0 and at most 1"},
		{"pixels of one class", func(g *nn.Graph, x *gorgonia.Node) {
			g.PixelCrossEntropy(g.Input("z", 2, 1, 4, 4), g.Input("t", 2, 1, 4, 4), nn.PixelLoss{Ignore: 255})
		}, "pixel cross-entropy: logits have shape (2, 1, 4, 4): want at least 2 classes (for one class, use BCEWithLogits)"},
		{"pixels with a channel per class", func(g *nn.Graph, x *gorgonia.Node) {
			g.PixelCrossEntropy(x, g.Input("t", 2, 3, 4, 5), nn.PixelLoss{Ignore: 255})
		}, "targets (2, 3, 4, 5): want targets (2, 1, 4, 5), the index of each pixel's class"},
		{"computed pixels", func(g *nn.Graph, x *gorgonia.Node) {
			g.PixelCrossEntropy(x, g.ReLU(g.Input("t", 2, 1, 4, 5)), nn.PixelLoss{Ignore: 255})
		}, "the targets must be an input"},
		{"ignored class", func(g *nn.Graph, x *gorgonia.Node) {
			g.PixelCrossEntropy(x, g.Input("t", 2, 1, 4, 5), nn.PixelLoss{Ignore: 2})
		}, "the target of ignored pixels is 2, which is one of the 3 classes or negative: use 3 or more"},
		{"class weights", func(g *nn.Graph, x *gorgonia.Node) {
			g.PixelCrossEntropy(x, g.Input("t", 2, 1, 4, 5), nn.PixelLoss{Ignore: 255, ClassWeights: []float64{1, 2}})
		}, "got 2 class weights [1 2], want one for each of the 3 classes"},
		{"negative class weight", func(g *nn.Graph, x *gorgonia.Node) {
			g.PixelCrossEntropy(x, g.Input("t", 2, 1, 4, 5), nn.PixelLoss{Ignore: 255, ClassWeights: []float64{1, 2, -1}})
		}, "invalid weight -1 of class 2: use 0 or a positive number"},
		{"no class weight", func(g *nn.Graph, x *gorgonia.Node) {
			g.PixelCrossEntropy(x, g.Input("t", 2, 1, 4, 5), nn.PixelLoss{Ignore: 255, ClassWeights: make([]float64, 3)})
		}, "every class has weight 0: use a positive weight for at least one class"},
		{"dice of pixels", func(g *nn.Graph, x *gorgonia.Node) {
			g.PixelCrossEntropy(x, g.Input("t", 2, 1, 4, 5), nn.PixelLoss{Ignore: 255, DiceWeight: 1.5})
		}, "invalid Dice weight 1.5: use a number from 0 to 1"},
		{"l1 shapes", func(g *nn.Graph, x *gorgonia.Node) { g.L1(x, g.Input("t", 2, 3, 4, 4), 0) }, "l1: predictions have shape (2, 3, 4, 5), but targets have shape (2, 3, 4, 4)"},
		{"l1 weight", func(g *nn.Graph, x *gorgonia.Node) { g.L1(x, x, -1) }, "invalid weight -1 of the exponential term"},
		{"loss no scalar", func(g *nn.Graph, x *gorgonia.Node) { g.SetLoss(x) }, "set loss: the loss must be a scalar"},
		{"loss twice", func(g *nn.Graph, x *gorgonia.Node) {
			g.SetLoss(g.BCEWithLogits(x, x))
			g.SetLoss(g.BCEWithLogits(x, x))
		}, "set loss: the graph already has a loss"},
		{"output of nothing", func(g *nn.Graph, x *gorgonia.Node) { g.Output("y", x) }, `add output "y": the node is not the result of an operation`},
		{"output twice", func(g *nn.Graph, x *gorgonia.Node) { g.Output("y", g.ReLU(x)); g.Output("y", g.ReLU(x)) }, "output \"y\" has the same name or node"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := nn.NewGraph(nn.Train)
			tt.build(g, g.Input("x", 2, 3, 4, 5))
			err := g.Err()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
			// The first error sticks, and nothing panics behind it.
			z := g.Output("late", g.Conv2D("late", g.Input("late", 1, 1, 2, 2), 1, 1, 1, 0, true))
			g.SetLoss(g.BCEWithLogits(g.Concat(z, g.BatchNorm("n2", g.ConvTranspose2D("t2", z, 1, 1, 1, 0, true))), z))
			if g.Err() != err {
				t.Errorf("the error became %v", g.Err())
			}
			if _, got := g.Gradients(); got != err {
				t.Errorf("Gradients gave %v", got)
			}
		})
	}
}

// TestOperationErrors: the functions on nodes check what the layers cannot get
// wrong.
func TestOperationErrors(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	x, w, v := g.Input("x", 1, 3, 4, 4), g.Input("w", 2, 4, 3, 3), g.Input("v", 5)
	wt := g.Input("wt", 3, 2, 2, 2)
	tests := []struct {
		name string
		call func() (*gorgonia.Node, error)
		want string
	}{
		{"conv channels", func() (*gorgonia.Node, error) { return nn.Conv2D(x, w, nil, 1, 1) }, "has 3 channels, weight (2, 4, 3, 3) expects 4"},
		{"conv transpose channels", func() (*gorgonia.Node, error) { return nn.ConvTranspose2D(x, w, nil, 1, 1) }, "has 3 channels, weight (2, 4, 3, 3) expects 2"},
		{"bias", func() (*gorgonia.Node, error) { return nn.ConvTranspose2D(x, wt, v, 2, 0) }, "bias has 5 elements, but the output has 2 channels"},
		{"no weight", func() (*gorgonia.Node, error) { return nn.Conv2D(x, nil, nil, 1, 1) }, "weight: the node is nil"},
		{"linear features", func() (*gorgonia.Node, error) { return nn.Linear(g.Input("r", 2, 3), g.Input("m", 4, 5), nil) }, "linear: input (2, 3) has 3 features, weight (4, 5) expects 5"},
		{"linear bias", func() (*gorgonia.Node, error) { return nn.Linear(g.Input("r2", 2, 3), g.Input("m2", 4, 3), v) }, "linear: bias has 5 elements, but the output has 4 features"},
		{"weight of a volume", func() (*gorgonia.Node, error) { return nn.Conv(x, g.Input("w3", 2, 3, 1, 1, 1), nil, nil, nil) }, "conv2d: weight has shape (2, 3, 1, 1, 1), want 4 dimensions"},
		{"gamma", func() (*gorgonia.Node, error) { return nn.BatchNorm(x, v, v, v, v, nn.Eval) }, "gamma has 5 elements, but the input (1, 3, 4, 4) has 3 channels"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.call(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestGradientErrors: what cannot be differentiated says why.
func TestGradientErrors(t *testing.T) {
	tests := []struct {
		name  string
		build func() *nn.Graph
		want  string
	}{
		{"eval", func() *nn.Graph { return nn.NewGraph(nn.Eval) }, "the graph's mode is eval: build it with nn.Train"},
		{"no loss", func() *nn.Graph { return nn.NewGraph(nn.Train) }, "the graph has no loss: call SetLoss"},
		{"no parameters", func() *nn.Graph {
			g := nn.NewGraph(nn.Train)
			x := g.Input("x", 1, 1, 2, 2)
			g.SetLoss(g.BCEWithLogits(x, x))
			return g
		}, "the graph has no parameters"},
		{"parameter behind no gradient", func() *nn.Graph {
			// The loss has no derivative for its target.
			g := nn.NewGraph(nn.Train)
			x := g.Input("x", 1, 1, 2, 2)
			g.SetLoss(g.BCEWithLogits(x, g.Conv2D("c", x, 1, 1, 1, 0, false)))
			return g
		}, "differentiate the loss: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := tt.build()
			if g.Err() != nil {
				t.Fatal(g.Err())
			}
			if _, err := g.Gradients(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestNothingIsMerged: gorgonia merges nodes of equal hash. Operations must
// not be, or two batch norms of one input would share their statistics.
func TestNothingIsMerged(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	x := g.Input("x", 2, 1, 3, 3)
	c := func(name string) *gorgonia.Node { return g.Parameter(name, nn.Constant(1), 1) }
	gamma, beta, mean, variance := c("gamma"), c("beta"), c("mean"), c("variance")
	seen := map[*gorgonia.Node]bool{}
	for range 3 {
		y, err := nn.BatchNorm(x, gamma, beta, mean, variance, nn.Train)
		if err != nil {
			t.Fatal(err)
		}
		seen[y] = true
	}
	if len(seen) != 3 {
		t.Errorf("3 batch norms became %d nodes", len(seen))
	}
}

// TestDoNamesTheEngine: gorgonia's machines cannot run our operations and say
// what can.
func TestDoNamesTheEngine(t *testing.T) {
	g := nn.NewGraph(nn.Eval)
	y := g.ReLU(g.Input("x", 1, 1, 2, 2))
	_, err := y.Op().Do()
	if err == nil || !strings.Contains(err.Error(), "engine") {
		t.Errorf("error %v does not name the engine", err)
	}
}

func TestInitialValues(t *testing.T) {
	build := func(names ...string) map[string][]float64 {
		g := nn.NewGraph(nn.Train)
		x := g.Input("x", 1, 4, 8, 8)
		for _, n := range names {
			g.Conv2D(n, x, 16, 3, 1, 1, true)
		}
		g.BatchNorm("norm", x)
		g.ConvTranspose2D("up", x, 9, 2, 2, 0, true)
		if g.Err() != nil {
			t.Fatal(g.Err())
		}
		return g.InitialValues(42)
	}
	one, other := build("a", "b"), build("b", "a")
	for name, v := range one {
		if !slices.Equal(v, other[name]) {
			t.Errorf("%s depends on the order of creation", name)
		}
	}
	if slices.Equal(one["a.weight"], one["b.weight"]) || slices.Equal(one["a.weight"][:16], one["a.bias"]) {
		t.Error("two parameters have the same numbers")
	}
	for name, want := range map[string]float64{"norm.weight": 1, "norm.bias": 0, "norm.running_mean": 0, "norm.running_var": 1} {
		if v := one[name]; len(v) != 4 || slices.Min(v) != want || slices.Max(v) != want {
			t.Errorf("%s is %v, want 4 times %v", name, v, want)
		}
	}
	// U(−b, b) with b = 1/√(4·3·3) = 1/6, and 1/√(9·2·2) = 1/6 for the
	// transposed one: the extremes come close to b, the variance to b²/3.
	for name, count := range map[string]int{"a.weight": 16 * 4 * 9, "a.bias": 16, "up.weight": 4 * 9 * 4, "up.bias": 9} {
		v := one[name]
		if len(v) != count || slices.Min(v) < -1./6 || slices.Max(v) > 1./6 {
			t.Errorf("%s: %d values from %v to %v, want %d within 1/6", name, len(v), slices.Min(v), slices.Max(v), count)
		}
	}
	if got, want := variance(one["a.weight"]), 1./36/3; math.Abs(got/want-1) > 0.15 {
		t.Errorf("variance of a.weight is %v, want about %v", got, want)
	}
}

// TestInitialValuesGolden: a seed gives the same network on every machine and
// with every version. The numbers are this package's own, of its first version.
func TestInitialValuesGolden(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	g.Conv2D("down.0.a.conv", g.Input("x", 1, 1, 4, 4), 2, 3, 1, 1, true)
	v := g.InitialValues(1)["down.0.a.conv.weight"][:3]
	const want = "[0.274549175411 0.034615036884 -0.138830245913]"
	if got := fmt.Sprintf("%.12f", v); got != want {
		t.Errorf("values %s, want %s", got, want)
	}
}

func TestKaimingNormal(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	g.Parameter("w", nn.KaimingNormal(50), 20000)
	v := g.InitialValues(1)["w"]
	// N(0, 2/50): the standard error of the variance of 20,000 values is 1 %.
	if got := variance(v); math.Abs(got/0.04-1) > 0.05 {
		t.Errorf("variance %v, want 0.04", got)
	}
	inside := 0
	for _, x := range v {
		if math.Abs(x) < 0.2 { // one standard deviation: 68.27 %
			inside++
		}
	}
	if got := float64(inside) / 20000; math.Abs(got-0.6827) > 0.015 {
		t.Errorf("%v lie within a standard deviation, want 0.683", got)
	}
}

// TestSchemes: the fans of a weight [8,4,3,3] are 36 and 72, of a transposed
// one's [4,8,3,3] the other way round (as PyTorch counts), of a linear one's
// [8,4] 4 and 8.
func TestSchemes(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	var fans []string
	record := func(in, out int) nn.Initializer {
		fans = append(fans, fmt.Sprint(in, "/", out))
		return nn.Constant(0)
	}
	x := g.Input("x", 1, 4, 5, 5)
	g.Conv("c", x, nn.Convolution{Out: 8, Kernel: []int{3}, Bias: true, Weight: record, BiasInit: record})
	g.ConvTranspose("t", x, nn.Convolution{Out: 8, Kernel: []int{3}, Weight: record})
	g.Linear("l", g.GlobalAvgPool(x), nn.Dense{Out: 8, Weight: record})
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	if got := strings.Join(fans, " "); got != "36/72 36/72 72/36 4/8" {
		t.Errorf("fans %s", got)
	}
	// Variances: of U(−b, b) it is b²/3.
	for _, tt := range []struct {
		name   string
		scheme nn.Scheme
		want   float64
	}{
		{"glorot", nn.GlorotUniform, 2. / (30 + 20)}, // Glorot and Bengio (2010), equation 12
		{"kaiming fan out", nn.KaimingFanOut, 2. / 20},
		{"normal", nn.FixedScheme(nn.Normal(0.02)), 0.0004},
	} {
		v := make([]float64, 20000)
		n := uint64(1)
		tt.scheme(30, 20)(func() float64 {
			n = n*6364136223846793005 + 1442695040888963407 // Knuth's MMIX generator
			return float64(n>>11) / (1 << 53)
		}, v)
		if got := variance(v); math.Abs(got/tt.want-1) > 0.05 {
			t.Errorf("%s: variance %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestLayersOfVolumes reads the summary of a small network on volumes with
// classes behind it.
func TestLayersOfVolumes(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	x := g.Conv("down", g.Input("x", 2, 3, 8, 8, 8), nn.Convolution{Out: 4, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true})
	x = g.MaxPool(g.LeakyReLU(x, 0.01), nn.Pool{Kernel: []int{2}})
	x = g.ConvTranspose("up", x, nn.Convolution{Out: 5, Kernel: []int{2}, Stride: []int{2}})
	g.SetLoss(g.SoftmaxCrossEntropy(g.Linear("fc", g.GlobalAvgPool(x), nn.Dense{Out: 6, Bias: true}), g.Input("class", 2, 1), 0))
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	var got []string
	for _, l := range g.Layers() {
		got = append(got, fmt.Sprint(l.Name, " ", l.Kind, l.Shape, l.Parameters, l.FLOPs))
	}
	want := []string{
		"down Conv3D[2 4 4 4 4] 772 196608", // 4·3·64+4; 2·2·64·768
		"leakyrelu.0 LeakyReLU[2 4 4 4 4] 0 0",
		"pool.0 MaxPool3D[2 4 2 2 2] 0 0",
		"up ConvTranspose3D[2 5 4 4 4] 160 5120", // 4·5·8; 2·2·8·160
		"globalavgpool.0 GlobalAvgPool[2 5] 0 0",
		"fc Linear[2 6] 36 120", // 6·5+6; 2·2·30
		"loss.0 SoftmaxCrossEntropy[] 0 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("layers\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func variance(v []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return sum / float64(len(v))
}
