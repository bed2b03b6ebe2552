// Package tune measures a training config to find better settings: MeasureLoader finds the
// fastest settings of the data loader, and FindLargestBatch the largest batch that fits in
// memory. RunTrials measures the throughput of loading alone, of training alone, and of
// both together.
//
// All measurements use the config's own data, and the loader and the trainer of a real
// run (packages data and train). No files are written.
//
//	cfg, err := train.Named("unet2d-cells")
//	tuning, err := tune.MeasureLoader(ctx, cfg, tune.LoaderOptions{Budget: 10 * time.Second})
//	fmt.Println(tuning.Sentence())
//	cfg.Loader = tuning.AdvisedSetting()
package tune
