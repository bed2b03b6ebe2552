package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lockstep/pkg/bench"
	"lockstep/pkg/engine"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure Lockstep beside what it is compared with",
		Long: `Measures Lockstep and what it is compared with in turns, in one call. Run it on
an idle machine. Peers are installed by ` + bench.Advice + `; one that is
missing is exit code 3.`,
	}
	c.AddCommand(benchEngineCommand(), benchAblationCommand(), benchAllReduceCommand(), benchReadCommand(), benchLoaderCommand(), benchScalingCommand(), benchTwinsCommand(), benchWorkerCommand())
	return c
}

// benchOutput contains the flags that all benchmarks have.
type benchOutput struct{ json, verbose bool }

func (o *benchOutput) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false, "as a JSON array")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "say how it goes")
}

func (o *benchOutput) write(c *cobra.Command, records []bench.Record, err error) error {
	if errors.Is(err, bench.ErrPeerMissing) {
		return missing(err)
	}
	if err != nil {
		return err
	}
	return bench.Write(c.OutOrStdout(), records, o.json)
}

func shapeFlags(f *pflag.FlagSet, s *bench.Shape) {
	*s = bench.DefaultShape()
	f.StringVar(&s.Model, "model", s.Model, "network: "+strings.Join(bench.Models(), ", ")+" (default the first); it has a size of its own")
	f.IntVar(&s.Base, "base", s.Base, "channels of the network's first level")
	f.IntVar(&s.Depth, "depth", s.Depth, "levels of a U-Net (2-D: above its bridge)")
	f.IntVar(&s.Size, "size", s.Size, "height and width of an image, side of a volume")
	f.IntVar(&s.Batch, "batch", s.Batch, "images per worker and step")
}

// modelShape sets the dimensions of s to the defaults of its model, except those that
// were set by flags.
func modelShape(f *pflag.FlagSet, s *bench.Shape) error {
	own, err := bench.ShapeOf(s.Model)
	if err != nil {
		return usage(err)
	}
	s.Model = own.Model
	for _, v := range []struct {
		flag     string
		to, from *int
	}{{"base", &s.Base, &own.Base}, {"depth", &s.Depth, &own.Depth}, {"size", &s.Size, &own.Size}, {"batch", &s.Batch, &own.Batch}} {
		if !f.Changed(v.flag) {
			*v.to = *v.from
		}
	}
	return nil
}

func peerFlags(f *pflag.FlagSet, p *bench.PeerOptions) {
	f.StringVar(&p.Scripts, "peers", "", "folder of the peers' scripts (default: environment/peers of the checkout)")
	f.StringVar(&p.Python, "python", "", "interpreter that has PyTorch (default: the first python3 that has)")
}

