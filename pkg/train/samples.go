package train

import (
	"context"

	"lockstep/pkg/data"
)

// Samples is a config's data, split and cut: what is trained on, and what is
// held out.
type Samples struct{ data.Opened }

// OpenSamples opens the data of c; see data.Open.
func OpenSamples(ctx context.Context, c DataConfig) (Samples, error) {
	o, err := data.Open(ctx, c)
	return Samples{o}, err
}
