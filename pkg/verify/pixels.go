package verify

import (
	"fmt"
	"math/rand/v2"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// pixelClassCount is the number of classes in the masks of classMasks.
const pixelClassCount = 4

// setPixelClassModel changes c's network to one for classMaskSamples, with class weights and soft Dice.
func setPixelClassModel(c *train.Config) {
	c.Model.Classes, c.Model.ClassWeights, c.Model.Dice = pixelClassCount, []float64{0.5, 2, 1, 3}, 0.5
}

// classMaskSamples has small pictures whose pixels have one of pixelClassCount classes. From none to three
// quarters of a sample's pixels are ignored, so that losses that depend on this differ between the
// shards of a batch.
type classMaskSamples struct{ count int }

func newClassMaskSamples() *train.Samples {
	return &train.Samples{OpenedData: data.OpenedData{Train: classMaskSamples{25}, Test: classMaskSamples{1}}}
}

// classMaskEdge is the height and width of a sample of classMasks.
const classMaskEdge = 16

func (m classMaskSamples) Len() int              { return m.count }
func (classMaskSamples) ImageShape() []int       { return []int{1, classMaskEdge, classMaskEdge} }
func (classMaskSamples) TargetShape() []int      { return []int{1, classMaskEdge, classMaskEdge} }
func (classMaskSamples) SampleName(i int) string { return fmt.Sprint("mask ", i) }

// Get sets the classes to bands whose position is random, and the image to the class with noise.
func (classMaskSamples) Get(i int, image, target []float32) error {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	shift := rng.IntN(classMaskEdge)
	for at := range image {
		x, y := at%classMaskEdge, at/classMaskEdge
		class := float32((x + y + shift) / 5 % pixelClassCount)
		image[at] = (class + rng.Float32()) / (pixelClassCount + 1)
		if target[at] = class; y < i%5*classMaskEdge*3/16 {
			target[at] = data.Ignored
		}
	}
	return nil
}