func benchEngineCommand() *cobra.Command {
	var o bench.EngineOptions
	var out benchOutput
	c := &cobra.Command{
		Use:   "engine",
		Short: "Training steps of the CPU engine beside PyTorch's",
		Long: `Trains a network (forward, backward, Adam, fp32) here and in PyTorch, in turns:
with each number of threads, in plain Go (LOCKSTEP_CPU=go) on one, and with several
workers of one thread that exchange gradients, against gloo. Both must have the
same parameters and FLOPs; PyTorch uses the faster of its memory formats. Peak
memory is that of each side's processes. The networks are a 2-D U-Net, Keras'
ResNet50V2 at 32×32, and at 32×32×32 the 3-D U-Net of strided convolutions and
that of 3×3×3 convolutions (unet3d-k3; Çiçek et al., 2016).

  lockstep bench engine --json
  lockstep bench engine --model resnet50v2 --plain-repeats 0
  lockstep bench engine --threads 1 --workers 0 --plain-repeats 0 -v`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := modelShape(c.Flags(), &o.Shape); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.EngineRuns(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.IntSliceVar(&o.Threads, "threads", []int{1, 2}, "numbers of threads of one worker")
	f.IntVar(&o.Workers, "workers", 2, "workers of one thread that exchange gradients; 0: none")
	f.IntVar(&o.Repeats, "repeats", 5, "steps of each side")
	f.IntVar(&o.PlainRepeats, "plain-repeats", 2, "steps of plain Go; 0: it is not measured")
	shapeFlags(f, &o.Shape)
	peerFlags(f, &o.Peer)
	out.flags(f)
	return c
}

func benchAblationCommand() *cobra.Command {
	var o bench.AblationOptions
	var out benchOutput
	c := &cobra.Command{
		Use:   "ablation",
		Short: "What each optimisation of the engine gives",
		Long: `Trains the benchmarks' U-Net with all optimisations and without one of them, in
turns: the choice of convolution against each algorithm alone, fused kernels, and
with several workers the exchange of gradients during the backward pass.

  lockstep bench ablation --repeats 5`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := modelShape(c.Flags(), &o.Shape); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.AblationRuns(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Threads, "threads", 1, "of one worker")
	f.IntVar(&o.Workers, "workers", 2, "workers of one thread that exchange gradients; 0: none")
	f.IntVar(&o.Repeats, "repeats", 5, "steps with and without")
	shapeFlags(f, &o.Shape)
	out.flags(f)
	return c
}

func benchAllReduceCommand() *cobra.Command {
	var o bench.AllReduceOptions
	var out benchOutput
	c := &cobra.Command{
		Use:   "allreduce",
		Short: "Sums over all workers beside those of gloo",
		Long: `Adds up buffers of float32 over all workers, here and with PyTorch's gloo, in
turns: bytes of the buffer a second.

  lockstep bench allreduce --workers 2 --sizes 1000,8000000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.AllReduceRuns(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Workers, "workers", 2, "processes; each needs a core")
	f.IntSliceVar(&o.Sizes, "sizes", bench.DefaultSizes(), "bytes of the buffer")
	f.IntVar(&o.Repeats, "repeats", 5, "of each size and side")
	peerFlags(f, &o.Peer)
	out.flags(f)
	return c
}

func benchTwinsCommand() *cobra.Command {
	var o bench.TwinOptions
	var out benchOutput
	c := &cobra.Command{
		Use:   "twins [CONFIG…]",
		Short: "Quality of the -laptop configs with more workers beside one worker",
		Long: `Trains the configs for a laptop (or those that are named) to their end with one
worker and with more, once per seed, and compares IoU, accuracy on held-out images or
held-out loss with those of one worker. A value is to be within one worker's 95 %
interval over the seeds: quality does not depend on the number of workers, as the
courses teach. Workers may outnumber the cores: no times are compared.

  lockstep bench twins
  lockstep bench twins resnet50v2-cifar10-laptop --seeds 1,2,3,4,5 -v`,
		RunE: func(c *cobra.Command, args []string) error {
			o.Configs = args
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.TwinRuns(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.IntSliceVar(&o.Workers, "workers", []int{2, 4}, "worker counts to compare with one worker")
	f.Int64SliceVar(&o.Seeds, "seeds", []int64{1, 2, 3}, "a run of each worker count for each")
	f.StringArrayVar(&o.Set, "set", nil, "key=value in each config, repeatable")
	out.flags(f)
	return c
}

func benchScalingCommand() *cobra.Command {
	var o bench.ScalingOptions
	var out benchOutput
	c := &cobra.Command{
		Use:   "scaling",
		Short: "Weak scaling: throughput of N workers over that of one",
		Long: `Measures throughput with a fixed batch per worker at each number of workers,
interleaved, and reports the median of the ratios. Run it on an idle machine.
Beside N workers stand N runs of one worker at the same time: they exchange
nothing and wait for nobody, so they show how much this machine can give.

  lockstep bench scaling --workers 1,2 --repeats 5 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.ScalingRuns(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.IntSliceVar(&o.Workers, "workers", []int{1, 2}, "numbers of workers; the first is the baseline")
	f.IntVar(&o.Repeats, "repeats", 5, "runs of each number of workers")
	f.IntVar(&o.Epochs, "epochs", 4, "of each run; the first is left out")
	f.IntVar(&o.Threads, "threads", 1, "per worker")
	out.flags(f)
	return c
}

// benchWorkerCommand returns the command of Lockstep's side of a comparison, which the
// other benchmarks start.
func benchWorkerCommand() *cobra.Command {
	o := bench.WorkerOptions{Engine: engine.DefaultOptions()}
	c := &cobra.Command{
		Use: "worker", Hidden: true, Args: cobra.NoArgs,
		Short: "Answer requests from standard input until it ends",
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Task == bench.TaskRead {
				collectRarely() // as in the commands that read logs
			}
			return bench.Work(c.Context(), o, c.InOrStdin(), c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.Task, "task", "train", "train, allreduce or read")
	f.IntVar(&o.Engine.Threads, "threads", 1, "of this worker")
	f.StringVar(&o.Engine.Convolution, "convolution", o.Engine.Convolution, "algorithm")
	f.BoolVar(&o.Engine.Fuse, "fuse", o.Engine.Fuse, "batch norm and ReLU in one kernel")
	f.BoolVar(&o.Engine.Overlap, "overlap", o.Engine.Overlap, "exchange gradients during backward")
	f.StringVar(&o.Engine.Device, "device", o.Engine.Device, "cpu or cuda")
	f.StringVar(&o.Engine.Precision, "precision", o.Engine.Precision, "of a GPU")
	f.BoolVar(&o.Engine.TF32, "tf32", o.Engine.TF32, "in fp32 on a GPU")
	shapeFlags(f, &o.Shape)
	f.IntVar(&o.Shape.Width, "width", 0, "width of an image; 0: as its height")
	f.StringVar(&o.Shape.Network, "network", "", "one of lockstep model's, in place of a U-Net")
	f.BoolVar(&o.Shape.Biases, "biases", false, "convolutions before a batch norm have biases")
	return c
}
