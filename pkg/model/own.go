package model

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// Builder adds a network's layers to g, from the image [batch,C,…] to the logits, which
// it returns. It must build the same layers with the same names at every call. The network
// gets the default loss of its task unless the Builder calls g.SetLoss with another loss,
// computed from the target, g.Inputs()[1].Node.
type Builder func(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node

type customNetwork struct {
	name          string
	task          Task
	input, target []int
	build         Builder
	parameters    int
}

// Own returns a custom network. It calls build for each graph. image and target are the
// shapes of one sample, without the batch. For Segmentation and Regression the logits
// must have the target's shape, unless build sets the loss PixelCrossEntropy; for
// Classification the target is [1] and the logits are [batch,classes].
//
// Own builds the network once, to return the errors of build.
func Own(name string, task Task, image, target []int, build Builder) (Network, error) {
	o := &customNetwork{name: name, task: task, input: slices.Clone(image), target: slices.Clone(target), build: build}
	if name == "" {
		return nil, errors.New("make network: name is empty")
	}
	if err := task.Validate(); err != nil {
		return nil, fmt.Errorf("make network %s: %w", name, err)
	}
	if build == nil {
		return nil, fmt.Errorf("make network %s: builder is nil", name)
	}
	g, err := o.Graph(1, nn.Eval)
	if err != nil {
		return nil, err
	}
	o.parameters = g.ParameterCount()
	return o, nil
}

func (o *customNetwork) Name() string       { return o.name }
func (o *customNetwork) Task() Task         { return o.task }
func (o *customNetwork) InputShape() []int  { return slices.Clone(o.input) }
func (o *customNetwork) TargetShape() []int { return slices.Clone(o.target) }
func (o *customNetwork) Parameters() int    { return o.parameters }

func (o *customNetwork) Graph(batch int, mode nn.Mode) (g *nn.Graph, err error) {
	if batch < 1 {
		return nil, fmt.Errorf("build %s: invalid batch %d: use at least 1", o.name, batch)
	}
	defer func() {
		if r := recover(); r != nil { // a panic in a notebook's function must not end the kernel
			g, err = nil, fmt.Errorf("build %s: the builder panicked: %v", o.name, r)
		}
	}()
	g = nn.NewGraph(mode)
	image := g.Input(ImageInput, append([]int{batch}, o.input...)...)
	g.Input(TargetInput, append([]int{batch}, o.target...)...)
	logits := o.build(g, image)
	if err := nameLogitsAndSetLoss(g, o.task, logits); err != nil {
		return nil, fmt.Errorf("build %s: %w", o.name, err)
	}
	return g, nil
}

// nameLogitsAndSetLoss names the logits, and sets the task's loss if the graph has none.
func nameLogitsAndSetLoss(g *nn.Graph, task Task, logits *gorgonia.Node) error {
	if err := g.Err(); err != nil {
		return err
	}
	if logits == nil {
		return errors.New("the builder returned nil instead of the logits")
	}
	logits = g.Output(LogitsOutput, logits)
	if g.Err() == nil && g.Loss() == nil {
		usual := &SpecLoss{Kind: defaultLossKind(task)}
		usual.setGraphLoss(g, logits)
	}
	return g.Err()
}
