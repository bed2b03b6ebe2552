// Package strategy is how the gradients of N workers become one update.
//
// DDP is data parallelism with replicated parameters: every worker holds all
// of them, computes the gradients of its own batch, and the mean over workers
// is what every optimiser sees, so that the replicas stay equal. Gradients go
// out in buckets while backward still computes the next ones (Li et al.,
// "PyTorch Distributed", VLDB 2020, section 3.2). Synchronised batch norms exchange
// their statistics through it too, in turn with the buckets, so that ranks always
// meet in the same operation.
//
//	sync := strategy.NewDDP(ctx, group)
//	defer sync.Close()
//	err := strategy.BroadcastState(ctx, exe, group) // equal parameters to begin with
//	timing, err := exe.Step(ctx, sync, &update)
package strategy
