// Package strategy contains the strategies by which N workers turn their batches into one
// update of the parameters. Kinds lists them, and a config chooses one by its name.
//
// A Strategy owns one whole update: it gets the executable, one batch of a step and the
// optimizer's update, and decides what the workers exchange and who applies the update. With
// DDP, every worker has all parameters; the gradients are averaged in buckets while the
// backward pass computes the next ones (Li et al., "PyTorch Distributed", VLDB 2020, section
// 3.2), and every executable applies the same update. With Horovod, a coordinator decides
// which gradients are averaged together. Local SGD averages parameters in place of gradients;
// with ZeRO stage 1 and with parameter servers, a worker updates the part of the parameters
// that it owns.
//
//	s, err := strategy.New(ctx, strategy.Config{Name: "zero1"}, nil, group)
//	defer s.Close()
//	err = s.Start(ctx, exe, nil) // equal initial parameters
//	timing, err := s.Step(ctx, exe, strategy.Step{Batch: 1, Batches: 1, Update: update})
package strategy
