// Package scaling analyzes repeated training runs at several worker counts.
//
// A [Study] contains runs that were read from folders of logs. It has one [Point] for
// each series (what is compared: a strategy or a framework) and worker count: time per
// epoch, throughput, speed-up, efficiency and quality. A [Rule] determines which
// measurements count. It can be read and changed, and every table states it in words.
//
// Definitions, with N workers, t(N) the seconds per epoch and r(N) the throughput of
// all workers together in samples per second:
//
//   - speed-up S(N) = r(N)/r(B). The baseline B is the fewest workers of the series, one
//     worker, or the count that the rule gives. The definition is valid for weak and for
//     strong scaling; [Mode] distinguishes the two. If the logs have no sample counts, as in
//     the U-Net study, every epoch is assumed to have the same samples: S(N) = t(B)/t(N).
//     Samples that repeat others to fill a batch or a shard (padding) do not count.
//     If the logs have only the time of the whole job (bash's time in a Slurm job), S(N) is
//     the ratio of these times, unless the jobs trained different numbers of epochs.
//     Study.Notes names the series to which this applies.
//   - efficiency E(N) = S(N)·B/N. With Rule.Per "node", N and B are nodes.
//   - a confidence interval is bootstrapped over repeated runs (seeds). For a ratio, the
//     numerator and the denominator are resampled independently ([Study.IntervalNote]).
//     A single run has no interval.
//
// The analyses of a study. Each returns a table and a sentence:
//
//	Compare, CompareSeries, CompareStudies   is A faster than B? effect, interval, test
//	Gate                                     is a change slower, beyond noise?
//	Fit, Collective                          fitted scaling law and its predictions; α and β of the all-reduce
//	Cost, Budget                             device-hours, energy, Pareto front; workers for a budget
//	Explain                                  formula, runs, file and line of the inputs of a number
//	Bottleneck, Overhead                     input or computation; cost of communication
//	Breakdown, TimeUse, Stragglers           parts of a step's time; ranks that delay the others
//	Quality, Classes                         effect of large batches; scores of each class of a segmentation
//	TimeTo, Curve                            time to a target; values over time
//	ScalingRule                              growth of the best learning rate with the batch, and its limit
//	Follow                                   the same analyses while runs are in progress
//
// Every result can be displayed: Table returns a DataFrame, String and HTML format it
// for people, and Write writes a table, CSV or JSON. The comment of its type names the
// columns. A quantity that is measured over repeated runs is an [Estimate], with its
// interval.
//
// This package declares every type that a notebook uses, so that %T and the documentation show names
// that a notebook can import. That is why it has about 5,500 lines in 29 files. The computations are in
// internal packages, which take runs and numbers instead of a Study: observe (measurements of one run),
// stats (estimates and tests), law (fits), steptime (parts of a step's time), lrscaling (learning rate
// and batch), verdict (comparisons, the gate, fairness), curve (values over time) and grid (tables).
//
// Nothing is dropped silently. Failed runs are counted in a separate column and listed
// in Study.Problems, as are runs whose loss is not finite. If the runs of a series
// differ in something that must be equal for a fair comparison (batch, data, model,
// samples per epoch, threads), Study.Notes names the difference.
package scaling
