package main

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
)

func benchLoaderCommand() *cobra.Command {
	var o bench.LoaderOptions
	var out benchOutput
	c := &cobra.Command{
		Use:   "loader",
		Short: "Reading pictures and crops of volumes beside Pillow and h5py",
		Long: `Reads and decodes PNG, JPEG and CIFAR-10 pictures here and with Pillow, and random
crops of volumes in HDF5 and .npy files here and with h5py and NumPy, in turns
and on one thread each. Then it compares orders of the loader's stages (cache,
map, batch, …) with the default. All files are made from a seed, in the folder
for temporary files.

  lockstep bench loader --json
  lockstep bench loader --box 0 --workers 0 -v`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.LoaderRuns(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Pictures, "pictures", 100, "of each kind")
	f.IntVar(&o.Edge, "edge", 400, "of a picture, in pixels")
	f.IntVar(&o.Box, "box", 160, "edge of the box that crops are cut from; 0: not measured")
	f.IntVar(&o.Crop, "crop", 64, "edge of a crop")
	f.IntVar(&o.Crops, "crops", 10, "in each repeat")
	f.IntVar(&o.Workers, "workers", 2, "goroutines of the loader whose orders are compared; 0: they are not")
	f.IntVar(&o.Repeats, "repeats", 5, "of each measurement")
	f.StringVar(&o.Peer.Scripts, "peers", "", "folder of the peers' scripts (default: environment/peers of the checkout)")
	f.StringVar(&o.Peer.Python, "python", "", "interpreter that has Pillow and h5py (default: the first python3 that has)")
	out.flags(f)
	return c
}
