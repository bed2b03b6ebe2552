// Package inference applies networks to images of any size.
package inference

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
)

// DefaultMemoryBytes is the default of Network.MemoryBytes.
const DefaultMemoryBytes = 1 << 30

// Network applies a network to one image at a time. It is not safe for concurrent use.
type Network struct {
	// Program returns the evaluation program for one sample of the given shapes.
	Program func(image, target []int) (*plan.Program, error)
	// Load loads a program with the parameters.
	Load func(*plan.Program) (engine.Executable, error)

	// Flips averages the logits over the image and its three mirror images (left to right, top to
	// bottom, both), which takes four times as long.
	Flips bool
	// MemoryBytes limits the memory of the network's values, in addition to the image and its
	// logits. An image that needs more is cut into windows. 0 means DefaultMemoryBytes.
	MemoryBytes int64
	// If not nil, Progress is called after each window of an image.
	Progress func(done, total int)

	// Field is the network's receptive field, and Bounded reports whether the field is bounded.
	// Field is nil until FindReceptiveField sets both.
	Field   *plan.ReceptiveField
	Bounded bool

	exe engine.Executable
}

// Close frees the loaded program.
func (n *Network) Close() error {
	if n.exe == nil {
		return nil
	}
	exe := n.exe
	n.exe = nil
	return exe.Close()
}

// Classify returns the logits of the classes of an image of shape [C,H,W].
func (n *Network) Classify(ctx context.Context, values []float32, shape []int) ([]float32, error) {
	program, err := n.Program(shape, []int{1})
	if err == nil {
		err = n.loadProgram(program, shape)
	}
	if err != nil {
		return nil, err
	}
	logits := make([]float32, countLogits(program))
	size := [2]int{shape[1], shape[2]}
	return logits, n.averageOverFlips(values, size, func(v, sum []float32) error { return n.runProgram(ctx, v, sum) }, logits, [2]int{1, 1})
}

// Segment returns the logits [K,H,W] for the pixels of an image of shape [C,H,W]. It pads the
// image by reflection at the bottom and right, to a multiple of the network's step. If the whole
// image needs more memory than MemoryBytes, Segment applies the network to overlapping windows,
// which gives the same logits to 1e-5.
func (n *Network) Segment(ctx context.Context, values []float32, shape []int) ([]float32, error) {
	channels, h, w := shape[0], shape[1], shape[2]
	if err := n.FindReceptiveField(channels); err != nil {
		return nil, err
	}
	field := *n.Field
	if least := field.Step; h < least || w < least {
		return nil, fmt.Errorf("the image has %d×%d pixels (height×width), but the network needs at least %d in each dimension: use a larger image", h, w, least)
	}
	size := [2]int{roundUp(h, field.Step), roundUp(w, field.Step)}
	if !n.Bounded {
		field.Reach = max(size[0], size[1]) // no window is smaller than the image
	}
	window, err := n.loadLargestWindow(channels, size, field)
	if err != nil {
		return nil, err
	}
	rows, columns := divideIntoWindows(size[0], window[0], field.Halo()), divideIntoWindows(size[1], window[1], field.Halo())
	total, done := len(rows)*len(columns)*n.passesPerPixel(), 0
	in, out := make([]float32, channels*window[0]*window[1]), make([]float32, countLogits(n.exe.Program()))
	planes := len(out) / (window[0] * window[1])
	whole := func(v, logits []float32) error {
		for _, row := range rows {
			for _, column := range columns {
				start := [2]int{row.start, column.start}
				copyRegion(in, window, [2]int{}, v, size, start, window)
				if err := n.runProgram(ctx, in, out); err != nil {
					return err
				}
				keep := [2]int{row.keep, column.keep}
				from := [2]int{keep[0] - start[0], keep[1] - start[1]}
				copyRegion(logits, size, keep, out, window, from, [2]int{row.end - row.keep, column.end - column.keep})
				if done++; n.Progress != nil {
					n.Progress(done, total)
				}
			}
		}
		return nil
	}
	all := make([]float32, planes*size[0]*size[1])
	if err := n.averageOverFlips(padImage(values, channels, h, w, size[0], size[1]), size, whole, all, size); err != nil {
		return nil, err
	}
	if size == [2]int{h, w} {
		return all, nil
	}
	logits := make([]float32, planes*h*w)
	copyRegion(logits, [2]int{h, w}, [2]int{}, all, size, [2]int{}, [2]int{h, w})
	return logits, nil
}

// countLogits returns the number of logits that p computes.
func countLogits(p *plan.Program) int {
	return p.Tensors[p.FindTensor(plan.Output, model.LogitsOutput)].Elements()
}

