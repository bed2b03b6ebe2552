// Package scaling compares runs of one training at several worker counts.
//
// A [Study] holds runs, read from folders of logs, and for each series (what
// is compared: a strategy, a framework) and each number of workers a [Point]:
// time per epoch, throughput, speed-up, efficiency, quality. What it is
// computed from is a [Rule] that can be seen and changed, and that stands on
// every table in words.
//
// Definitions, with N workers, t(N) the seconds per epoch and r(N) the
// throughput in samples per second of all workers together:
//
//   - speed-up S(N) = r(N)/r(B), where the baseline B is the fewest workers of
//     the series, one, or what the rule says. It holds for weak and for strong
//     scaling, which [Mode] tells apart. Logs that tell no sample counts, such
//     as those of the U-Net study, are taken to have the same samples in every
//     epoch: S(N) = t(B)/t(N); of logs that tell the time of the whole job alone
//     (bash's time in a Slurm job) it is the ratio of those. Study.Notes says
//     where.
//   - efficiency E(N) = S(N)·B/N; with Rule.Per "node" N and B are nodes.
//   - an interval is bootstrapped over repeated runs (seeds), of a ratio on both
//     sides independently ([Study.IntervalNote]); one run has none.
//
// What a study answers, each as a table with a sentence:
//
//	Compare, CompareSeries, CompareStudies   is A faster than B? effect, interval, test
//	Gate                                     is a change slower, beyond noise?
//	Fit, Collective                          which law, and what it predicts; α and β of the all-reduce
//	Cost, Budget                             device-hours, energy, Pareto front; how many workers for a budget
//	Explain                                  formula, runs, file and line behind a number
//	Bottleneck, Overhead                     input or computation; what communication costs
//	Breakdown, TimeUse, Stragglers           where a step's time goes; who keeps the others waiting
//	Quality, TimeTo, Curve                   what large batches do; time to a target; values over time
//	ScalingRule                              how the best learning rate grows with the batch, and up to which
//	Follow                                   the same, live
//
// Each of these results shows itself: Table is a DataFrame, String and HTML are
// for people, Write writes a table, CSV or JSON. The comment of its type names the
// columns. What is measured over repeated runs is an [Estimate], with its interval.
//
// This package reads the runs, makes the study and its tables, and declares every
// type that a notebook meets, so that %T and a look at the documentation show
// names that a cell can write. That is why it has somewhat more than 4,000 lines.
// What it computes with lies in internal packages, which take runs and numbers,
// not a Study: observe (what one run measured), stats (estimates and tests), law
// (fits), steptime (where a step's time goes), lrscaling (learning rate and
// batch), verdict (comparisons, the gate, fairness), curve (values over time) and
// grid (tables).
//
// Nothing is left out in silence: runs that failed are counted in their own
// column and named in Study.Problems, as are those whose loss is not a number;
// where runs of a series differ in what must be equal for a fair comparison
// (batch, data, model, samples of an epoch, threads), Study.Notes says so.
package scaling
