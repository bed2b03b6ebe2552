// Package strategy combines the gradients of N workers into one update.
//
// DDP is data parallelism with replicated parameters: every worker has all
// parameters and computes the gradients of its batch. Every optimizer uses the mean over
// the workers, so that the replicas stay equal. Gradients are sent
// in buckets while backward still computes the next ones (Li et al.,
// "PyTorch Distributed", VLDB 2020, section 3.2). Synchronized batch norms also exchange
// their statistics through DDP, in the same queue as the buckets, so that all ranks
// always take part in the same operation.
//
//	sync := strategy.NewDDP(ctx, group)
//	defer sync.Close()
//	err := strategy.BroadcastState(ctx, exe, group) // equal parameters to begin with
//	timing, err := exe.Step(ctx, sync, &update)
package strategy
