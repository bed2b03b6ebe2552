package train

import (
	"context"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
)

// maxNetworkSide limits the size of the images that Config.Network tries, in pixels.
const maxNetworkSide = 1 << 12

// Network returns the network of c for the samples of c's data, of which it reads only the outline.
// If the data are pictures that cannot be read, it assumes the smallest square ones that the
// network accepts: the weights of most networks do not depend on their size.
func (c Config) Network(ctx context.Context) (model.Network, error) {
	c, err := c.ForData()
	if err != nil {
		return nil, err
	}
	outline, err := data.Outline(ctx, c.Data)
	if err == nil {
		var net model.Network
		if net, err = c.Model.Network(outline.Train.ImageShape(), outline.Train.TargetShape()); err == nil {
			return net, nil
		}
	}
	channels := max(1, c.Data.InputChannels)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case c.Model.Spec != nil:
		return c.Model.Spec.Network(nil, nil)
	case c.Data.Task() == data.TaskClassification:
		channels = 3
	case c.Data.Task() == data.TaskRegression || c.Data.Kind == data.KindStacks:
		return nil, err
	}
	for side := 1; side <= maxNetworkSide; side *= 2 {
		target := []int{1, side, side}
		if c.Data.Task() == data.TaskClassification {
			target = []int{1}
		}
		if net, last := c.Model.Network([]int{channels, side, side}, target); last == nil {
			return net, nil
		}
	}
	return nil, err
}
