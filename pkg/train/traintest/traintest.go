// Package traintest provides a small training config for the tests of packages that use
// package train.
package traintest

import (
	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// Config returns a config that trains for 3 epochs of well under a second: a small U-Net
// on 17 training samples in batches of 2.
func Config() train.Config {
	c := train.DefaultConfig()
	c.Name = "tiny"
	c.Model = train.ModelConfig{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch"}
	c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages = 22, 16, 16, 5
	c.Data.Augment = data.Augment{Flip: true, Rotate: true}
	c.Batch = 2
	c.Epochs = 3
	return c
}
