package workload

import (
	"slices"

	"lockstep/pkg/internal/plan"
)

// AddTensor adds a tensor to p and returns its id.
func AddTensor(p *plan.Program, role plan.TensorRole, name string, shape []int) int {
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

// SetLifetimes sets First and Last of each tensor of p to the indexes of the first and the
// last kernel that use it, or to −1 if none does.
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

// ByteImageSet is a data set of N images without targets. Each pixel is a byte and is read
// as byte/255, like in the data sets of pkg/data.
type ByteImageSet struct {
	Image  []int  // shape of an image: [channels, height, width] or [channels, depth, height, width]
	Pixels []byte // of all images, one after another
	N      int
}

// Len returns the number of images.
func (s ByteImageSet) Len() int { return s.N }

// ImageShape returns s.Image.
func (s ByteImageSet) ImageShape() []int { return s.Image }

// TargetShape returns [1, s.Image[1], s.Image[2]].
func (s ByteImageSet) TargetShape() []int { return []int{1, s.Image[1], s.Image[2]} }

// SampleName returns "": the images have no names.
func (s ByteImageSet) SampleName(int) string { return "" }

// Get writes image i to image.
func (s ByteImageSet) Get(i int, image, _ []float32) error {
	for j, v := range s.Pixels[i*len(image):][:len(image)] {
		image[j] = float32(v) / 255
	}
	return nil
}
