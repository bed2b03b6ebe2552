// Package scaling compares runs of one training at several worker counts.
//
// A [Study] holds runs, read from folders of logs, and for each series (what
// is compared: a strategy, a framework) and each number of workers a [Point]:
// time per epoch, throughput, speed-up, efficiency and quality. What it is
// computed from is a [Rule] that can be seen and changed.
//
// Definitions, with N workers, t(N) the seconds per epoch and r(N) the
// throughput in samples per second of all workers together:
//
//   - speed-up S(N) = r(N)/r(B), where the baseline B is the fewest workers of
//     the series. It holds for weak scaling (a fixed batch per worker, as in
//     our own runs) and for strong scaling. Logs that tell no sample counts,
//     such as those of the U-Net study, are taken for strong scaling, the same
//     samples in every epoch: S(N) = t(B)/t(N). Study.Notes says where.
//   - efficiency E(N) = S(N)·B/N.
//
// Study.Breakdown says where the time of a step goes, from the spans that
// every rank wrote: what of the communication is exposed (a rank waits for
// it), and what is hidden behind the backward pass.
//
// Nothing is left out in silence: runs that failed are counted in their own
// column and named in Study.Problems; where runs of a series differ in what
// must be equal for a fair comparison (threads, batch per worker, data,
// model), Study.Notes says so.
package scaling
