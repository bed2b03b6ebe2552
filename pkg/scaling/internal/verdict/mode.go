package verdict

import (
	"math"

	"lockstep/pkg/scaling/internal/observe"
)

// Values of Mode.Scaling: what kind of scaling a series shows.
const (
	ScalingWeak    = "weak"
	ScalingStrong  = "strong"
	ScalingUnknown = "unknown"
)

// Values of Mode.Batch and Mode.Samples: what stays constant as the workers grow.
const (
	FixedPerWorker = "fixed per worker"
	FixedTotal     = "fixed"
	FixedNeither   = "varies"
	FixedUnknown   = "unknown"
)

// ScalingMode describes what stays constant as the number of workers of a series grows; see
// scaling.Mode.
type ScalingMode struct {
	Series  string
	Scaling string
	Batch   string
	Samples string
	Why     string
}

// scalingModeTable maps the fields Batch and Samples to Scaling and Why. The first entry that
// matches applies; an empty field matches every value. Samples matters only if the logs do not
// contain the batch.
var scalingModeTable = []ScalingMode{
	{Batch: FixedPerWorker, Samples: FixedTotal, Scaling: ScalingWeak, Why: "the batch per worker is fixed and the global batch grows with the workers (weak scaling); the data set is fixed, so an epoch takes fewer steps"},
	{Batch: FixedPerWorker, Scaling: ScalingWeak, Why: "the batch per worker is fixed and the global batch grows with the workers (weak scaling)"},
	{Batch: FixedTotal, Scaling: ScalingStrong, Why: "the global batch is fixed and divided among the workers (strong scaling)"},
	{Batch: FixedNeither, Scaling: ScalingUnknown, Why: "neither the batch per worker nor the global batch is fixed"},
	{Samples: FixedPerWorker, Scaling: ScalingWeak, Why: "the logs contain no batch size; the samples per epoch grow with the workers (weak scaling)"},
	{Samples: FixedTotal, Scaling: ScalingStrong, Why: "the logs contain no batch size; every epoch has the same number of samples (strong scaling of the epoch)"},
	{Samples: FixedNeither, Scaling: ScalingUnknown, Why: "the logs contain no batch size, and the samples per epoch are neither fixed nor proportional to the workers"},
	{Scaling: ScalingUnknown, Why: "the logs do not contain a batch size or sample counts for several worker counts"},
}

// DetermineScalingMode determines whether a series shows weak or strong scaling.
func DetermineScalingMode(g observe.Series) ScalingMode {
	var batch, samples []totalAtWorkerCount
	counts := map[int]bool{}
	for _, r := range g.Runs {
		if observe.HasFailed(r) {
			continue
		}
		n := r.Info.Workers
		counts[n] = true
		if _, global := observe.BatchSizes(r); global > 0 {
			batch = append(batch, totalAtWorkerCount{n, global})
		}
		if s := observe.SamplesPerEpoch(r); s > 0 {
			samples = append(samples, totalAtWorkerCount{n, s})
		}
	}
	m := ScalingMode{Series: g.Name, Scaling: ScalingUnknown, Batch: classifyWorkerDependence(batch, 0)}
	// Padding of the last batch makes the samples of an epoch differ a little.
	m.Samples = classifyWorkerDependence(samples, 0.1)
	if len(counts) < 2 {
		m.Why = "all of its runs have the same number of workers, so nothing scales"
		return m
	}
	for _, known := range scalingModeTable {
		if (known.Batch == "" || known.Batch == m.Batch) && (known.Samples == "" || known.Samples == m.Samples) {
			m.Scaling, m.Why = known.Scaling, known.Why
			break
		}
	}
	return m
}

type totalAtWorkerCount struct{ workers, total int }

// classifyWorkerDependence classifies a quantity by how it depends on the worker count. It returns
// FixedPerWorker or FixedTotal if the quantity is constant per worker or in total, FixedNeither if
// it is neither, and FixedUnknown for fewer than two worker counts. Values within the relative
// tolerance count as equal.
func classifyWorkerDependence(all []totalAtWorkerCount, tolerance float64) string {
	if len(all) == 0 {
		return FixedUnknown
	}
	least, most := math.Inf(1), 0.0
	leastEach, mostEach := math.Inf(1), 0.0
	counts := map[int]bool{}
	for _, x := range all {
		counts[x.workers] = true
		total, each := float64(x.total), float64(x.total)/float64(x.workers)
		least, most = min(least, total), max(most, total)
		leastEach, mostEach = min(leastEach, each), max(mostEach, each)
	}
	switch {
	case len(counts) < 2:
		return FixedUnknown
	case mostEach <= leastEach*(1+tolerance):
		return FixedPerWorker
	case most <= least*(1+tolerance):
		return FixedTotal
	}
	return FixedNeither
}
