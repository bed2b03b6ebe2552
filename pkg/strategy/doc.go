// Package strategy contains the strategies by which N workers combine their gradients into
// one update. All lists them, and a config chooses one by its name.
//
// DDP is data parallelism with replicated parameters: every worker has all parameters and
// computes the gradients of its batch. Every worker's optimizer uses the mean gradient over
// the workers, so the replicas stay equal. Gradients are sent in buckets while the backward
// pass computes the next ones (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2).
// Synchronized batch norms also exchange their statistics through DDP.
//
//	sync, err := strategy.New(ctx, "ddp", engine, group)
//	defer sync.Close()
//	err = strategy.BroadcastState(ctx, exe, group) // equal initial parameters
//	timing, err := exe.Step(ctx, sync, &update)
package strategy
