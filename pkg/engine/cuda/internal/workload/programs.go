package workload

import (
	"slices"

	"lockstep/pkg/internal/plan"
)

// Declare adds a tensor to p and returns its number.
func Declare(p *plan.Program, role plan.Role, name string, shape []int) int {
	p.Tensors = append(p.Tensors, plan.Tensor{Name: name, Shape: shape, Role: role})
	id := len(p.Tensors) - 1
	switch role {
	case plan.Input:
		p.Inputs = append(p.Inputs, id)
	case plan.State:
		p.States = append(p.States, id)
	case plan.Output:
		p.Outputs = append(p.Outputs, id)
	}
	return id
}

// SetLifetimes sets First and Last of each tensor of p to the first and the last kernel
// that touch it.
func SetLifetimes(p *plan.Program) {
	for id := range p.Tensors {
		p.Tensors[id].First, p.Tensors[id].Last = -1, -1
	}
	for at, k := range p.Kernels {
		for _, id := range slices.Concat(k.In, k.Out) {
			if q := &p.Tensors[id]; q.First < 0 {
				q.First, q.Last = at, at
			} else {
				q.Last = at
			}
		}
	}
}

// Bytes is a data set of N images of bytes, each read as value/255, like the data sets of
// pkg/data. It has no targets.
type Bytes struct {
	Image  []int  // channels, height, width, or channels, depth, height, width
	Pixels []byte // image after image
	N      int
}

// Len returns the number of images.
func (s Bytes) Len() int { return s.N }

// ImageShape returns s.Image.
func (s Bytes) ImageShape() []int { return s.Image }

// TargetShape returns one channel of the image's height and width.
func (s Bytes) TargetShape() []int { return []int{1, s.Image[1], s.Image[2]} }

// SampleName returns no name.
func (s Bytes) SampleName(int) string { return "" }

// Get reads image i.
func (s Bytes) Get(i int, image, _ []float32) error {
	for j, v := range s.Pixels[i*len(image):][:len(image)] {
		image[j] = float32(v) / 255
	}
	return nil
}
