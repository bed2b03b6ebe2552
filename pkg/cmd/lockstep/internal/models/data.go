package models

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/data"
	"lockstep/pkg/data/fetch"
)

func dataCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "data",
		Short: "Check images and masks, generate training data, or download public data sets",
	}
	c.AddCommand(dataMakeCommand(), dataCheckCommand(), dataGetCommand(), dataListCommand())
	return c
}

type dataMakeFlags struct {
	count, test         int
	height, width, edge int
	classes             int
	rgb                 bool
	sizes               []string
	seed                int64
	format              string
	chunk               int
	gzip                bool
}

type dataGenerator struct {
	name, does, formats string
	make                func(c *cobra.Command, dir string, f dataMakeFlags) (trains string, err error)
}

// dataGenerators returns all generators. The first of a generator's formats is the default.
func dataGenerators() []dataGenerator {
	return []dataGenerator{
		{"cells", "microscope images of cells and their masks (data kind pairs)", "png tiff", makeCellImages},
		{"cifar10", "images of ten shapes in the format of CIFAR-10 (data kind cifar10)", "bin", makeCIFAR10},
		{"folders", "images of ten shapes, one folder per class (data kind folders)", "png jpeg", makeImageFolders},
		{"fields", "volumes Nbody and Hydro with a relation to be learned (data kind volumes)", "hdf5 npy", makeFieldVolumes},
	}
}

func dataMakeCommand() *cobra.Command {
	var f dataMakeFlags
	var list strings.Builder
	for _, m := range dataGenerators() {
		fmt.Fprintf(&list, "  %-8s %s: %s\n", m.name, m.does, strings.Join(strings.Fields(m.formats), ", "))
	}
	c := &cobra.Command{
		Use:   "make KIND DIR",
		Short: "Generate training data in a folder from a seed",
		Long: `Generates data that a network can learn from; no network connection is needed. The
same seed gives the same files. Kinds of data, and the formats for --format:

` + list.String() + `
  lockstep data make cifar10 data/shapes --count 5000 --test 1000
  lockstep data make cells data/stained --classes 4 --rgb --sizes 128x128,160x200,96x96
  lockstep data make fields data/boxes --count 2 --edge 96 --chunk 32 --gzip`,
		Args: cli.ExactArgs(2, "name a kind and a folder, for example cifar10 data/shapes"),
		RunE: func(c *cobra.Command, args []string) error {
			var names []string
			for _, m := range dataGenerators() {
				if names = append(names, m.name); m.name != args[0] {
					continue
				}
				formats := strings.Fields(m.formats)
				f.format = cmp.Or(f.format, formats[0])
				if !strings.Contains(" "+m.formats+" ", " "+f.format+" ") {
					return cli.AsUsageError(fmt.Errorf("%s: unknown format %q: use --format %s", m.name, f.format, strings.Join(formats, " or ")))
				}
				if err := checkFolderIsEmpty(args[1]); err != nil {
					return err
				}
				trains, err := m.make(c, args[1], f)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "made %s in %s; in a config: %s\n", m.name, args[1], trains)
				return err
			}
			return cli.AsUsageError(fmt.Errorf("unknown kind %q: use %s", args[0], strings.Join(names, ", ")))
		},
	}
	flags := c.Flags()
	flags.IntVar(&f.count, "count", 0, "images or boxes to train on (default: 40 images of cells, 5000 images of shapes, 2 boxes)")
	flags.IntVar(&f.test, "test", 0, "held-out images of cifar10, or boxes of fields in DIR/test (default: a fifth of --count, 1 box)")
	flags.IntVar(&f.height, "height", 128, "height of images of cells in pixels")
	flags.IntVar(&f.width, "width", 128, "width of images of cells in pixels")
	flags.IntVar(&f.edge, "edge", 0, "edge of images in folders (default 32) or of boxes (default 64)")
	flags.IntVar(&f.classes, "classes", 0, "number of classes of images of shapes (default 10), or 2 to 4 levels in the masks of stained cells")
	flags.BoolVar(&f.rgb, "rgb", false, "make images of stained cells in color")
	flags.StringSliceVar(&f.sizes, "sizes", nil, "sizes of images of stained cells, which take turns, as HEIGHTxWIDTH (default: --height and --width)")
	flags.Int64Var(&f.seed, "seed", 1, "seed of the data")
	flags.StringVar(&f.format, "format", "", "format of the files (default: the first of the kind)")
	flags.IntVar(&f.chunk, "chunk", 0, "edge of a chunk in HDF5 files; 0: no chunks")
	flags.BoolVar(&f.gzip, "gzip", false, "compress the chunks of HDF5 files with gzip")
	return c
}

