// Package tune finds the best setting of a training run by measuring it: the loader's
// setting (Loader) and the largest batch that memory takes (LargestBatch). RunTrials
// measures the loader alone, the training alone, and both.
//
// Everything is measured on the config's own data with the code that a run uses: the
// loader and the trainer are those of packages data and train. Nothing is written.
//
//	cfg, err := train.Named("unet2d-cells")
//	tuning, err := tune.Loader(ctx, cfg, tune.LoaderOptions{Budget: 10 * time.Second})
//	fmt.Println(tuning.Sentence())
//	cfg.Loader = tuning.Advised()
package tune
