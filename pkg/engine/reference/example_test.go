package reference_test

import (
	"context"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

func Example() {
	net, err := model.UNet2D(model.UNet2DConfig{Base: 2, Depth: 1, InChannels: 1, OutChannels: 1, Height: 4, Width: 4, Norm: "batch"})
	if err != nil {
		fmt.Println(err)
		return
	}
	graph, err := net.Graph(1, nn.Train)
	if err != nil {
		fmt.Println(err)
		return
	}
	program, err := plan.Lower(graph, plan.Options{Fuse: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	options := engine.DefaultOptions()
	options.Device = "reference"
	e, err := reference.New(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := e.Load(program, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, v := range graph.InitialValues(1) {
		if err := x.Set(name, v); err != nil {
			fmt.Println(err)
			return
		}
	}
	image := []float32{0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0}
	for _, name := range []string{model.ImageInput, model.TargetInput} {
		if err := x.SetInput(name, image); err != nil {
			fmt.Println(err)
			return
		}
	}
	var first float64
	for step := 1; step <= 50; step++ {
		update := optim.Update{Rule: "adam", LearningRate: 0.02, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
		if _, err := x.Step(context.Background(), nil, &update); err != nil {
			fmt.Println(err)
			return
		}
		if step == 1 {
			first = x.Loss()
		}
	}
	fmt.Println("the loss halved:", x.Loss() < first/2)
	// Output: the loss halved: true
}
