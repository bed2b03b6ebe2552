package main

import (
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/bench/gpu"
)

func gpuPlanCommand() *cobra.Command {
	var o gpu.PlanOptions
	var asJSON, layers bool
	c := &cobra.Command{
		Use:   "plan",
		Short: "What a step's kernels must read, write and multiply, without a GPU",
		Long: `Lowers a network for a GPU as gpu bench does, and counts the operations and bytes
of its own kernels in a training step with Adam: nothing fused, fused, and in fp16
with convolutions that apply the batch norm in front of them. What that takes at
least is said for ceilings that are assumed; nothing is measured, and no GPU is
needed. A graph that cuDNN turns out not to have costs more than it says.

  lockstep gpu plan --model resnet50v2 --precision fp16
  lockstep gpu plan --model unet-512 --batch 8 --layers`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			r, err := gpu.Plan(o)
			if err != nil {
				return err
			}
			return r.Write(c.OutOrStdout(), asJSON, layers)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Model, "model", "resnet50v2", "one of "+strings.Join(gpu.Models(), ", "))
	f.StringVar(&o.Precision, "precision", "bf16", "bf16, fp16 or fp32")
	f.IntVar(&o.Batch, "batch", 0, "images a step (default: that of gpu bench)")
	f.Float64Var(&o.TFLOPS, "tflops", 0, "10¹² operations a second of products of matrices (default: 790, an H200 in bf16; 60 in fp32)")
	f.Float64Var(&o.TBPS, "tbps", 0, "10¹² bytes a second of memory (default: 4.3, an H200)")
	f.BoolVar(&layers, "layers", false, "every task too")
	f.BoolVar(&asJSON, "json", false, "as JSON")
	return c
}
