package cpu_test

import (
	"context"
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// A small U-Net learns to find the bright half of an image.
func Example() {
	e, err := cpu.New(engine.DefaultOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	loss, err := learn(e)
	if err = errors.Join(err, e.Close()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("loss below 0.1:", loss < 0.1)
	// Output:
	// loss below 0.1: true
}

// learn trains for 60 steps on two equal images and returns the last loss.
func learn(e engine.Engine) (loss float64, err error) {
	const size, batch = 16, 2
	net, err := model.UNet2D(model.UNet2DConfig{Base: 4, Depth: 2, InChannels: 1, OutChannels: 1, Height: size, Width: size, Norm: "batch"})
	if err != nil {
		return 0, err
	}
	graph, err := net.Graph(batch, nn.Train)
	if err != nil {
		return 0, err
	}
	program, err := plan.Lower(graph, plan.Options{Fuse: true})
	if err != nil {
		return 0, err
	}
	x, err := e.Load(program, nil)
	if err != nil {
		return 0, err
	}
	for name, v := range graph.InitialValues(1) {
		if err := x.Set(name, v); err != nil {
			return 0, err
		}
	}

	image, mask := make([]float32, batch*size*size), make([]float32, batch*size*size)
	for i := range image {
		if i%size < size/2 {
			image[i], mask[i] = 0.8, 1
		}
	}
	if err := errors.Join(x.SetInput(model.ImageInput, image), x.SetInput(model.TargetInput, mask)); err != nil {
		return 0, err
	}
	for step := 1; step <= 60; step++ {
		update := optim.Update{Rule: "adam", LearningRate: 0.01, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
		if _, err := x.Step(context.Background(), nil, &update); err != nil {
			return 0, err
		}
	}
	return x.Loss(), x.Close()
}
