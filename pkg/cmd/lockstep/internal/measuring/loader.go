package measuring

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
)

func benchLoaderCommand() *cobra.Command {
	var o bench.LoaderOptions
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "loader",
		Short: "Compare reading images and crops of volumes with Pillow and h5py",
		Long: `Reads and decodes PNG, JPEG and CIFAR-10 images with Lockstep and with Pillow, and
random crops of volumes in HDF5 and .npy files with Lockstep and with h5py and NumPy,
alternating and with one thread each. Then it compares orders of the loader's stages
(cache, map, batch, …) with the default order. All files are generated from a seed in
the folder for temporary files.

  lockstep bench loader --json
  lockstep bench loader --box 0 --workers 0 -v`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(c, &o, &o.Output, out, bench.MeasureLoader)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Pictures, "pictures", 100, "images of each kind")
	f.IntVar(&o.Edge, "edge", 400, "edge of an image in pixels")
	f.IntVar(&o.Box, "box", 160, "edge of the box that crops are taken from; 0: not measured")
	f.IntVar(&o.Crop, "crop", 64, "edge of a crop")
	f.IntVar(&o.Crops, "crops", 10, "crops per repeat")
	f.IntVar(&o.Workers, "workers", 2, "goroutines of the loader for the comparison of orders; 0: not compared")
	f.IntVar(&o.Repeats, "repeats", 5, "repeats of each measurement")
	addPeerFlags(f, &o.Peer, "Pillow and h5py", "them")
	out.addFlags(f)
	return c
}