func dataCheckCommand() *cobra.Command {
	var asJSON bool
	var suffix string
	c := &cobra.Command{
		Use:   "check DIR",
		Short: "Show what the images and masks of a folder are, and the config that reads them",
		Long: `Reads every pixel of the images in DIR/image and the masks in DIR/label (or images and
masks), and shows their number, sizes, channels, bits and values, equal images, masks
with only one value, and the lines of a config that reads them.`,
		Args: cli.ExactArgs(1, "name the folder of the images and masks"),
		RunE: func(c *cobra.Command, args []string) error {
			k, err := data.CheckPairs(c.Context(), args[0], suffix)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), "  ", k)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), k)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&suffix, "mask-suffix", "", "what the names of masks have at their end, such as _mask, if images and masks are in one folder")
	return c
}

// checkFolderIsEmpty returns an error if dir contains files, which could be overwritten by generated
// data or mixed with them.
func checkFolderIsEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("make data: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("make data: folder %s is not empty (it contains %s): use a new folder, or remove this one", dir, entries[0].Name())
	}
	return nil
}

// makeCellImages generates images of cells. Like the other generators, it returns the setting with which a
// config uses the data.
func makeCellImages(c *cobra.Command, dir string, f dataMakeFlags) (string, error) {
	if f.classes != 0 || f.rgb || f.sizes != nil {
		return makeStainedCells(c, dir, f)
	}
	config := data.CellsOptions{Count: cmp.Or(f.count, 40), Height: f.height, Width: f.width, Seed: f.seed}
	trains := fmt.Sprintf("data: {kind: pairs, path: %s, test_images: %d}", dir, max(1, config.Count/5))
	if err := config.Validate(); err != nil {
		return "", cli.AsUsageError(err)
	}
	if f.format == "png" {
		return trains, data.WriteCells(c.Context(), dir, config)
	}
	cells, err := data.Cells(c.Context(), config)
	if err != nil {
		return "", err
	}
	return trains, data.WriteTIFF(c.Context(), dir, cells)
}

// makeStainedCells generates images of stained cells; see data.WriteCellClasses.
func makeStainedCells(c *cobra.Command, dir string, f dataMakeFlags) (string, error) {
	config := data.CellClassesOptions{Count: cmp.Or(f.count, 40), Classes: f.classes, RGB: f.rgb, Seed: f.seed}
	edge := math.MaxInt // of the smallest image
	if f.sizes == nil {
		f.sizes = []string{fmt.Sprintf("%dx%d", f.height, f.width)}
	} else if c.Flags().Changed("height") || c.Flags().Changed("width") {
		return "", cli.AsUsageError(errors.New("--sizes replaces --height and --width: use one or the other"))
	}
	for _, s := range f.sizes {
		var size [2]int
		if n, err := fmt.Sscanf(s, "%dx%d", &size[0], &size[1]); err != nil || n != 2 || fmt.Sprintf("%dx%d", size[0], size[1]) != s {
			return "", cli.AsUsageError(fmt.Errorf("invalid --sizes %q: use heights and widths in pixels, such as 128x128,160x200", s))
		}
		config.Sizes = append(config.Sizes, size)
		edge = min(edge, size[0], size[1])
	}
	if err := config.Validate(); err != nil {
		return "", cli.AsUsageError(err)
	}
	if f.format != "png" {
		return "", cli.AsUsageError(fmt.Errorf("--format %s is not supported with --classes, --rgb and --sizes: use --format png", f.format))
	}
	trains := fmt.Sprintf("data: {kind: pairs, path: %s, test_images: %d", dir, max(1, config.Count/5))
	if len(slices.Compact(slices.Clone(config.Sizes))) > 1 {
		trains += fmt.Sprintf(", tile: %d", edge/8*8) // a multiple of 8, as U-Nets of depth 3 need it
	}
	if values := config.MaskValues(); values != nil {
		var names []string
		for _, level := range slices.Sorted(maps.Keys(values)) {
			names = append(names, fmt.Sprintf("%d: %s", level, values[level]))
		}
		trains += ", mask_values: {" + strings.Join(names, ", ") + "}"
	}
	return trains + "}", data.WriteCellClasses(c.Context(), dir, config)
}

