package tune

import (
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// TestMain demands that the goroutines of loaders, engines and trainers end.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is a config of 17 training samples.
func tiny() train.Config {
	c := train.DefaultConfig()
	c.Name = "tiny"
	c.Model = train.ModelConfig{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch"}
	c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages = 22, 32, 32, 5
	c.Data.Augment = data.Augment{Flip: true, Rotate: true}
	c.Batch = 2
	return c
}
