// Package verify checks that Lockstep computes correctly. DataParallelism checks the invariant of data
// parallelism: training with N workers gives the same parameters as training with one
// worker and an N-fold batch. Run recomputes the results in a run folder.
//
// Both return a list of Checks, each with the measured number and its limit. To show that
// these checks can fail, DataParallelism also trains with deliberate faults, such as
// summing gradients instead of averaging them, and checks that the comparison detects
// each fault.
//
//	checks, err := verify.DataParallelism(ctx, verify.DPOptions{Workers: 2})
//	for _, c := range checks {
//		fmt.Println(c)
//	}
package verify
