package trainer

import (
	"math"

	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// Some programs under srun -l write one line per rank and epoch:
//
//	0: 2018-10-07 20:36:09,348 INFO Train samples 32768 time 1442.17s rate 22.7212 samples/s
//
// Samples and rate are those of one rank and are summed for the run; the time of an epoch is the
// slowest rank's. The n-th line of a rank describes epoch n.

// Rates returns the format of lines with the rate of each rank.
func Rates() logline.Format {
	return logline.Format{Name: "rates by rank", Rules: []logline.Rule{
		{Templates: []string{"Train samples {samples} time {seconds}s rate {samples_per_second} samples/s"}, Use: addRateEpoch, EndsWithValue: true},
	}}
}

// addRateEpoch adds an epoch to the line's rank: samples, seconds and samples per second.
func addRateEpoch(log *logline.Log, v []template.Value) logline.Result {
	samples, seconds, rate := int(v[0].Number), v[1].Number, v[2].Number
	if log.Current.Program != logline.Rates && log.LastEpoch() != nil { // the epochs of other lines
		log.BeginRun()
	}
	run := log.CountLine(logline.Rates)
	run.SumRates = true
	n := 1
	if last := log.LastEpoch(); last != nil {
		n = last.Epoch + 1
	}
	e := log.FindOrAddEpoch(n, 0)
	e.Seconds, e.SamplesPerSecond, e.Samples = log.EpochSecondsOrNaN(seconds), rate, samples
	if off := math.Abs(float64(samples)/seconds - rate); off > 0.01*rate {
		log.AddProblem("got %d samples in %g s but %g samples/s; both are kept as logged", samples, seconds, rate)
	}
	return logline.Used
}
