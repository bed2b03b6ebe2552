package models

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/notebook"
	"lockstep/pkg/predict"
	"lockstep/pkg/train"
)

func predictCommand() *cobra.Command {
	var o predict.FileOptions
	var flips, heldOut bool
	var memory string
	c := &cobra.Command{
		Use:   "predict RUN FILE|DIR… --out DIR",
		Short: "Apply a run's network to new images: masks, probabilities, overlays, objects",
		Long: `Applies the network in the newest checkpoint of a run folder to images (PNG, JPEG or
TIFF; DIR means all images in it) of any size. No labels and no data of the run are
needed. It writes, for an image NAME.png,

  DIR/masks/NAME.png           the values of the run's masks: those of data.mask_values, or
                               255 in the foreground and 0 in the background (the other
                               way round with data.foreground black)
  DIR/probabilities/NAME.png   probability of the foreground, 0 to 65535; with more than
                               two classes, DIR/probabilities/CLASS/NAME.png for each
  DIR/overlays/NAME.png        the image with the predicted classes in colors
  DIR/objects.csv              class, area and center of each connected part of a class
                               (pixels that touch at a side or a corner; columns and rows
                               from 0)

or, for a run that learned classification, DIR/probabilities.csv.

The image is predicted as a whole, or, if --memory does not suffice, in windows that
overlap so far (48 pixels for a U-Net of depth 3) that the result is the same. Training
prints the scores of tiles without overlap, which are lower: --held-out prints both.

  lockstep predict em-membrane/ddp-n2-s1 new/ --out predicted
  lockstep predict em-membrane/ddp-n2-s1 new/1.png new/2.tif --out predicted --flips --format png,npy
  lockstep predict em-membrane/ddp-n2-s1 --held-out
  lockstep predict em-membrane/ddp-n2-s1 test/image --score test/label`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.AsUsageError(errors.New("name a run folder and images, for example unet2d-cells/ddp-n2-s1 new/"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			files, err := listImages(args[1:])
			switch {
			case err != nil:
				return cli.AsUsageError(err)
			case len(files) == 0 && !heldOut:
				return cli.AsUsageError(errors.New("name the images, or a folder of images, or use --held-out to score the run's held-out images"))
			case len(files) > 0 && o.Out == "" && o.Labels == "":
				return cli.AsUsageError(errors.New("--out is missing: name a folder for the predictions"))
			}
			limit := uint64(predict.DefaultMemoryBytes)
			if memory != "" {
				if limit, err = humanize.ParseBytes(memory); err != nil || limit < 1 || limit > math.MaxInt64 {
					return cli.AsUsageError(fmt.Errorf("invalid size %q: use a number with KiB, MiB, GiB, MB or GB, such as 500MB", memory))
				}
			}
			cli.PrintReadPaths(c, args[0])
			p, err := predict.Open(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			p.Flips, p.MemoryBytes = flips, int64(limit)
			if p.Note != "" {
				fmt.Fprintln(c.ErrOrStderr(), "lockstep:", p.Note)
			}
			if heldOut {
				s, err := p.HeldOut(c.Context())
				if err != nil {
					return err
				}
				if err := printHeldOutScores(c.OutOrStdout(), p, s); err != nil {
					return err
				}
			}
			if len(files) == 0 {
				return nil
			}
			return predictFiles(c, p, files, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Out, "out", "", "folder for the predictions")
	f.StringSliceVar(&o.Formats, "format", nil, "formats of masks and probabilities: "+strings.Join(predict.Formats(), ", ")+" (default: png)")
	f.BoolVar(&flips, "flips", false, "average over the image and its three mirror images, which takes four times as long")
	f.StringVar(&memory, "memory", "", "memory for the network's values, such as 500MB (default: 1GiB)")
	f.BoolVar(&heldOut, "held-out", false, "score the run's held-out images, as trained and as whole images")
	f.StringVar(&o.Labels, "score", "", "folder of labels of the images, named as these: print the scores")
	return c
}

// listImages returns paths with each folder replaced by the images in it.
func listImages(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		list, err := survey.ListPictures(path)
		if err != nil {
			return nil, err
		}
		files = append(files, list...)
	}
	return files, nil
}

// predictFiles predicts files and prints the paths of the results and their scores.
func predictFiles(c *cobra.Command, p *predict.Predictor, files []string, o predict.FileOptions) error {
	bar := notebook.NewProgress("predict", len(files))
	o.Progress = func(image, window, windows int) {
		note := filepath.Base(files[image])
		if windows > 1 {
			note += fmt.Sprintf(", window %d of %d", window, windows)
		}
		bar.Set(image, note)
	}
	s, err := p.Files(c.Context(), files, o)
	if err != nil {
		bar.Done("failed")
		return err
	}
	bar.Set(len(files), "")
	bar.Done("")
	w := c.OutOrStdout()
	if o.Out != "" {
		fmt.Fprintf(w, "predicted %s with %s: %s\n", english.FormatCount(len(files), "image"), filepath.Join(p.Run, p.Checkpoint), o.Out)
	}
	if o.Labels != "" {
		return printScores(w, scoreRows(p, fmt.Sprintf("whole images (%d)", s.Samples), s))
	}
	return nil
}

func printHeldOutScores(w io.Writer, p *predict.Predictor, s predict.HeldOutScores) error {
	name := fmt.Sprintf("as trained (%d images)", s.AsTrained.Samples)
	if s.Tile > 0 {
		name = fmt.Sprintf("as trained (%d tiles of %d×%d)", s.AsTrained.Samples, s.Tile, s.Tile)
	}
	whole := fmt.Sprintf("whole images (%d)", s.Whole.Samples)
	return printScores(w, append(scoreRows(p, name, s.AsTrained), scoreRows(p, whole, s.Whole)...))
}

// scoreRows formats scores with all digits, as in run.json: the means and, for more than two classes, each
// class. A class in no mask gets "-".
func scoreRows(p *predict.Predictor, name string, s train.Scores) [][]string {
	number := func(v float64) string {
		if math.IsNaN(v) {
			return "-"
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	rows := [][]string{{name, number(s.IoU()), number(s.Dice())}}
	if s.Classes == nil {
		return rows
	}
	rows[0][0] += ", mean"
	for k, class := range p.ClassNames() {
		iou, dice := s.Classes.ClassScores(k)
		rows = append(rows, []string{"  " + class, number(iou), number(dice)})
	}
	return rows
}

func printScores(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{{"scores", "IoU", "Dice"}}, rows...) {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}
