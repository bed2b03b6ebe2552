package train

import (
	"context"

	"lockstep/pkg/data"
)

// Samples are the data of a config, divided into training samples and held-out samples.
type Samples struct{ data.Opened }

// OpenSamples opens the data of c; see data.Open.
func OpenSamples(ctx context.Context, c DataConfig) (Samples, error) {
	o, err := data.Open(ctx, c)
	return Samples{o}, err
}
