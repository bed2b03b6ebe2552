// Package preflight checks a cluster before a sweep is run on it. One task per node examines
// its node and the network, and Slurm or Local puts the findings of all nodes into a Report:
//
//	r, err := preflight.Slurm(ctx, "jsc-booster", preflight.Options{Account: "training2023"})
//	if err != nil {
//		return err // nothing was submitted, or the job was canceled
//	}
//	fmt.Print(r) // a table for each node, and each problem with the next step
//
// The tasks are processes of the lockstep command, which call RunNode. They join each other as
// the workers of a sweep do, by package rendezvous over TCP. They print their findings as lines of
// JSON, which Slurm collects, because a report must also arrive from nodes that cannot join.
//
// A check takes less than a minute, because each part has a time limit: 15 s for the node itself,
// 20 s for the rendezvous, and 12 s for the network.
package preflight
