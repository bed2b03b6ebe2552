package train

import (
	"lockstep/pkg/data"
)

// Samples is a config's data, split and cut: what is trained on, and what is
// held out.
type Samples struct{ data.Opened }

// OpenSamples opens the data of c; see data.Open.
func OpenSamples(c DataConfig) (Samples, error) {
	o, err := data.Open(c)
	return Samples{o}, err
}
