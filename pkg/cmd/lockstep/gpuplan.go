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
		Short: "Count the operations and bytes of a step's kernels, without a GPU",
		Long: `Lowers a network for a GPU as gpu bench does, and counts the operations and bytes
of the kernels in a training step with Adam: without fusions, with fusions, and in
fp16 with convolutions that apply the preceding batch norm. The least time is
computed for assumed ceilings; nothing is measured, and no GPU is needed. If cuDNN
does not support a graph, the step takes longer.

  lockstep gpu plan --model resnet50v2 --precision fp16
  lockstep gpu plan --model unet-512 --batch 8 --layers`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return asUsageError(err)
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
	f.IntVar(&o.Batch, "batch", 0, "images per step (default: as in gpu bench)")
	f.Float64Var(&o.TFLOPS, "tflops", 0, "throughput of matrix products in 10¹² operations per second (default: 790, an H200 in bf16; 60 in fp32)")
	f.Float64Var(&o.TBPS, "tbps", 0, "memory bandwidth in 10¹² bytes per second (default: 4.3, an H200)")
	f.BoolVar(&layers, "layers", false, "also list every task")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
