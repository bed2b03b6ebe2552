// Package verify proves what Lockstep claims. DP proves the invariant of data
// parallelism: N workers compute what one worker computes with an N-fold batch. Run
// recomputes what a run folder claims.
//
// A proof is a list of Checks, each with the number found and its limit. That a check
// can fail is shown too: DP also trains with faults, such as a sum of gradients in place
// of their mean, and checks that the comparison notices each.
//
//	checks, err := verify.DP(ctx, verify.DPOptions{Workers: 2})
//	for _, c := range checks {
//		fmt.Println(c)
//	}
package verify