// passesPerPixel returns how often the network is applied to each pixel.
func (n *Network) passesPerPixel() int {
	if n.Flips {
		return 4
	}
	return 1
}

// averageOverFlips calls apply, which computes logits, for the image v of the given size. If n.Flips
// is set, it also calls apply for the mirror images of v. It writes the mean of the results to
// logits; outSize is their height and width.
func (n *Network) averageOverFlips(v []float32, size [2]int, apply func(v, logits []float32) error, logits []float32, outSize [2]int) error {
	if !n.Flips {
		return apply(v, logits)
	}
	v, once := slices.Clone(v), make([]float32, len(logits))
	passes := float32(n.passesPerPixel())
	for flip := range n.passesPerPixel() {
		vertical, horizontal := flip&2 != 0, flip&1 != 0
		mirrorPlanes(v, size, vertical, horizontal)
		if err := apply(v, once); err != nil {
			return err
		}
		mirrorPlanes(v, size, vertical, horizontal)
		mirrorPlanes(once, outSize, vertical, horizontal)
		for i, z := range once {
			logits[i] += z / passes
		}
	}
	return nil
}

// mirrorPlanes mirrors each plane of v, of the given size, in place.
func mirrorPlanes(v []float32, size [2]int, vertical, horizontal bool) {
	h, w := size[0], size[1]
	for plane := range slices.Chunk(v, h*w) {
		if horizontal {
			for row := range slices.Chunk(plane, w) {
				slices.Reverse(row)
			}
		}
		if vertical {
			for y := range h / 2 {
				top, bottom := plane[y*w:][:w], plane[(h-1-y)*w:][:w]
				for x := range top {
					top[x], bottom[x] = bottom[x], top[x]
				}
			}
		}
	}
}

// maxProbeImageSide limits the size of the images that FindReceptiveField tries, in pixels.
const maxProbeImageSide = 1 << 12

// FindReceptiveField sets n.Field and n.Bounded for images with the given number of channels,
// unless n.Field is already set. It uses the network's program for the smallest square image that
// the network can process. If the receptive field is not bounded, its Step is 1, because the
// network is then applied to whole images, which are not padded.
func (n *Network) FindReceptiveField(channels int) (err error) {
	built := n.Field != nil
	for side := 1; side <= maxProbeImageSide && n.Field == nil; side *= 2 {
		program, failed := n.Program([]int{channels, side, side}, []int{1, side, side})
		if failed != nil {
			err = failed
			continue
		}
		built = true
		if f, ok := program.ReceptiveField(model.ImageInput, model.LogitsOutput); ok {
			n.Field, n.Bounded = &f, true
		}
	}
	if !built {
		return err
	}
	if n.Field == nil {
		n.Field = &plan.ReceptiveField{Step: 1}
	}
	return nil
}

// loadLargestWindow loads the program for the largest window of an image that fits into
// MemoryBytes, and returns the window.
func (n *Network) loadLargestWindow(channels int, size [2]int, f plan.ReceptiveField) (window [2]int, err error) {
	limit := cmp.Or(n.MemoryBytes, DefaultMemoryBytes)
	program := func(w [2]int) (*plan.Program, error) {
		return n.Program([]int{channels, w[0], w[1]}, []int{1, w[0], w[1]})
	}
	window, err = chooseWindowSize(size, f, limit, func(w [2]int) (int64, error) {
		q, err := program(w)
		if err != nil {
			return 0, err
		}
		m := q.Memory()
		return int64(m.Activations + m.Inputs + m.Parameters + m.States), nil
	})
	if err != nil {
		return window, err
	}
	q, err := program(window)
	if err != nil {
		return window, err
	}
	return window, n.loadProgram(q, []int{channels, window[0], window[1]})
}

// loadProgram loads the program for images of the given shape, unless it is already loaded.
func (n *Network) loadProgram(program *plan.Program, shape []int) (err error) {
	if n.exe != nil {
		loaded := n.exe.Program()
		if slices.Equal(loaded.Tensors[loaded.FindTensor(plan.Input, model.ImageInput)].Shape[1:], shape) {
			return nil
		}
		if err := n.Close(); err != nil { // its memory is freed before more is allocated
			return err
		}
	}
	n.exe, err = n.Load(program)
	return err
}

// runProgram applies the loaded program to the image in, and copies the logits to out.
func (n *Network) runProgram(ctx context.Context, in, out []float32) error {
	if err := n.exe.SetInput(model.ImageInput, in); err != nil {
		return err
	}
	if _, err := n.exe.Step(ctx, nil, nil); err != nil {
		return err
	}
	return n.exe.Output(model.LogitsOutput, out)
}
