package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/predict"
)

func exportCommand() *cobra.Command {
	var o predict.ExportOptions
	c := &cobra.Command{
		Use:   "export RUN OUT --to " + strings.Join(predict.ExportFormats(), "|"),
		Short: "Write the network of a run for PyTorch or ONNX, for use without Lockstep",
		Long: `Writes the network of a run folder, with the weights of the checkpoint that run.json has
the scores of, or with its averaged parameters (ema.decay).

  pytorch   OUT is a folder: model.safetensors has the weights, model.py the module (unet2d
            and resnet), and functions that read an image as in training (gray, RGB, or 16
            bits with data.range) and predict it as lockstep predict does, with the same
            masks. It needs torch, numpy and Pillow.
  onnx      OUT is a file (opset 17) with the input image [n,channels,height,width], for any
            n, height and width, and the output logits. Batch norms are folded into
            convolutions. The file's documentation says which values an image has, and
            lists the classes and their values in masks.

A layer that the format lacks is an error that names it.

  lockstep model export em-membrane/ddp-n2-s1 exported --to pytorch
  python3 exported/model.py new/1.png new/2.png --out masks
  lockstep model export em-membrane/ddp-n2-s1 membrane.onnx --to onnx`,
		Args: cli.ExactArgs(2, "name a run folder, for example unet2d-cells/ddp-n2-s1, and the output"),
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(predict.ExportFormats(), o.To) {
				return cli.AsUsageError(fmt.Errorf("invalid --to %q: use %s", o.To, english.JoinOr(predict.ExportFormats())))
			}
			cli.PrintReadPaths(c, args[0])
			e, err := predict.Export(c.Context(), args[0], args[1], o)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s\nwritten to %s\n", strings.Join(e.About, "\n"), english.JoinAnd(e.Files))
			return err
		},
	}
	c.Flags().StringVar(&o.To, "to", "", "format: "+english.JoinOr(predict.ExportFormats()))
	c.Flags().BoolVar(&o.Averages, "averages", false, "write the averaged parameters instead of the trained ones")
	return c
}
