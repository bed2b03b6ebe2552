package verify

import (
	"fmt"
	"math/rand/v2"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// pixelClasses is the number of classes in the masks of classMasks.
const pixelClasses = 4

// setPixelClasses changes c's network to one for classMasks, with class weights and soft Dice.
func setPixelClasses(c *train.Config) {
	c.Model.Classes, c.Model.ClassWeights, c.Model.Dice = pixelClasses, []float64{0.5, 2, 1, 3}, 0.5
}

// classMasks has small pictures whose pixels have one of pixelClasses classes. From none to three
// quarters of a sample's pixels are ignored, so that losses that depend on this differ between the
// shards of a batch.
type classMasks struct{ count int }

func newClassMasks() *train.Samples {
	return &train.Samples{OpenedData: data.OpenedData{Train: classMasks{25}, Test: classMasks{1}}}
}

// classMaskEdge is the height and width of a sample of classMasks.
const classMaskEdge = 16

func (m classMasks) Len() int              { return m.count }
func (classMasks) ImageShape() []int       { return []int{1, classMaskEdge, classMaskEdge} }
func (classMasks) TargetShape() []int      { return []int{1, classMaskEdge, classMaskEdge} }
func (classMasks) SampleName(i int) string { return fmt.Sprint("mask ", i) }

// Get sets the classes to bands whose position is random, and the image to the class with noise.
func (classMasks) Get(i int, image, target []float32) error {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	shift := rng.IntN(classMaskEdge)
	for at := range image {
		x, y := at%classMaskEdge, at/classMaskEdge
		class := float32((x + y + shift) / 5 % pixelClasses)
		image[at] = (class + rng.Float32()) / (pixelClasses + 1)
		if target[at] = class; y < i%5*classMaskEdge*3/16 {
			target[at] = data.Ignored
		}
	}
	return nil
}
