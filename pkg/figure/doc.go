// Package figure draws a [scaling.Study].
//
// Each constructor validates its input and returns a [Figure], or an error
// that says what is missing. A notebook shows a figure that is the value of a
// cell's last line by itself; Save writes it to a file. The numbers that are
// drawn are in Table, and are the same as those of `lockstep scaling`.
//
// Axes carry their units. Colours are those of Okabe and Ito, and every series
// also has its own glyph and dash, so that figures can be read with any colour
// vision and in print.
package figure

import (
	"errors"

	"lockstep/pkg/scaling"
)

// All makes every figure that the study has numbers for. Those it has none for
// (a throughput without sample counts, an IoU of another task) are left out;
// it is an error only if none can be drawn.
func All(study *scaling.Study) ([]*Figure, error) {
	var figures []*Figure
	var failed error
	for _, draw := range []func(*scaling.Study) (*Figure, error){
		EpochTime, Throughput, Speedup, IoU, LossByEpoch, LossByTime,
	} {
		f, err := draw(study)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		figures = append(figures, f)
	}
	if len(figures) == 0 {
		return nil, failed
	}
	return figures, nil
}