func makeCIFAR10(c *cobra.Command, dir string, f dataMakeFlags) (string, error) {
	if f.edge != 0 && f.edge != 32 {
		return "", cli.AsUsageError(fmt.Errorf("invalid --edge %d: images of CIFAR-10 are 32×32; the kind folders supports any edge", f.edge))
	}
	count := cmp.Or(f.count, 5000)
	train := data.ShapesOptions{Count: count, Classes: f.classes, Seed: f.seed}
	test := data.ShapesOptions{Count: cmp.Or(f.test, max(1, count/5)), Classes: f.classes, Seed: f.seed + 1}
	var sets [2]*data.Classes
	for i, config := range []data.ShapesOptions{train, test} {
		if err := config.Validate(); err != nil {
			return "", cli.AsUsageError(err)
		}
		var err error
		if sets[i], err = data.Shapes(c.Context(), config); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("data: {kind: cifar10, path: %s, test_images: 0}", dir), data.WriteCIFAR10(c.Context(), dir, sets[0], sets[1])
}

func makeImageFolders(c *cobra.Command, dir string, f dataMakeFlags) (string, error) {
	config := data.ShapesOptions{Count: cmp.Or(f.count, 5000), Classes: f.classes, Edge: f.edge, Seed: f.seed}
	if err := config.Validate(); err != nil {
		return "", cli.AsUsageError(err)
	}
	shapes, err := data.Shapes(c.Context(), config)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("data: {kind: folders, path: %s, test_images: %d}", dir, max(1, config.Count/5)), data.WriteFolders(c.Context(), dir, shapes, f.format)
}

func makeFieldVolumes(c *cobra.Command, dir string, f dataMakeFlags) (string, error) {
	format := data.VolumeFormat{NPY: f.format == "npy", Chunk: f.chunk, Gzip: f.gzip}
	if format.NPY && (f.chunk != 0 || f.gzip) {
		return "", cli.AsUsageError(fmt.Errorf("--chunk and --gzip are only for HDF5 files: omit them with --format npy"))
	}
	if f.gzip && f.chunk == 0 {
		return "", cli.AsUsageError(fmt.Errorf("--gzip compresses chunks: set --chunk too, for example to 32"))
	}
	test := filepath.Join(dir, "test")
	for i, part := range []string{dir, test} {
		config := data.FieldsOptions{Count: cmp.Or(f.count, 2), Edge: cmp.Or(f.edge, 64), Seed: f.seed}
		if i == 1 {
			config.Count, config.Seed = cmp.Or(f.test, 1), f.seed+1
		}
		if err := config.Validate(); err != nil {
			return "", cli.AsUsageError(err)
		}
		fields, err := data.Fields(c.Context(), config)
		if err != nil {
			return "", err
		}
		if err := data.WriteVolumes(c.Context(), part, fields, format); err != nil {
			return "", err
		}
	}
	crop := 1 // a power of 2, as U-Nets need it
	for 4*crop <= cmp.Or(f.edge, 64) {
		crop *= 2
	}
	return fmt.Sprintf("data: {kind: volumes, path: %s, test_path: %s, test_images: 0, samples: 64, test_samples: 8, augment: {crop: %d, rotate: true}}", dir, test, crop), nil
}

func dataGetCommand() *cobra.Command {
	var o fetch.Options
	c := &cobra.Command{
		Use:   "get NAME [DIR]",
		Short: "Download a public data set, check it and unpack it",
		Long: `Downloads a public data set into DIR (default: data/NAME), verifies its checksum
and unpacks it. The same command resumes an interrupted download. "lockstep data
list" shows the data sets and their sources.

  lockstep data get cifar10`,
		Args: cobra.MatchAll(cobra.MinimumNArgs(1), cobra.MaximumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			set, err := fetch.Lookup(args[0])
			if err != nil {
				return cli.AsUsageError(err)
			}
			dir := filepath.Join("data", set.Name)
			if len(args) == 2 {
				dir = args[1]
			}
			o.Progress = newProgressPrinter(c.ErrOrStderr())
			if err := fetch.Get(c.Context(), set, dir, o); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is in %s; in a config: data: {kind: %s, path: %s}\n", set.Title, dir, set.Kind, dir)
			return err
		},
	}
	c.Flags().StringVar(&o.Site, "site", os.Getenv("LOCKSTEP_DATA_SITE"), "URL of a mirror, instead of the data sets' hosts (default: $LOCKSTEP_DATA_SITE)")
	c.Flags().IntVar(&o.Retries, "retries", 3, "how often to resume a broken download immediately")
	return c
}

// newProgressPrinter returns a function that writes a line after each tenth of a file.
func newProgressPrinter(w io.Writer) func(file string, done, total int64) {
	said, name := int64(0), ""
	return func(file string, done, total int64) {
		if file != name {
			said, name = 0, file
		}
		if total <= 0 || done*10/total <= said {
			return
		}
		said = done * 10 / total
		_, _ = fmt.Fprintf(w, "%s: %d of %d MB\n", file, done>>20, total>>20)
	}
}

func dataListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the public data sets: files, checksums and sources",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "name\twhat it is\tdata kind\tfile\tMD5\tsource")
			for _, s := range fetch.Sets() {
				files := s.Files
				if s.Record != "" {
					files = []fetch.File{{Name: "record " + s.Record, MD5: "from the record"}}
				}
				for _, f := range files {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Title, s.Kind, f.Name, f.MD5, s.Source)
				}
			}
			return w.Flush()
		},
	}
}
