package verify

import (
	"fmt"
	"math/rand/v2"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// pixelClassCount is the number of classes in the masks of classMaskSamples.
const pixelClassCount = 4

// setPixelClassModel sets the network of c to one for classMaskSamples, with class weights and soft Dice.
func setPixelClassModel(c *train.Config) {
	c.Model.Classes, c.Model.ClassWeights, c.Model.Dice = pixelClassCount, []float64{0.5, 2, 1, 3}, 0.5
}

// classMaskSamples is a data set of small pictures whose pixels have one of pixelClassCount classes.
// Between none and three quarters of a sample's pixels are ignored, so that the shards of a batch
// have different numbers of pixels that count.
type classMaskSamples struct{ count int }

func newClassMaskSamples() *train.Samples {
	return &train.Samples{OpenedData: data.OpenedData{Train: classMaskSamples{25}, Test: classMaskSamples{1}}}
}

// classMaskEdge is the height and width of a sample of classMaskSamples.
const classMaskEdge = 16

func (m classMaskSamples) Len() int              { return m.count }
func (classMaskSamples) ImageShape() []int       { return []int{1, classMaskEdge, classMaskEdge} }
func (classMaskSamples) TargetShape() []int      { return []int{1, classMaskEdge, classMaskEdge} }
func (classMaskSamples) SampleName(i int) string { return fmt.Sprint("mask ", i) }

// Get fills target with bands of classes at a random position, and image with the class index plus noise.
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
